"""Reports the outcome of policies to their authors: statuses of ConfigMaps and PlacementPolicies.

Invariant: a status is for people; it neither influences nor delays what is in force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, get_args

import structlog

from kube_sync.config import WarningCode
from kube_sync.errors import SyncError
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import OpaError
from kube_sync.opa.scratch import Cause
from kube_sync.policies.configmap_status import account, not_put
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.linter import marked
from kube_sync.policies.loaded_policies import Failures
from kube_sync.policies.placementpolicy_status import (
    CandidateOutcome,
    Policy,
    PolicyOutcome,
    Told,
    nobody,
)
from kube_sync.policies.policy_api import Delivered
from kube_sync.policies.policywarning import PolicyWarning, Warnings, without
from kube_sync.policies.quarantine import Quarantine, quarantined
from kube_sync.policies.set_compiler import Choice, Versions
from kube_sync.policies.staging.lane_builder import unknown

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_FAULT_CHARACTERS: Final = 300

Annotate = Callable[[PolicyMap, str], Awaitable[None]]
Linted = Callable[[str, str], Sequence[PolicyWarning]]
Failed = Callable[[Mapping[ObjectKey, Policy], Mapping[ObjectKey, Iterable[Cause]]], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one step of the PolicyReconciler."""

    choice: Choice
    in_force: Delivered
    good: Versions
    withheld: Warnings  # on what the modules in force read


class Reporter:
    """Writes the outcome of each policy into its status."""

    def __init__(
        self,
        annotate: Annotate,
        quarantine: Quarantine,
        *,
        at_fault: Callable[[str | None], None] = lambda _: None,
        tell: Callable[[Told], None] = nobody,
        failed: Failed = lambda _policies, _failures: None,
        linted: Linted = lambda _module, _source: (),
        off: Iterable[str] = (),
    ) -> None:
        """`annotate` writes the status of a ConfigMap, and may raise SyncError.

        `at_fault` receives which policies are not in force in their newest version, None: all are;
        `tell` the outcome of each PlacementPolicy, `failed` why policies fail. `linted` returns
        the linter's warnings on a module by id and source; no warnings have the codes in `off`.
        """
        self._annotate = annotate
        self._quarantine = quarantine
        self._at_fault = at_fault
        self._tell = tell
        self._failed = failed
        self._decided: Warnings = {}  # warnings on decisions
        self._linted = linted
        self._told: dict[ObjectKey, tuple[PolicyWarning, ...]] = {}
        self._off = frozenset(off)

    @property
    def warned(self) -> dict[str, list[str]]:
        """The warnings of the last report, each a line, by the policy's name."""
        return {str(key): [one.line() for one in found] for key, found in self._told.items()}

    def warn(self, warnings: Warnings) -> bool:
        """Set warnings on decisions; return whether they are new."""
        before, self._decided = self._decided, warnings
        return warnings != before

    def faults(self, epoch: Epoch, policies: Mapping[ObjectKey, Policy], choice: Choice) -> None:
        """Report at once which policies fail, whatever becomes of the others."""
        self._at_fault(_faults({**choice.failures, **unknown(epoch.staged)}))
        metrics.policies_rejected.set(len(choice.failures))
        metrics.policies_quarantined.set(quarantined(choice.failures))
        doubts = {key: self._quarantine.doubts(found.modules) for key, found in policies.items()}
        self._failed(policies, {**doubts, **choice.failures})

    async def report(
        self,
        epoch: Epoch,
        policies: Mapping[ObjectKey, Policy],
        result: Result,
        staged: Iterable[tuple[Policy, str]],
    ) -> None:
        """Report the outcome of each policy; `staged` are the status texts of staged ones."""
        choice, in_force = result.choice, result.in_force
        metrics.policies_rejected.set(len(choice.failures.keys() | _not_taken(choice, in_force)))
        told = {key: self._warnings(one, result.withheld) for key, one in policies.items()}
        self._told = {key: found for key, found in told.items() if found}
        _count(chain.from_iterable(told.values()))
        for policy in policies.values():
            if isinstance(policy, PolicyMap):
                await self._write(policy, self._status(policy, result))
        said: dict[ObjectKey, str] = {}
        for policy, status in [*staged]:
            if isinstance(policy, PolicyMap):
                await self._write(policy, status)
            else:
                said[policy.key] = status
        # One that is new or has changed since is reported in the next step.
        still = [p for objects in epoch.objects for p in objects if policies.get(p.key) == p]
        outcomes = ((policy, self._outcome(policy, result)) for policy in still)
        self._tell([*outcomes, *_tried(epoch, said)])

    def _status(self, policy: PolicyMap, result: Result) -> str:
        refused = not_put(_of(policy, result.in_force))
        causes = [*result.choice.failures.get(policy.key, ()), *refused]
        rivals = result.choice.conflicts.get(policy.key, ())
        held, warnings = bool(result.good.get(policy.key)), self._told.get(policy.key, ())
        return account(causes, rivals, in_force=held, warnings=warnings)

    def _outcome(self, policy: PlacementPolicy, result: Result) -> PolicyOutcome:
        return PolicyOutcome(
            tuple(result.choice.failures.get(policy.key, ())),
            tuple(not_put(_of(policy, result.in_force))),
            frozenset(result.choice.conflicts.get(policy.key, ())),
            bool(result.good.get(policy.key)),
            self._told.get(policy.key, ()),
        )

    async def _write(self, policy: PolicyMap, status: str) -> None:
        if policy.status == status:
            return
        try:
            await self._annotate(policy, status)
        except SyncError as error:
            # A conflict means that the ConfigMap changed: its next version gets its own status.
            log.warning("policy_status_not_written", policy=str(policy.key), error=str(error))

    def _warnings(self, policy: Policy, withheld: Warnings) -> tuple[PolicyWarning, ...]:
        doubts = (
            PolicyWarning("unexplained", "", 0, cause["message"])
            for cause in self._quarantine.doubts(policy.modules)
        )
        found = (
            warning
            for i, source in sorted(policy.modules.items())
            for warning in (
                *self._linted(i, source),
                *withheld.get(i, ()),
                *self._decided.get(i, ()),
            )
        )
        return tuple(without((*marked(policy.marks), *found, *doubts), self._off))


def _count(warnings: Iterable[PolicyWarning]) -> None:
    number = Counter(warning.code for warning in warnings)
    for code in get_args(WarningCode):
        metrics.policy_warnings.labels(code).set(number[code])


def _tried(epoch: Epoch, said: Mapping[ObjectKey, str]) -> Told:
    for policy in (policy for objects in epoch.objects for policy in objects.staged):
        yield policy, CandidateOutcome(said[policy.key]) if policy.key in said else None


def _faults(failures: Mapping[ObjectKey, Sequence[Cause]]) -> str | None:
    if not failures:
        return None
    first = min(failures, key=str)
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    error = str(OpaError(errors=list(failures[first])))
    return f"policy {called(first)}: not in force as it is: {error:.{_FAULT_CHARACTERS}}{more}"


def _not_taken(choice: Choice, in_force: Delivered) -> set[ObjectKey]:
    failed = in_force.failures.keys()
    return {key for key, modules in choice.modules.items() if modules.keys() & failed}


def _of(policy: Policy, in_force: Delivered) -> Failures:
    return {i: error for i, error in in_force.failures.items() if i in policy.modules}
