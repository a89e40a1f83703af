"""Keep a Store equal to one Kubernetes collection, after client-go's Reflector.

A Reflector lists, replaces the Store's content, then watches from the LIST's resourceVersion. It
lists again only when that has expired (410), and it ends only by cancellation: it reports each
error as text and retries. It knows nothing of OPA.

Every iteration of the loop waits, so neither an error nor a watch that closes at once can spin.
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
# A watch that lived this long (seconds) was healthy, even without events.
_LONG_ENOUGH = 5.0


class ListerWatcher(Protocol):
    """Lists and watches a collection; raises NotFound only if the kind is confirmed to be gone."""

    def list(self) -> AsyncGenerator[Page]:
        """Yield the whole collection, page by page."""

    def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield the changes after `since`."""


class Store(Protocol):
    """Receives the objects. No method may fail; only `page` may wait, which slows the LIST down."""

    async def page(self, items: Sequence[Item]) -> None:
        """Add one page of a LIST; the first page after `finish` or `abandon` begins a new LIST."""

    def finish(self, *, known: bool) -> None:
        """Replace the content with the pages; `known` is false if the API server lacks the kind."""

    def abandon(self) -> None:
        """Discard the pages of a LIST that broke off."""

    def apply(self, event: Event) -> None:
        """Apply one watch event."""


async def items_of(source: ListerWatcher) -> AsyncGenerator[Item]:
    """Yield the objects of a collection, with one page in memory. Raises SyncError."""
    async with aclosing(source.list()) as pages:
        async for page in pages:
            for item in page.items:
                yield item


class Reflector:
    """Keeps one Store equal to one collection."""

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
        """Call `report` with why the Store is not current, or with None when it is.

        `behind` is called when the Store is not current although nothing failed; it lasts until
        `report` is called with None. `counted` replaces `name` in metrics, where the number of
        names must be bounded.
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
        # Looked up once: `labels` costs more than the rest of the work for an event.
        self._counted = {t: metrics.reflector_events.labels(series, t) for t in _EVENTS}
        self._counted_other = metrics.reflector_events.labels(series, "other")
        self._bytes = metrics.reflector_bytes.labels(series)
        metrics.reflector_failures.labels(series)  # export 0: a first failure is an increase

    async def run(self) -> NoReturn:
        """List once, then watch forever; list again only after Expired."""
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
                    self._handle(event)
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

    def _handle(self, event: Event) -> None:
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
        """Record an error; return the server's Retry-After in seconds, if any."""
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
