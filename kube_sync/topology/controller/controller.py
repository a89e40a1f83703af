"""Calls a reconcile function for the whole graph whenever it has changed.

Invariant: calls never overlap. Each gets all events since the last successful one, and the
resulting graph; so after a failure the last state is reached, and no event is lost. Only the holder
of the Lease calls, but every replica keeps the graph and the events not reconciled yet. It calls
nothing before every kind was listed once, nor while something is withheld. It runs until cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import NoReturn

import structlog

from kube_sync.errors import Retriable, SyncError, first_of
from kube_sync.kube.lease import Leadership
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff, Sleep
from kube_sync.topology.controller.events import Backlog, ResourceEvent
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.workflow import Reconcile, Reconciliation

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_QUIET = 0.05
_LONGEST = 0.5
_LEAST = 1.0  # seconds between a failure and the next try
_SHARE = 2.0  # a retry waits at least this factor of the last call's duration


class Controller:
    """Calls `reconcile` for one LiveTopology."""

    def __init__(
        self,
        live: LiveTopology,
        news: asyncio.Event,
        reconcile: Reconcile,
        leadership: Leadership,
        note: Callable[[str | None], None],
        *,
        heeds: Callable[[ResourceEvent], bool] = lambda event: event.meaning,
        withheld: Callable[[], Collection[str]] = tuple,
        quiet: float = _QUIET,
        longest: float = _LONGEST,
        backoff: Backoff | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`news` is set by the World, and when the kinds of policies change.

        A batch ends when there was no news for `quiet` seconds, and after `longest` seconds at the
        latest; events that `heeds` rejects are ignored. `note` gets what prevents reconciles, None
        if nothing does. While `withheld` is not empty nothing is called: the state is incomplete.
        The clock is the World's.
        """
        self._live = live
        self._news = news
        self._reconcile = reconcile
        self._leadership = leadership
        self._note = note
        self._heeds = heeds
        self._withheld = withheld
        self._quiet = quiet
        self._longest = longest
        self._backoff = backoff or Backoff(0.5)
        self._sleep = sleep
        self._clock = clock
        self._backlog = Backlog()
        # Statuses may be from before this process, so the first state is reconciled even without an
        # event.
        self._wanted = True
        self._call_seconds = 0.0  # seconds, of the last call

    def wake(self) -> None:
        """Reconcile even without an event: the Lease was acquired."""
        self._wanted = True
        self._news.set()

    async def run(self) -> NoReturn:
        """Reconcile after each change until cancelled."""
        self._news.set()
        while True:
            await self._happens()
            await self._settles()
            error = await self._process_batch()
            if error is not None:
                await self._back_off(error.retry_after if isinstance(error, Retriable) else None)
                self._news.set()

    async def _back_off(self, retry_after: float | None) -> None:
        """Back off after a failure; `retry_after` is the server's Retry-After in seconds."""
        async with asyncio.TaskGroup() as group:
            whole = group.create_task(self._backoff.wait(retry_after))
            short = group.create_task(self._back_off_until_changed(retry_after or 0.0))
            await asyncio.wait((whole, short), return_when=asyncio.FIRST_COMPLETED)
            whole.cancel()
            short.cancel()

    async def _back_off_until_changed(self, retry_after: float) -> None:
        """Wait for news, so that one object's failure does not delay the others.

        It waits for a minimum, so that a busy cluster does not cause endless requests.
        """
        await self._sleep(max(_LEAST, _SHARE * self._call_seconds, retry_after))
        await self._news.wait()

    async def _happens(self) -> None:
        due = self._live.due
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                await self._news.wait()
        except TimeoutError:
            log.debug("topology_due")

    async def _settles(self) -> None:
        end = self._clock() + self._longest
        while (left := end - self._clock()) > 0:
            self._news.clear()
            await self._sleep(min(self._quiet, left))
            if not self._news.is_set():
                return

    async def _process_batch(self) -> Exception | None:
        """Update the graph and reconcile; return why that failed."""
        self._news.clear()  # before anything is read: what comes from now on is news
        if waiting := self._live.waiting:
            self._note(f"not listed yet: {', '.join(waiting)}")
            return None
        step = await self._live.advance()
        relevant = [event for event in step.events if self._heeds(event)]
        self._backlog.add(relevant, step.affected)
        self._wanted = self._wanted or step.anew or bool(relevant)
        if withheld := self._withheld():
            self._wanted = True
            self._note(f"nothing is written before this is known: {', '.join(withheld)}")
            return None
        if not self._leadership.held:
            self._note(_reason(step.error))
            return None
        return await self._call(step.error) if self._wanted else None

    async def _call(self, error: SyncError | None) -> Exception | None:
        self._wanted = False  # before the call: `wake` may set it during the call
        events, affected = self._backlog.show()
        begun = self._clock()
        try:
            await self._reconcile(Reconciliation(events, self._live.topology, error, affected))
        except Exception as failure:  # noqa: BLE001 - whatever code it is, the next state may suit it
            self._call_seconds = self._clock() - begun
            self._wanted = True
            self._failed(failure)
            return failure
        self._call_seconds = seconds = self._clock() - begun
        metrics.topology_reconciles.labels("ok").inc()
        metrics.topology_reconcile_seconds.observe(seconds)
        log.debug("reconciled", events=len(events), seconds=round(seconds, 3))
        self._backoff.progressed()
        if error is None:
            metrics.topology_events.inc(len(events))
            self._backlog.clear()
        self._note(_reason(error))
        return None

    def _failed(self, failure: Exception) -> None:
        metrics.topology_reconciles.labels("failed").inc()
        inner = first_of(failure)
        reason = str(inner) or type(inner).__name__
        expected = isinstance(failure, SyncError)
        log.warning("reconcile_failed", error=reason, exc_info=None if expected else failure)
        self._note(f"reconcile failed: {reason}")


def _reason(error: SyncError | None) -> str | None:
    return None if error is None else f"the graph is as it was before: {error}"
