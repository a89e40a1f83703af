"""Groups scenarios with the same policies and data, so that one OPA decides each group.

Invariant: an error in the policies of one file stops no other file. A set of
policies is compiled once, however many files name it, and only a few OPAs run at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kube_sync.config import Settings
from kube_sync.errors import SyncError
from kube_sync.inspect.scenarios.policies import PolicyReader, PolicySet
from kube_sync.inspect.scenarios.results import FileResult
from kube_sync.inspect.scenarios.running import Runner, RunProgress, serving, skipped
from kube_sync.inspect.scenarios.scenario import Case, Scenario
from kube_sync.inspect.scenarios.strict_yaml import Problem
from kube_sync.inspect.survey.progress import Progress
from kube_sync.opa.analysis.result import Collection
from kube_sync.opa.scratch import ScratchOpa

_AT_ONCE: Final = 4  # concurrent sets of policies

SelectedCases = tuple[Scenario, Sequence[Case]]  # a file and its selected cases
Paths = tuple[str, ...]


@dataclass(slots=True)
class _Group:
    """Scenarios with the same policies and data."""

    policies: PolicySet
    scenarios: list[SelectedCases] = field(default_factory=list)


class GroupRunner:
    """Runs scenarios, and collects the results of each file."""

    def __init__(
        self,
        settings: Settings,
        places: Mapping[str, Collection],
        progress: Progress,
        *,
        fail_fast: bool = False,
    ) -> None:
        """Find the OPA binary. Raises Misconfigured."""
        self._settings = settings
        self._places = places
        self._progress = progress
        self._scratch = ScratchOpa.of(settings)
        self._policy_reader = PolicyReader(self._scratch, settings, places)
        self._results: dict[str, FileResult] = {}
        self._done = self._number = 0
        self._run_progress = RunProgress(self._reached, fail_fast)
        # With fail_fast the first failure is that of the first file.
        self._slots = asyncio.Semaphore(1 if fail_fast else _AT_ONCE)

    async def run(
        self, scenarios: Sequence[SelectedCases], instead: Paths = ()
    ) -> Mapping[str, FileResult]:
        """Return the results of each file; policies `instead` of all others must exist.

        Raises SyncError if they do not.
        """
        self._number = sum(len(cases) for _, cases in scenarios)
        with self._progress.during("compiling the policies"):
            only = {instead: await self._policy_reader.read(instead)} if instead else {}
            sets = only or await self._sets({scenario.policies for scenario, _ in scenarios})
        groups: dict[bytes, _Group] = {}
        for scenario, cases in scenarios:
            policies = sets[instead or scenario.policies]
            if isinstance(policies, SyncError):
                self._add_problems(scenario, policies)
            else:
                key = _encode([policies.modules, scenario.data])
                groups.setdefault(key, _Group(policies)).scenarios.append((scenario, cases))
        async with asyncio.TaskGroup() as tasks:
            for group in groups.values():
                tasks.create_task(self._run(group))
        return self._results

    async def _sets(self, wanted: Iterable[Paths]) -> dict[Paths, PolicySet | SyncError]:
        found: dict[Paths, PolicySet | SyncError] = {}

        async def read(paths: Paths) -> None:
            async with self._slots:
                try:
                    found[paths] = await self._policy_reader.read(paths)
                except SyncError as error:
                    found[paths] = error

        async with asyncio.TaskGroup() as tasks:
            for paths in sorted(wanted):
                tasks.create_task(read(paths))
        return found

    async def _run(self, group: _Group) -> None:
        async with self._slots:
            if self._run_progress.is_stopped:
                for scenario, cases in group.scenarios:
                    self._results[scenario.file] = FileResult(scenario.file, (), skipped(cases))
                return
            try:
                await self._decide(group)
            except SyncError as error:
                for scenario, _ in group.scenarios:
                    if scenario.file not in self._results:
                        self._add_problems(scenario, error)

    async def _decide(self, group: _Group) -> None:
        policies, data = group.policies, group.scenarios[0][0].data
        async with serving(self._scratch, policies, data, self._settings) as opa:
            runner = Runner(opa, policies, self._places, self._settings, self._run_progress)
            for scenario, cases in group.scenarios:
                found = await runner.run(scenario, cases)
                result = FileResult(scenario.file, (), found, policies.warnings)
                self._results[scenario.file] = result

    def _add_problems(self, scenario: Scenario, error: SyncError) -> None:
        lines = str(error).splitlines()
        problems = (Problem(scenario.file, scenario.row, "policies", line) for line in lines)
        self._results[scenario.file] = FileResult(scenario.file, tuple(problems))

    def _reached(self) -> None:
        self._done += 1
        self._progress.report(f"{self._done} of {self._number} cases …")


_encode: Final = msgspec.json.Encoder(order="sorted").encode
