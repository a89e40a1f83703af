"""Which LISTs and WATCHes keep one Mirror current: one, or one for each namespace that is named.

Asking namespace by namespace needs rights in these alone; leaving namespaces out is a field
selector of one LIST. Where it matters, discovery is asked first whether there are namespaces at
all, once an epoch. It never stops but by cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from kube_sync.errors import NotFound, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, Item, KubeCollection
from kube_sync.kube.discovery import is_namespaced
from kube_sync.kube.reflector import Reflector
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.mirror import EVERYWHERE, Mirror
from kube_sync.runtime.backoff import Backoff
from kube_sync.settings import Replicate, Resource


class Part:
    """The Store of one scope: it may replace nothing of another.

    One document takes the first LISTs of all scopes. Where there are several, each is kept here
    until it is whole, so that one that breaks off takes nothing of another with it.
    """

    def __init__(self, mirror: Mirror, scope: str) -> None:
        self._mirror = mirror
        self._scope = scope
        self._gathered: list[Item] = []

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        if self._mirror.gathers(self._scope):
            self._gathered += items
        else:
            await self._mirror.page(items, scope=self._scope)

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the pages held, in this scope."""
        if self._mirror.gathers(self._scope):
            gathered, self._gathered = self._gathered, []
            self._mirror.gather(gathered)
        self._mirror.finish(known=known, scope=self._scope)

    def abandon(self) -> None:
        """Forget the pages of a LIST that broke off."""
        self._gathered = []
        self._mirror.abandon(scope=self._scope)

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        self._mirror.apply(event)


class Feed:
    """One resource, from the API server into its Mirror."""

    def __init__(
        self, client: KubeClient, replicate: Replicate, resource: Resource, readiness: Readiness
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespaces = replicate.namespaces_of(resource)
        self._ignored = replicate.ignored_of(resource)
        self._readiness = readiness
        self._name = _name(replicate, resource)
        self._backoff = Backoff()

    async def run(self, mirror: Mirror) -> None:
        """Keep `mirror` current until cancelled."""
        namespaces, ignored = self._namespaces, self._ignored
        if (namespaces or ignored) and not await self._is_namespaced(mirror):
            namespaces = ignored = ()
        selector = _joined(self._resource.field_selector, ignored)
        async with asyncio.TaskGroup() as group:
            for scope in namespaces or (EVERYWHERE,):
                group.create_task(self._reflect(mirror, scope, selector))

    async def _reflect(self, mirror: Mirror, scope: str, field_selector: str | None) -> NoReturn:
        name = f"{self._name} in {scope}" if scope else self._name
        source = KubeCollection(
            self._client,
            self._resource.gvr,
            namespace=scope or None,
            label_selector=self._resource.label_selector,
            field_selector=field_selector,
        )
        report = self._readiness.reporter(name)
        await Reflector(name, source, Part(mirror, scope), report).run()

    async def _is_namespaced(self, mirror: Mirror) -> bool:
        """Ask until the API server knows the kind; until then it counts as listed and missing."""
        while True:
            try:
                found = await is_namespaced(self._client, self._resource.gvr)
            except SyncError as error:
                if isinstance(error, NotFound):
                    # Each by itself: it is known again when the last of them was listed.
                    for scope in self._namespaces or (EVERYWHERE,):
                        mirror.finish(known=False, scope=scope)
                self._readiness.waiting(self._name, str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._readiness.met(self._name)
                return found


def _joined(field_selector: str | None, ignored: tuple[str, ...]) -> str | None:
    parts = [field_selector] if field_selector else []
    return ",".join([*parts, *(f"metadata.namespace!={name}" for name in ignored)]) or None


def _name(replicate: Replicate, resource: Resource) -> str:
    """Name the resource in logs and on the readiness page, apart from another part of its kind."""
    twice = sum(other.gvr == resource.gvr for other in replicate.resources) > 1
    return f"{resource.gvr} as {resource.name}" if twice else str(resource.gvr)
