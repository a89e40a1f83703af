"""The rules by which a report for code scanning names its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["error", "warning", "note"]

NOT_RUN: Final = "not-run"  # the command had no answer


@dataclass(frozen=True, slots=True)
class Rule:
    """What findings of one kind mean, and how bad they are by default."""

    level: Level
    text: str
    page: str  # of the documentation


RULES: Final[Mapping[str, Rule]] = {
    NOT_RUN: Rule("error", "The command could not be run.", "commands.md"),
    "test/invalid": Rule(
        "error", "A scenario, or a policy that it names, cannot be used.", "testing-policies.md"
    ),
    "test/failed": Rule(
        "error", "A workload is not placed as its scenario expects.", "testing-policies.md"
    ),
    "test/broken": Rule(
        "error", "OPA has no usable decision in a case of a scenario.", "testing-policies.md"
    ),
    "plan/failed": Rule("error", "The evaluation of workloads would fail.", "plan.md"),
    "plan/refused": Rule("error", "The policy would refuse workloads.", "plan.md"),
    "plan/undecided": Rule("error", "Workloads would have no decision any more.", "plan.md"),
    "plan/nowhere": Rule("error", "Workloads would run on no cluster.", "plan.md"),
    "plan/moves": Rule("warning", "Workloads would leave clusters.", "plan.md"),
    "plan/adds": Rule("note", "Workloads would run on additional clusters.", "plan.md"),
    "plan/changes": Rule("note", "Other annotations of workloads would change.", "plan.md"),
    "plan/brakes": Rule("note", "The brakes hold moves, or limit their rate.", "plan.md"),
    "plan/note": Rule("note", "The plan cannot know this.", "plan.md"),
    "analyze/everything": Rule(
        "warning", "The policies cannot be analysed, so everything counts as read.", "analysis.md"
    ),
    "analyze/whole": Rule("error", "More fields are read whole than allowed.", "analysis.md"),
}
_WARNING: Final = "policy/"  # and the code of a warning on a policy


def warning_rule(code: str) -> str:
    """Return the rule of a warning on a policy with this code."""
    return _WARNING + code


def rule_of(name: str) -> Rule:
    """Return a rule by its name. Raises KeyError for one that does not exist."""
    if name.startswith(_WARNING):
        code = name.removeprefix(_WARNING)
        return Rule("warning", f"Warning on a policy: {code}.", "policy-warnings.md")
    return RULES[name]
