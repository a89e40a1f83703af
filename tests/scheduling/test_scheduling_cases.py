"""The worked cases of the design proposal, each with the line of it that says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scheduling.engine import SchedulingOpa, kubernetes_of, request_for
from tests.scheduling.patching import ABSENT, patched, value_at

CASES = [
    case
    for case in json.loads(
        (Path(__file__).resolve().parents[1] / "cases/policy_cases.json").read_text("utf-8")
    )
    if case["system"] == "scheduling"
]


def ordered(items: Any) -> list[str]:
    """Return the items in an order that does not depend on theirs."""
    return sorted(json.dumps(item, sort_keys=True) for item in items)


def made_of(case: Any, answer: Any) -> Any:
    """Return the object as it would be stored."""
    return patched(case["object"], answer["patch"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_case_is_decided_as_the_proposal_says(scheduling_opa: SchedulingOpa, case: Any) -> None:
    expected = case["expected"]
    rbac = case["rbac"] or {}
    scheduling_opa.load(
        kubernetes_of(case["policies"] or (), rbac), {"merge_option": case["merge_option"]}
    )
    request = request_for(case["object"], case["operation"], case["user"], case.get("old_object"))
    answer = scheduling_opa.decision(request)
    made = made_of(case, answer)
    assert answer["allowed"] == expected["allowed"], answer
    for part in expected.get("reasons_contain", ()):
        assert any(part.lower() in reason.lower() for reason in answer["reasons"]), answer
    for pointer, value in expected.get("mutated", {}).items():
        assert value_at(made, pointer) == value
    for pointer, values in expected.get("mutated_unordered", {}).items():
        assert ordered(value_at(made, pointer)) == ordered(values)
    for pointer, values in expected.get("mutated_one_of", {}).items():
        assert value_at(made, pointer) in values
    for pointer in expected.get("absent", ()):
        assert value_at(made, pointer) is ABSENT
    if expected.get("unmutated"):
        assert made == case["object"]
    if "merged_policy_spec" in expected:
        assert scheduling_opa.merged(request) == expected["merged_policy_spec"]


def test_there_are_cases() -> None:
    assert len(CASES) > 40
