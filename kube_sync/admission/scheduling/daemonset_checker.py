"""Reports the DaemonSets of a cluster that its SchedulingPolicies deny, as findings on policies.

A DaemonSet is checked when it is written. One that is older than the policy, or whose account may
use less by now, gets no new pods, and its author no message: so the policies that deny it name it.

Invariant: whether a policy is accepted never depends on this; if OPA cannot answer, the last
findings are kept. All DaemonSets are checked at once, for all policies within some seconds; and OPA
spends at most a twentieth of its time on it, however many there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from kube_sync.errors import NO_JSON, SyncError
from kube_sync.opa.client import QueryApi
from kube_sync.policykinds.condition_writer import PolicyChecker
from kube_sync.policykinds.policy_cache import HeldPolicy
from kube_sync.policykinds.reports import Report

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FINDINGS: Final = "kube_sync/scheduling/standing/findings"
_SECONDS: Final = 5.0  # a result is used for at least this long
_REST: Final = 20.0  # times as long as the query took

_answers = msgspec.json.Decoder(dict[str, list[str]])


class DaemonSetChecker:
    """Checks policies together with the DaemonSets of their cluster."""

    def __init__(
        self,
        checker: PolicyChecker,
        engine: QueryApi,
        exempt_namespaces: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ignore DaemonSets in `exempt_namespaces`."""
        self._checker = checker
        self._engine = engine
        self._body = msgspec.json.encode({"input": {"exempt_namespaces": exempt_namespaces}})
        self._clock = clock
        self._known: Mapping[str, Sequence[str]] = {}
        self._until = 0.0

    async def ready(self, namespace: str, policies: Sequence[HeldPolicy]) -> None:
        """Prepare for `report_on`. Raises SyncError."""
        await self._checker.ready(namespace, policies)

    async def report_on(self, policy: HeldPolicy) -> Report:
        """Return the report on a policy. Raises SyncError."""
        report = await self._checker.report_on(policy)
        if report.problems:
            return report
        if self._clock() >= self._until:
            await self._refresh()
        named = self._known.get(policy.key.name, ())
        return Report(report.problems, (*report.findings, *named))

    async def _refresh(self) -> None:
        began = self._clock()
        try:
            answer = await self._engine.query(FINDINGS, self._body)
            self._known = _answers.decode(answer or b"{}")
        except (SyncError, *NO_JSON) as error:
            log.warning("daemonsets_not_judged", error=str(error))
        now = self._clock()
        self._until = now + max(_SECONDS, _REST * (now - began))
