"""Runs cases one after another, in an OPA that is shared by those with the same policies.

Invariant: the query is the replicator's own, to an OPA that holds only the case's world; a case
that OPA cannot answer is broken, and the others run. Between two cases only the collections that
differ are written again, so that a case costs milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from kube_sync.config import Settings
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import SyncError, Terminal
from kube_sync.guard import Placements
from kube_sync.inspect.plan.offline_opa import OfflineOpa, Scratch, World, serving_world
from kube_sync.inspect.plan.snapshot import Bodies, Snapshot, projected
from kube_sync.inspect.scenarios.comparing import differences
from kube_sync.inspect.scenarios.placement import Placed, read_placement
from kube_sync.inspect.scenarios.policies import PolicySet
from kube_sync.inspect.scenarios.results import CaseResult
from kube_sync.inspect.scenarios.scenario import Case, Scenario
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Collection

MOST: Final = 20  # failures that are explained: each takes as long as thirty decisions
_RULES: Final = 5  # of one failure


@dataclass(slots=True)
class RunProgress:
    """The progress that all OPAs of a run share, and whether the run is to stop."""

    reached: Callable[[], None]
    fail_fast: bool = False
    failed: bool = False
    explained: int = 0
    clock: Callable[[], float] = field(default=time.monotonic)

    @property
    def is_stopped(self) -> bool:
        """Whether no further case is to be run."""
        return self.fail_fast and self.failed


class Runner:
    """Runs the cases of scenarios that have the same policies and data."""

    def __init__(
        self,
        opa: OfflineOpa,
        policies: PolicySet,
        places: Mapping[str, Collection],
        settings: Settings,
        progress: RunProgress,
    ) -> None:
        self._opa = opa
        self._policies = policies
        self._places = places
        self._settings = settings
        self._progress = progress
        self._placements = Placements(settings.remediate.guard.placements)
        self._stored: dict[str, Mapping[ObjectKey, bytes]] = {}

    async def run(self, scenario: Scenario, cases: Iterable[Case]) -> tuple[CaseResult, ...]:
        """Return the results of these cases of a scenario. Raises Terminal for invalid objects."""
        base = self._projected(scenario.objects)
        return tuple([await self._run(case, base) for case in cases])

    async def _run(self, case: Case, base: Bodies) -> CaseResult:
        if self._progress.is_stopped:
            return skipped([case])[0]
        started = self._progress.clock()
        try:
            result = await self._decide(case, base, started)
        except SyncError as error:
            self._stored.clear()  # the content of OPA is unknown
            result = CaseResult(case, "broken", self._progress.clock() - started, why=str(error))
        self._progress.failed |= result.verdict != "passed"
        self._progress.reached()
        return result

    async def _decide(self, case: Case, base: Bodies, started: float) -> CaseResult:
        bodies = self._bodies_of(case, base)
        await self._store(bodies)
        outcomes = await self._opa.evaluate(case.resource, [case.key])
        seconds = self._progress.clock() - started
        if (outcome := outcomes.get(case.key)) is None:
            return CaseResult(case, "broken", seconds, why=f"OPA does not hold {case.key}")
        if outcome.failure is not None:
            outcome = replace(outcome, failure=self._policies.with_file_names(outcome.failure))
        found = differences(case.expected, outcome, self._placements, case.fleet)
        placed = self._placed(case, outcome)
        if not found:
            return CaseResult(case, "passed", seconds, outcome, placed)
        rules = await self._rules(bodies[case.resource][case.key])
        return CaseResult(case, "failed", seconds, outcome, placed, found, rules)

    def _placed(self, case: Case, outcome: Outcome) -> Placed | None:
        decision = outcome.decision
        if decision is None or decision.errors:
            return None
        return read_placement(decision, self._placements, case.fleet, case.expected.placement)

    def _bodies_of(self, case: Case, base: Bodies) -> dict[str, Mapping[ObjectKey, bytes]]:
        present = {
            name: {key: item for key, item in changed.items() if item is not None}
            for name, changed in case.changes.items()
        }
        changed = self._projected(present)
        return {
            name: {
                key: body
                for key, body in {**bodies, **changed[name]}.items()
                if case.changes.get(name, {}).get(key, body) is not None
            }
            if name in case.changes
            else bodies
            for name, bodies in base.items()
        }

    async def _store(self, bodies: Bodies) -> None:
        for name, objects in bodies.items():
            if self._stored.get(name) != objects:
                self._stored.pop(name, None)
                await self._opa.put_collection(name, objects)
                self._stored[name] = objects

    async def _rules(self, body: bytes) -> tuple[Rule, ...]:
        if self._progress.explained >= MOST:
            return ()
        self._progress.explained += 1
        found = await self._opa.explain(as_requested(body))
        return responsible(found.rules, self._policies.file_names)

    def _projected(self, objects: Mapping[str, Mapping[ObjectKey, Any]]) -> Bodies:
        return projected(self._settings, Snapshot(self._places, objects))


def skipped(cases: Iterable[Case]) -> tuple[CaseResult, ...]:
    """Return the results of cases that are not run any more."""
    return tuple(
        CaseResult(case, "skipped", why="another did not pass (--fail-fast)") for case in cases
    )


@asynccontextmanager
async def serving(
    scratch: Scratch, policies: PolicySet, data: Mapping[str, Any], settings: Settings
) -> AsyncGenerator[OfflineOpa]:
    """Yield an OPA with these policies, this data, and no object. Raises Retriable, Terminal."""
    data_documents = {ObjectKey("", key): msgspec.json.encode(value) for key, value in data.items()}
    world = World("scenarios", policies.modules, {}, data_documents, policies.file_names)
    async with AsyncExitStack() as stack:
        try:
            opa = await stack.enter_async_context(serving_world(scratch, settings, world))
        except SyncError as error:
            if not (overlapping := policies.overlapping(data)):
                raise
            msg = (
                f"OPA does not start: the scenario's `data` lies where a policy does: {overlapping}"
            )
            raise Terminal(msg) from error
        yield opa


def responsible(rules: Sequence[Rule], names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules that made a decision, then those that did not apply."""
    own = [rule for rule in rules if not rule.name.rpartition(".")[2].startswith("_")]
    applied = [rule for rule in own if rule.applied]
    others = [rule for rule in own if not rule.applied]
    return tuple(
        msgspec.structs.replace(rule, file=names.get(rule.file, rule.file))
        for rule in [*applied, *others][:_RULES]
    )
