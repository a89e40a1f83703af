"""Keep a Store equal to one Kubernetes collection, after client-go's Reflector.

A Reflector lists, replaces the Store's content, then watches from where the list ended. It lists
again only when told that its place is lost (410), and it never stops but by cancellation: what
stands in its way is reported, in words, and tried again. It knows nothing of OPA.

Every turn of the loop waits, so no failure, and no watch that closes at once, can spin.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NoReturn, Protocol

import structlog

from kube_sync.errors import Expired, NotFound, Retriable, SyncError
from kube_sync.kube.collection import Event, Item, Page, ResourceVersion
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
# A watch that lived this long (seconds) was a good one, even if nothing happened in it.
_LONG_ENOUGH = 5.0


class ListerWatcher(Protocol):
    """Where objects come from. It raises NotFound only if the kind is known to be gone."""

    def list(self) -> AsyncGenerator[Page]:
        """Yield the whole collection, page by page."""
        ...

    def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield what changed after `since`."""
        ...


class Store(Protocol):
    """Where objects go. None of it may fail; only `page` may wait, so that a LIST slows down."""

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST; the first one after `finish` or `abandon` begins a new LIST."""
        ...

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the pages held; `known` is false when the API server lacks the kind."""
        ...

    def abandon(self) -> None:
        """Forget the pages of a LIST that broke off."""
        ...

    def apply(self, event: Event) -> None:
        """Take one change in."""
        ...


class Reflector:
    """One collection, one Store."""

    def __init__(
        self,
        name: str,
        source: ListerWatcher,
        store: Store,
        report: Callable[[str | None], None],
        *,
        counted: str | None = None,
        behind: Callable[[str], None] = lambda _reason: None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`report` is told what stands in the way of a current Store, or None when nothing does.

        `behind` is told when the Store is not current although nothing failed: until `report` is
        told None. `counted` is its name in metrics, where there may be any number of it.
        """
        self._name = name
        self._series = series = counted or name
        self._source = source
        self._store = store
        self._report = report
        self._behind = behind
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._version: ResourceVersion | None = None
        self._why = "start"
        # Looked up once: a label costs more than all else that is done for an event.
        self._counted = {t: metrics.reflector_events.labels(series, t) for t in _EVENTS}
        self._counted_other = metrics.reflector_events.labels(series, "other")
        self._bytes = metrics.reflector_bytes.labels(series)
        metrics.reflector_failures.labels(series)  # 0 is told too: a first failure is a rise

    async def run(self) -> NoReturn:
        """List once, then watch for ever; list again only when told Expired."""
        while True:
            at_least = None
            try:
                await self._turn()
            except SyncError as error:
                at_least = self._failed(error)
            await self._backoff.wait(at_least)

    async def _turn(self) -> None:
        if self._version is None:
            self._version = await self._list()
        started = self._clock()
        try:
            async with aclosing(self._source.watch(self._version)) as events:
                async for event in events:
                    self._took(event)
        finally:
            if self._clock() - started > _LONG_ENOUGH:
                self._backoff.progressed()

    async def _list(self) -> ResourceVersion:
        metrics.reflector_lists.labels(self._series, self._why).inc()
        version, objects = ResourceVersion(""), 0
        try:
            async with aclosing(self._source.list()) as pages:
                async for page in pages:
                    self._bytes.inc(sum(len(item.body) for item in page.items))
                    await self._store.page(page.items)
                    version, objects = page.version, objects + len(page.items)
        except SyncError:
            self._store.abandon()
            raise
        self._store.finish(known=True)
        self._report(None)
        log.info("listed", resource=self._name, objects=objects, reason=self._why)
        return version

    def _took(self, event: Event) -> None:
        if event.type == "CONNECTED":
            self._report(None)
            return
        self._counted.get(event.type, self._counted_other).inc()
        if event.item is not None:
            self._bytes.inc(len(event.item.body))
            self._store.apply(event)
        self._version = event.version
        self._backoff.progressed()

    def _failed(self, error: SyncError) -> float | None:
        """Note what went wrong; returns how long the server asked to be left alone, in seconds."""
        metrics.reflector_failures.labels(self._series).inc()
        if isinstance(error, Expired):
            # Deletions may have been missed: only a LIST shows them.
            self._version, self._why = None, "expired"
            self._behind("it has to be listed again")
            log.info("watch_expired", resource=self._name)
            return None
        reason = str(error)
        if isinstance(error, NotFound):
            reason = f"{self._name}: the API server does not know this resource (is its CRD there?)"
            self._version, self._why = None, "missing"
            self._store.finish(known=False)
        self._report(reason)
        return error.retry_after if isinstance(error, Retriable) else None
