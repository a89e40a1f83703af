"""Reports as conditions: what they say, and when nothing has to be written."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.kube.conditions import are_right
from kube_sync.policykinds.conditions import Exempt, Unjudged, conditions
from kube_sync.policykinds.reports import Report

EARLY = "2026-01-01T12:00:00Z"
LATE = "2026-01-02T12:00:00Z"
FINE = Report((), ())
WRONG = Report(("spec.x: unknown", "spec.y: empty"), ("terms are ORed",))


def of(
    report: Report | Unjudged | Exempt, found: Any = (), *, generation: int = 1, now: str = EARLY
) -> Any:
    return conditions(report, generation, found, now)


def test_policy_without_problems_is_accepted() -> None:
    accepted, findings, *_ = of(FINE, generation=3)
    assert accepted == {
        "type": "Accepted",
        "status": "True",
        "reason": "Valid",
        "message": "decisions use this policy",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    assert (findings["type"], findings["status"], findings["reason"]) == (
        "Findings",
        "False",
        "Clear",
    )


def test_problems_and_findings_are_told_line_by_line() -> None:
    accepted, findings, *_ = of(WRONG)
    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert accepted["message"] == "spec.x: unknown\nspec.y: empty"
    assert (findings["status"], findings["reason"]) == ("True", "Questionable")
    assert findings["message"] == "terms are ORed"


def test_policy_that_applies_to_nothing_where_it_is_says_so_instead_of_accepted() -> None:
    accepted, findings, *_ = of(Exempt("the namespace x is exempt", FINE))
    assert (accepted["status"], accepted["reason"]) == ("False", "NamespaceExempt")
    message = "the namespace x is exempt, and this policy applies to nothing"
    assert accepted["message"] == message
    assert (findings["status"], findings["reason"]) == ("False", "Clear")
    accepted, findings, *_ = of(Exempt("the namespace x is exempt", WRONG))
    assert accepted["message"] == f"{message}\nspec.x: unknown\nspec.y: empty"
    assert findings["status"] == "True"


def test_time_stays_as_long_as_the_status_does() -> None:
    first = of(WRONG)
    again = of(Report(("another",), ()), first, generation=2, now=LATE)
    assert again[0]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert again[1]["lastTransitionTime"] == "2026-01-02T12:00:00Z"
    assert again[0]["message"] == "another"


def test_condition_without_a_time_gets_one() -> None:
    found = [{"type": "Accepted", "status": "True"}]
    assert of(FINE, found)[0]["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_same_report_later_is_right_already() -> None:
    first = of(WRONG)
    assert are_right(first, of(WRONG, first, now=LATE))
    assert are_right([*reversed(first), {"type": "Other"}], of(WRONG, first, now=LATE))


@pytest.mark.parametrize(
    "change",
    [{"message": "x"}, {"reason": "x"}, {"status": "Unknown"}, {"observedGeneration": 0}],
    ids=str,
)
def test_condition_that_somebody_changed_is_not_right(change: dict[str, Any]) -> None:
    first = of(WRONG)
    found = [first[0] | change, *first[1:]]
    assert not are_right(found, of(WRONG, found, now=LATE))
    assert not are_right(first[:1], first)


def test_message_is_no_longer_than_the_api_server_takes() -> None:
    accepted, *_ = of(Report(("x" * 40_000,), ()))
    assert len(accepted["message"]) == 32768
    assert accepted["message"].endswith(" …")
    exact, *_ = of(Report(("x" * 32768,), ()))
    assert exact["message"] == "x" * 32768


def test_what_cannot_be_judged_is_neither_accepted_nor_refused() -> None:
    unknown = of(Unjudged("division by zero"), of(WRONG), generation=2, now=LATE)
    assert [(c["type"], c["status"], c["reason"]) for c in unknown[:2]] == [
        ("Accepted", "Unknown", "NotJudged"),
        ("Findings", "Unknown", "NotJudged"),
    ]
    assert unknown[0]["message"] == "it cannot be judged: division by zero"
    assert {c["lastTransitionTime"] for c in unknown[:2]} == {LATE}


@pytest.mark.parametrize(
    ("report", "phase", "reason"),
    [
        (FINE, "Ready", "Valid"),
        (Report((), ("terms are ORed",)), "Ready", "Valid"),
        (WRONG, "Stalled", "Invalid"),
        (Exempt("x is exempt", FINE), "Stalled", "NamespaceExempt"),
        (Unjudged("division by zero"), "Stalled", "NotJudged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_accepted_is_ready_and_anything_else_needs_a_person(
    report: Report, phase: str, reason: str
) -> None:
    accepted, _, *standard = of(report)
    assert [one["type"] for one in standard] == ["Ready", "Reconciling", "Stalled"]
    assert [one["type"] for one in standard if one["status"] == "True"] == [phase]
    assert {one["reason"] for one in standard} == {reason}
    assert standard[0]["message"] == accepted["message"]
