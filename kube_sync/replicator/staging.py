"""Staged evaluation in one load of OPA: lanes are counted, and a canary may decide.

Invariant: while nothing is staged, none of this runs for an event or a decision. Only lanes in
`counting` are notified of writes, and objects are divided among sets of policies only while there
is a canary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from prometheus_client import Gauge

from kube_sync.decisions.canary import Canary, CanaryDecider
from kube_sync.decisions.classes import may_share_classes
from kube_sync.decisions.decision_reader import DecisionReader
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.tracker import Tracker
from kube_sync.guard import Inventory, Placements
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.opa.analysis.result import Reads, joined
from kube_sync.opa.client import OpaClient
from kube_sync.opa.lanes import Lane
from kube_sync.policies.reconciler import PolicyReconciler
from kube_sync.policies.staging.canaries import Counting
from kube_sync.policies.staging.lanes import Counted
from kube_sync.policies.staging.promotion import UNHEALTHY
from kube_sync.replicator.class_backfill import Widen
from kube_sync.replicator.failed_additions import FailedAdditions
from kube_sync.replicator.resources import Resources
from kube_sync.replicator.selfcheck import SelfCheck
from kube_sync.replicator.shadow import Shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The parts that evaluate the policies in force, in the same load."""

    opa: OpaClient
    instance: str
    hub: DecisionHub
    policies: PolicyReconciler
    resources: Resources
    placements: Placements
    targets: Callable[[], Mapping[str, GroupVersionResource]]
    inventory: Callable[[], Inventory | None]
    evaluator: PolicySetEvaluator
    read: DecisionReader
    tracker: Tracker
    check: SelfCheck
    in_force: Callable[[str, Mapping[str, str]], None]  # receives the modules of a canary too
    failed: FailedAdditions


class StagedEvaluation:
    """The shadow lane, which is only counted, and the canary lane, which may decide too."""

    def __init__(self, core: Core) -> None:
        self._core = core
        read = DecisionReader(core.placements.unreadable, self._canary_modules)
        self._decider = CanaryDecider(core.tracker, core.evaluator, self._lane("canary", read))
        self._shadow = self._counted(
            self._lane("shadow", DecisionReader(core.placements.unreadable)), core.policies.count
        )
        self._counter = self._counted(
            self._lane("canary", read),
            self.count_canary,
            in_force=Evaluator(core.opa, core.instance, read=core.read),
            gauge=metrics.canary_differences,
        )
        self.counting: tuple[Shadow, ...] = ()  # those to notify of writes
        self._canary_counts: Counted | None = None

    async def run(self) -> None:
        """Count staged lanes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._shadow.run())
            group.create_task(self._counter.run())

    def lane_changed(self, reads: Reads | None) -> None:
        """Handle a new shadow lane in OPA that reads this, None: there is none."""
        # First: until then classes do not distinguish what the lane reads.
        self._core.resources.widen("shadow", _for_counting(reads))
        self._shadow.staged(reads)
        self._note()

    def counting_changed(self, counting: Counting | None) -> None:
        """Handle a change of the canary lane to count; None: there is none."""
        reads = None if counting is None else counting.reads
        side, of = (None, None) if counting is None else (counting.side, counting.of)
        self._core.resources.widen("counted", _for_counting(reads))
        self._counter.staged(reads, side, of)
        self._note()

    def canary_changing(self) -> None:
        """Prepare for a change of the canary in OPA."""
        self._decider.changing()

    def canary_changed(self, canary: Canary | None) -> None:
        """Handle a change of the canary that decides on its side, None: there is none."""
        core, widen = self._core, None
        if canary is not None:
            core.in_force(canary.policy, canary.modules)
            widen = partial(joined, other=canary.reads)
        core.resources.widen("canary", widen)
        self._decider.changed(canary)
        core.check.canary_changed(canary)

    def recount(self) -> None:
        """Report the counts of the canary again: more objects, or fewer, were not healthy."""
        if self._canary_counts is not None:
            self.count_canary(self._canary_counts)

    def count_canary(self, counted: Counted | None) -> None:
        """Report what the canary changes, with the objects that were not healthy."""
        self._canary_counts, canary = counted, self._core.policies.canary
        if counted is not None and canary is not None:
            failed = self._core.failed.count(canary.policy, canary.side)
            if failed:
                counted = replace(counted, differences={**counted.differences, UNHEALTHY: failed})
        self._core.policies.count_canary(counted)

    def _note(self) -> None:
        self.counting = tuple(one for one in (self._shadow, self._counter) if one.counts)

    def _canary_modules(self) -> Mapping[str, str]:
        canary = self._core.policies.canary
        return {} if canary is None else canary.modules

    def _lane(self, lane: Lane, read: DecisionReader) -> Evaluator:
        return Evaluator(self._core.opa, self._core.instance, lane=lane, read=read)

    def _counted(
        self,
        lane: Evaluator,
        on_count: Callable[[Counted | None], None],
        *,
        in_force: PolicySetEvaluator | None = None,
        gauge: Gauge = metrics.shadow_differences,
    ) -> Shadow:
        core = self._core
        return Shadow(
            lane,
            core.hub,
            core.targets,
            lambda: core.resources.mirrors,
            core.placements,
            on_count,
            in_force=in_force,
            gauge=gauge,
            inventory=core.inventory,
        )


def _for_counting(staged: Reads | None) -> Widen | None:
    """Return how to classify objects also by what a lane reads, None if that is not possible.

    If the lane reads whole objects, it is evaluated for each object instead.
    """
    if staged is None or not may_share_classes(staged):
        return None
    return lambda reads: replace(reads, input=joined(reads, staged).input)
