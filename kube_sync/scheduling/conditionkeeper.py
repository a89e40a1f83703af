"""Keeps the conditions of every SchedulingPolicy as OPA judges it.

Level-based: a key is looked up and judged anew each time, and what is right already is not
written. It belongs beside the replicator, whose OPA holds the Rego that decisions are made with:
so what a condition says is what a decision does. Of several replicas the one that holds the Lease
writes; without any right to a Lease all do, which comes to the same. A condition is news for
people: no decision waits for it, or reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import msgspec
import structlog

from kube_sync.errors import NotFound, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.patch import apply_status
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.workqueue import WorkQueue
from kube_sync.scheduling.conditions import REPORT, Report, are_right, conditions, read_report
from kube_sync.scheduling.kinds import KIND, SCHEDULING_POLICIES
from kube_sync.scheduling.policies import HeldPolicies, HeldPolicy

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FIELD_MANAGER: Final = "kube-sync-scheduling"
_LONGEST: Final = 5.0  # seconds between two tries: OPA loads meanwhile, or the API server is away


class Engine(Protocol):
    """The OPA that holds the Rego of decisions."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Return the document at `path` for an input, None when it is undefined."""
        ...


class Leadership(Protocol):
    """Whether this process is the one that writes."""

    @property
    def held(self) -> bool:
        """True as long as nobody else writes."""
        ...


class ConditionKeeper:
    """Brings the conditions of all policies up to date while the Lease is held."""

    def __init__(
        self,
        client: KubeClient,
        engine: Engine,
        leadership: Leadership,
        note: Callable[[str], None],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`note` is told how it goes, in words."""
        self._client = client
        self._engine = engine
        self._leadership = leadership
        self._note = note
        self._now = now
        self._queue = WorkQueue[ObjectKey]()
        self._backoffs: dict[ObjectKey, Backoff] = {}
        self._troubles: dict[ObjectKey, str] = {}
        self.store = HeldPolicies(self._queue.add)

    def wake(self) -> None:
        """Look at every policy again: the Lease is held now, or the Rego is another."""
        for key in self.store:
            self._queue.add(key)

    async def run(self) -> NoReturn:
        """Judge what is new until cancelled."""
        try:
            while True:
                key = await self._queue.get()
                try:
                    await self._reconcile(key)
                finally:
                    self._queue.done(key)
        finally:
            self._queue.close()

    async def _reconcile(self, key: ObjectKey) -> None:
        policy = self.store.get(key)
        if policy is None or not self._leadership.held:
            self._settled(key)
            return
        try:
            await self._bring_up(policy)
        except NotFound:
            self._settled(key)  # it went meanwhile: its event is on the way
        except SyncError as error:
            self._failed(key, error)
        else:
            self._settled(key)

    async def _bring_up(self, policy: HeldPolicy) -> None:
        report = await self._judged(policy)
        # For people only: nothing goes by it.
        now = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted = conditions(report, policy.generation, policy.conditions, now)
        if are_right(policy.conditions, wanted):
            metrics.scheduling_conditions.labels("unchanged").inc()
            return
        await apply_status(
            self._client,
            SCHEDULING_POLICIES,
            KIND,
            policy.key,
            policy.uid,
            {"conditions": wanted},
            FIELD_MANAGER,
        )
        metrics.scheduling_conditions.labels("written").inc()
        log.info(
            "conditions_written",
            policy=policy.key.name,
            problems=len(report.problems),
            findings=len(report.findings),
        )

    async def _judged(self, policy: HeldPolicy) -> Report:
        body = msgspec.json.encode({"input": {"object": msgspec.Raw(policy.body)}})
        return read_report(await self._engine.query(REPORT, body))

    def _failed(self, key: ObjectKey, error: SyncError) -> None:
        metrics.scheduling_conditions.labels("failed").inc()
        if self._troubles.get(key) != str(error):
            log.warning("conditions_not_written", policy=key.name, error=str(error))
        self._troubles[key] = str(error)
        delay = self._backoffs.setdefault(key, Backoff(longest=_LONGEST)).next_delay()
        asked = error.retry_after if isinstance(error, Retriable) else None
        self._queue.add_after(key, max(delay, asked or 0.0))
        self._tell()

    def _settled(self, key: ObjectKey) -> None:
        self._backoffs.pop(key, None)
        self._troubles.pop(key, None)
        self._tell()

    def _tell(self) -> None:
        key = min(self._troubles, default=None)
        self._note("ok" if key is None else f"{key}: {self._troubles[key]}")
