"""The LISTs and WATCHes of one Mirror: one, or one for each configured namespace.

Listing by namespace needs permissions in these alone; ignored namespaces are excluded by a field
selector of one LIST. Where it matters, discovery is asked first whether the kind is namespaced, and
again whenever that may have changed: after each failure, each new LIST or WATCH, and each object of
the other scope. A CRD that came back with the other scope is listed anew; until then none of its
objects goes into OPA and the kind counts as missing. It ends only by cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NoReturn

import structlog

from kube_sync.config import Replicate, Resource
from kube_sync.errors import NotFound, SyncError
from kube_sync.kube.availability import Availability
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, Item, KubeCollection, outside_of
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.reflector import Reflector
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.bulk_load import EVERYWHERE
from kube_sync.replicator.mirror import Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Part:
    """The Store of one scope of a Mirror: it never replaces objects of another scope.

    One document takes the first LISTs of all scopes. If there are several, each LIST is buffered
    here until it is complete, so that one that breaks off loses nothing of another.
    """

    def __init__(
        self, mirror: Mirror, scope: str, fits: Callable[[Item], bool] = lambda _item: True
    ) -> None:
        """`fits` returns whether an object has the expected scope; others are left out."""
        self._mirror = mirror
        self._scope = scope
        self._fits = fits
        self._odd = False  # the running LIST had an object that does not fit
        self._gathered: list[Item] = []

    async def page(self, items: Sequence[Item]) -> None:
        """Add one page of a LIST, once the fields to keep are known."""
        await self._mirror.shaped.wait()
        fitting = [item for item in items if self._fits(item)]
        self._odd = self._odd or len(fitting) < len(items)
        if self._mirror.gathers(self._scope):
            self._gathered += fitting
        else:
            await self._mirror.page(fitting, scope=self._scope)

    def finish(self, *, known: bool) -> None:
        """Replace the objects of this scope by the pages."""
        # The objects left out may be all there are: that collection is unknown, not small.
        known, self._odd = known and not self._odd, False
        if self._mirror.gathers(self._scope):
            gathered, self._gathered = self._gathered, []
            self._mirror.gather(gathered)
        self._mirror.finish(known=known, scope=self._scope)

    def abandon(self) -> None:
        """Discard the pages of a LIST that broke off."""
        self._gathered, self._odd = [], False
        self._mirror.abandon(scope=self._scope)

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        if event.item is None or self._fits(event.item):
            self._mirror.apply(event)


class Feed:
    """Keeps the Mirror of one resource current."""

    def __init__(
        self,
        client: KubeClient,
        replicate: Replicate,
        resource: Resource,
        readiness: Readiness,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        currency: Callable[[str, str | None], None] = lambda _source, _reason: None,
    ) -> None:
        """`currency` receives why the resource, or part of it, is not current; None: it is."""
        self._client = client
        self._resource = resource
        self._namespaces = replicate.namespaces_of(resource)
        self._ignored = replicate.ignored_of(resource)
        self._readiness = readiness
        self._name = _name(replicate, resource)
        self._backoff = backoff()
        self._conditions: set[str] = set()
        self._currency = currency
        self._reported: set[str] = set()  # places reported to `currency`
        self._doubt = asyncio.Event()  # the scope may have changed
        self._contradicted = False  # an object shows that it has, whatever discovery says
        self._sources: list[KubeCollection] = []  # of all reflectors

    async def run(self, mirror: Mirror) -> None:
        """Keep `mirror` current until cancelled."""
        if not self._namespaces and not self._ignored:
            # The same LIST and WATCH for either scope.
            source = self._source(EVERYWHERE, self._resource.field_selector)
            self._sources = [source]
            report = self._of(mirror, self._reporter())
            part = Part(mirror, EVERYWHERE)
            await self._reflector(self._name, source, part, report).run()
        namespaced = await self._is_namespaced(mirror)
        while True:
            await self._follow(mirror, namespaced=namespaced)
            namespaced = not namespaced
            self.forget()
            self.release()
            mirror.rescope((namespaced and self._namespaces) or (EVERYWHERE,))
            log.warning("scope_changed", resource=self._name, namespaced=namespaced)

    async def list_classes(self, mirror: Mirror) -> None:
        """List all sources once more, for the objects' classes alone. Raises SyncError."""
        metrics.reflector_lists.labels(self._name, "classify").inc()
        for source in [*self._sources]:
            async with aclosing(source.list()) as pages:
                async for page in pages:
                    mirror.read_classes(page.items)

    def forget(self) -> None:
        """Remove the resource's readiness conditions."""
        while self._conditions:
            self._readiness.forget(self._conditions.pop())

    def release(self) -> None:
        """Remove the resource from the sources that must be current: it is not wanted any more."""
        while self._reported:
            self._currency(self._reported.pop(), None)

    async def _follow(self, mirror: Mirror, *, namespaced: bool) -> None:
        """Reflect until the kind has the other scope."""
        namespaces, ignored = (self._namespaces, self._ignored) if namespaced else ((), ())
        selector = outside_of(ignored, self._resource.field_selector)
        self._contradicted = False
        self._sources = []
        async with asyncio.TaskGroup() as group:
            reflecting = [
                group.create_task(self._reflect(mirror, scope, selector, namespaced=namespaced))
                for scope in namespaces or (EVERYWHERE,)
            ]
            await self._other_scope(namespaced=namespaced)
            for task in reflecting:
                task.cancel()

    async def _reflect(
        self, mirror: Mirror, scope: str, field_selector: str | None, *, namespaced: bool
    ) -> NoReturn:
        report = self._reporter(scope)

        def on_report(reason: str | None) -> None:
            self._doubt.set()
            report(reason)

        def fits(item: Item) -> bool:
            if bool(item.key.namespace) == namespaced:
                return True
            self._contradicted = True
            self._doubt.set()
            return False

        source, name = self._source(scope, field_selector), self._condition(scope)
        self._sources.append(source)
        await self._reflector(name, source, Part(mirror, scope, fits), on_report, scope).run()

    def _reflector(
        self,
        name: str,
        source: KubeCollection,
        part: Part,
        report: Callable[[str | None], None],
        scope: str = EVERYWHERE,
    ) -> Reflector:
        behind = partial(self._currency, self._place(scope))
        return Reflector(name, source, part, report, behind=behind)

    async def _other_scope(self, *, namespaced: bool) -> None:
        """Wait until discovery reports the other scope."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            try:
                if await is_namespaced(self._client, self._resource.gvr) != namespaced:
                    return
            except SyncError:
                again = True  # the reflectors report the error
            else:
                again = self._contradicted  # discovery lags by some seconds
            if again:
                await self._backoff.wait()
                self._doubt.set()
            else:
                self._backoff.progressed()

    async def _is_namespaced(self, mirror: Mirror) -> bool:
        """Ask until the API server knows the kind; until then it counts as listed and missing."""
        report, availability = self._reporter(), Availability(self._client, self._resource.gvr)
        while True:
            try:
                found = await availability.is_namespaced()
            except SyncError as error:
                if isinstance(error, NotFound):
                    # Each by itself: the kind is known again when the last scope was listed.
                    for scope in self._namespaces or (EVERYWHERE,):
                        mirror.finish(known=False, scope=scope)
                report(str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                report(None)
                return found

    def _source(self, scope: str, field_selector: str | None) -> KubeCollection:
        return KubeCollection(
            self._client,
            self._resource.gvr,
            namespace=scope or None,
            label_selector=self._resource.label_selector,
            field_selector=field_selector,
            # Unreadable objects are passed on, so that their last state does not pass as current.
            deep=True,
        )

    def _condition(self, scope: str) -> str:
        return f"{self._name} in {scope}" if scope else self._name

    def _of(
        self, mirror: Mirror, report: Callable[[str | None], None]
    ) -> Callable[[str | None], None]:
        """Report errors, except that an optional kind is missing."""

        def on_report(reason: str | None) -> None:
            if reason is not None and mirror.lacks_nothing:
                self._readiness.noted(self._name, f"none: {reason}")
                self._currency(self._place(EVERYWHERE), None)
            else:
                report(reason)

        return on_report

    def _reporter(self, scope: str = EVERYWHERE) -> Callable[[str | None], None]:
        condition, place = self._condition(scope), self._place(scope)
        self._conditions.add(condition)
        self._reported.add(place)
        report = self._readiness.reporter(condition)

        def report_staleness(reason: str | None) -> None:
            report(reason)
            self._currency(place, reason)

        return report_staleness

    def _place(self, scope: str) -> str:
        """Return the name of the resource in OPA, with the namespace if it is a part."""
        name = self._resource.name
        return f"{name} in {scope}" if scope else name


def _name(replicate: Replicate, resource: Resource) -> str:
    """Return a name for logs and readiness, unique among resources of the same kind."""
    twice = sum(other.gvr == resource.gvr for other in replicate.resources) > 1
    return f"{resource.gvr} as {resource.name}" if twice else str(resource.gvr)
