"""What is decided beside what is in force, in one load of OPA: lanes are counted, a canary decides.

Keeps true: as long as nothing is staged, nothing of this runs for an event or a decision: who is
told of writes is in `counting` while there is a lane to count, and objects are divided among sets
of policies while there is a canary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from prometheus_client import Gauge

from kube_sync.decisions.canary import Canary, CanaryDecider
from kube_sync.decisions.classes import shares_classes
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.reading import DecisionReader
from kube_sync.decisions.tracker import Tracker
from kube_sync.guard import Inventory, Placements
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.opa.analysis.reads import Reads, joined
from kube_sync.opa.client import OpaClient
from kube_sync.opa.lanes import Lane
from kube_sync.policies.reconciler import PolicyReconciler
from kube_sync.policies.staging.canaries import Counting
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.class_backfill import Widen
from kube_sync.replicator.resources import Resources
from kube_sync.replicator.selfcheck import SelfCheck
from kube_sync.replicator.shadow import Shadow


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What decides by what is in force, in the same load."""

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
    in_force: Callable[[str, Mapping[str, str]], None]  # told what a canary decides by, too


class StagedEvaluation:
    """The lane that is shadowed, and the canary's, which is counted and may decide."""

    def __init__(self, core: Core) -> None:
        self._core = core
        read = DecisionReader(core.placements.unreadable, self._canary_modules)
        self._decider = CanaryDecider(core.tracker, core.evaluator, self._lane("canary", read))
        self._shadow = self._counted(
            self._lane("shadow", DecisionReader(core.placements.unreadable)), core.policies.count
        )
        self._counter = self._counted(
            self._lane("canary", read),
            core.policies.count_canary,
            in_force=Evaluator(core.opa, core.instance, read=core.read),
            gauge=metrics.canary_differences,
        )
        self.counting: tuple[Shadow, ...] = ()  # those that are to be told of writes

    async def run(self) -> None:
        """Count what is staged, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._shadow.run())
            group.create_task(self._counter.run())

    def lane_changed(self, reads: Reads | None) -> None:
        """Take note that OPA holds a lane that reads this, or none any more, or another one."""
        # First: until then classes say nothing of the lane.
        self._core.resources.widen("shadow", _for_counting(reads))
        self._shadow.staged(reads)
        self._note()

    def counting_changed(self, counting: Counting | None) -> None:
        """Take note what OPA is to be asked for a canary's sake; None: nothing any more."""
        reads = None if counting is None else counting.reads
        side, of = (None, None) if counting is None else (counting.side, counting.of)
        self._core.resources.widen("counted", _for_counting(reads))
        self._counter.staged(reads, side, of)
        self._note()

    def canary_changing(self) -> None:
        """Take note that OPA may hold another canary from now on."""
        self._decider.changing()

    def canary_changed(self, canary: Canary | None) -> None:
        """Take note what decides on its side, None: nothing."""
        core, widen = self._core, None
        if canary is not None:
            core.in_force(canary.policy, canary.modules)
            widen = partial(joined, other=canary.reads)
        core.resources.widen("canary", widen)
        self._decider.changed(canary)
        core.check.canary_changed(canary)

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
        tell: Callable[[Counted | None], None],
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
            tell,
            in_force=in_force,
            gauge=gauge,
            inventory=core.inventory,
        )


def _for_counting(staged: Reads | None) -> Widen | None:
    """Return what tells objects apart by what a lane reads of them, None where nothing does.

    What it reads of all of an object tells nothing apart: who asks the lane asks for each.
    """
    if staged is None or not shares_classes(staged):
        return None
    return lambda reads: replace(reads, input=joined(reads, staged).input)
