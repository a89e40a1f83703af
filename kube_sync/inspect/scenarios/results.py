"""The results of all cases as values: the content of every format, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.inspect.scenarios.comparing import Difference
from kube_sync.inspect.scenarios.placement import Placed
from kube_sync.inspect.scenarios.scenario import Case
from kube_sync.inspect.scenarios.strict_yaml import Problem
from kube_sync.policies.policywarning import PolicyWarning

PASSED, FAILED, BROKEN = 0, 1, 3  # exit statuses

Verdict = Literal["passed", "failed", "broken", "skipped"]
VERDICTS: Final[tuple[Verdict, ...]] = ("passed", "failed", "broken", "skipped")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case; `seconds` were measured, and are 0 of one that was not run."""

    case: Case
    verdict: Verdict
    seconds: float = 0.0
    outcome: Outcome | None = None
    placed: Placed | None = None  # None if nothing would be written
    differences: tuple[Difference, ...] = ()
    # Of a failed case, as far as they were determined; in files by the user's names.
    rules: tuple[Rule, ...] = ()
    why: str = ""  # it is broken or was skipped


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of one file: its problems, or its cases."""

    file: str
    problems: tuple[Problem, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    warnings: tuple[PolicyWarning, ...] = ()  # on the policies that decided

    @property
    def seconds(self) -> float:
        """How long its cases took."""
        return sum(result.seconds for result in self.cases)

    def count(self, verdict: Verdict) -> int:
        """Return the number of cases with this verdict."""
        return sum(result.verdict == verdict for result in self.cases)


@dataclass(frozen=True, slots=True)
class Run:
    """All files, in the order of output; `left_out` cases were not selected."""

    files: Sequence[FileResult]
    seconds: float
    left_out: int = 0

    @property
    def broken(self) -> int:
        """How many files have problems."""
        return sum(bool(file_result.problems) for file_result in self.files)

    def count(self, verdict: Verdict) -> int:
        """Return the number of cases with this verdict."""
        return sum(file_result.count(verdict) for file_result in self.files)

    @property
    def status(self) -> int:
        """The exit status of the command."""
        if self.broken or self.count("broken"):
            return BROKEN
        return FAILED if self.count("failed") else PASSED
