"""What came of all cases, as a value: what is printed, in whichever form, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kube_sync.decisions.evaluator import Outcome
from kube_sync.inspect.scenarios.checking import Problem
from kube_sync.inspect.scenarios.comparing import Difference
from kube_sync.inspect.scenarios.placed import Placed
from kube_sync.inspect.scenarios.scenario import Case

PASSED, FAILED, BROKEN = 0, 1, 3  # exit statuses

Verdict = Literal["passed", "failed", "broken", "skipped"]
VERDICTS: Final[tuple[Verdict, ...]] = ("passed", "failed", "broken", "skipped")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that the decision went through, in the file that a person knows."""

    file: str
    row: int
    name: str
    text: str
    applied: bool


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case; `seconds` were measured, and are 0 of one that was not run."""

    case: Case
    verdict: Verdict
    seconds: float = 0.0
    outcome: Outcome | None = None
    placed: Placed | None = None  # None where nothing would be written
    differences: tuple[Difference, ...] = ()
    rules: tuple[Rule, ...] = ()  # of one that failed, as far as they were asked for
    why: str = ""  # it was broken or skipped


@dataclass(frozen=True, slots=True)
class FileResult:
    """What came of one file: what is wrong with it, or its cases."""

    file: str
    problems: tuple[Problem, ...] = ()
    cases: tuple[CaseResult, ...] = ()

    @property
    def seconds(self) -> float:
        """How long its cases took."""
        return sum(tried.seconds for tried in self.cases)

    def count(self, verdict: Verdict) -> int:
        """Return how many cases came to this."""
        return sum(tried.verdict == verdict for tried in self.cases)


@dataclass(frozen=True, slots=True)
class Run:
    """All files, in the order in which they are printed; `left_out` cases were not asked for."""

    files: Sequence[FileResult]
    seconds: float
    left_out: int = 0

    @property
    def broken(self) -> int:
        """How many files have something wrong with them."""
        return sum(bool(tested.problems) for tested in self.files)

    def count(self, verdict: Verdict) -> int:
        """Return how many cases came to this."""
        return sum(tested.count(verdict) for tested in self.files)

    @property
    def status(self) -> int:
        """The exit status of the command."""
        if self.broken or self.count("broken"):
            return BROKEN
        return FAILED if self.count("failed") else PASSED
