"""Controller that writes the status conditions of all policies of a kind, from OPA's reports.

Level-based: each reconcile reads the policy and its report anew, and writes only what differs. If
the report on a policy depends on the others of its namespace, the key is the namespace, and the
reconcile waits until OPA has the same policies there as this cache: so no report describes an
earlier state. It runs beside the replicator, whose OPA has the Rego of decisions, so a condition
agrees with decisions. Of several replicas the holder of the Lease writes; without permission for a
Lease all do, with the same result. Conditions are for people: no decision waits for or reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn, Protocol, get_args

import structlog

from kube_sync.errors import NotFound, Refused, Retriable, SyncError, Undecided
from kube_sync.kube.client import KubeClient
from kube_sync.kube.conditions import are_right, is_observed, observing
from kube_sync.kube.lease import Leadership
from kube_sync.kube.meta import time_text
from kube_sync.kube.patch import ObjectReference, apply_status
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.policykinds.conditions import Exempt, Unjudged, conditions
from kube_sync.policykinds.kinds import PolicyKind
from kube_sync.policykinds.policy_cache import HeldPolicies, HeldPolicy
from kube_sync.policykinds.reports import Report
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Outcome = Literal["unchanged", "written", "failed"]

_LONGEST: Final = 5.0  # seconds between two tries: OPA is loading, or the API server is down
_UNDECIDED: Final = 60.0  # seconds: a retry gives the same until something changes


class PolicyChecker(Protocol):
    """Checks policies."""

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        """Prepare for `report_on`: these are all policies in a namespace."""

    async def report_on(self, policy: HeldPolicy) -> Report:
        """Return the report on one policy. Raises Undecided if the Rego fails on it."""


class ConditionKeeper:
    """Reconciles the conditions of all policies of a kind while the Lease is held."""

    def __init__(
        self,
        kind: PolicyKind,
        client: KubeClient,
        checker: PolicyChecker,
        leadership: Leadership,
        note: Callable[[str], None],
        *,
        exempt: Callable[[str], str | None] = lambda _namespace: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`note` gets the state in words; `exempt` returns why no policy applies in a namespace."""
        self._kind = kind
        self._client = client
        self._checker = checker
        self._leadership = leadership
        self._note = note
        self._exempt = exempt
        self._now = now
        self._queue = WorkQueue[ObjectKey](f"{kind.kind}_conditions", _backoff)
        self._troubles: dict[ObjectKey, str] = {}
        self.store = HeldPolicies(self._enqueue)
        for outcome in get_args(Outcome):  # an alert misses the first 1 of a new series
            metrics.policy_conditions.labels(kind.kind, outcome)

    def wake(self) -> None:
        """Enqueue every policy: the Lease was acquired, or the Rego has changed."""
        for key in list(self.store.objects):
            self._enqueue(key)

    def listed(self) -> None:
        """Record the end of the first LIST, which may be empty."""
        if not self.store.objects:
            self._report_state()

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await work(self._queue, self._reconcile)

    def _enqueue(self, key: ObjectKey) -> None:
        # The key of a namespace, without a name, stands for all policies in it.
        self._queue.add(ObjectKey(key.namespace, "") if self._kind.together else key)

    def _policies(self, key: ObjectKey) -> list[HeldPolicy]:
        if self._kind.together:
            return self.store.within(key.namespace)
        policy = self.store.get(key)
        return [] if policy is None else [policy]

    async def _reconcile(self, key: ObjectKey) -> Result:
        policies = self._policies(key)
        try:
            if policies and self._leadership.held:
                await self._update_all(key, policies)
        except SyncError as error:
            self._failed(key, error)
            if isinstance(error, Undecided):
                return Result(_UNDECIDED)
            raise
        self._troubles.pop(key, None)
        self._report_state()
        return Result()

    async def _update_all(self, key: ObjectKey, policies: Sequence[HeldPolicy]) -> None:
        if self._kind.together:
            await self._checker.ready(key.namespace, policies)
        failed = [error for one in policies if (error := await self._try_update(one))]
        if failed:
            raise failed[0]

    async def _try_update(self, policy: HeldPolicy) -> SyncError | None:
        """Return the error of this one policy; raise one that concerns all."""
        try:
            await self._update(policy)
        except NotFound:
            return None  # deleted meanwhile: the watch event will follow
        except (Retriable, Refused):
            raise
        except SyncError as error:
            return error
        return None

    async def _update(self, policy: HeldPolicy) -> None:
        try:
            report = await self._checker.report_on(policy)
        except Undecided as error:
            await self._write(policy, Unjudged(str(error)))
            raise
        reason = self._exempt(policy.key.namespace)
        await self._write(policy, report if reason is None else Exempt(reason, report))

    async def _write(self, policy: HeldPolicy, report: Report | Unjudged | Exempt) -> None:
        # For people only: no logic reads it.
        now = time_text(self._now())
        wanted = conditions(report, policy.generation, policy.conditions, now)
        of_now = is_observed(policy.observed, policy.generation)
        if of_now and are_right(policy.conditions, wanted):
            self._counted("unchanged")
            return
        of = ObjectReference(self._kind.gvr, self._kind.kind, policy.key, policy.uid)
        status = {**observing(policy.observed, policy.generation), "conditions": wanted}
        await apply_status(self._client, of, status, self._kind.manager)
        self._counted("written")
        statuses = {one["type"]: one["status"] for one in wanted}
        log.info(
            "conditions_written",
            gvk=self._kind.kind,
            key=str(policy.key),
            accepted=statuses["Accepted"],
            findings=statuses["Findings"],
        )

    def _failed(self, key: ObjectKey, error: SyncError) -> None:
        self._counted("failed")
        if self._troubles.get(key) != str(error):
            log.warning(
                "conditions_not_written", gvk=self._kind.kind, key=_named(key), error=str(error)
            )
        self._troubles[key] = str(error)
        self._report_state()

    def _report_state(self) -> None:
        key = min(self._troubles, default=None)
        self._note("ok" if key is None else f"{_named(key)}: {self._troubles[key]}")

    def _counted(self, outcome: Outcome) -> None:
        metrics.policy_conditions.labels(self._kind.kind, outcome).inc()


def _backoff() -> Backoff:
    return Backoff(longest=_LONGEST)


def _named(key: ObjectKey) -> str:
    return str(key) if key.name else key.namespace
