from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.opa.inspection import Finding, forbidden
from kube_sync.opa.scratch import Cause
from kube_sync.policies.configmap_status import account
from kube_sync.policies.policywarning import PolicyWarning

RIVAL = ObjectKey("ns", "other")
LONG = PolicyWarning("unknown_rule", "f", 2, "w" * 10**6, "s" * 10**6)
CAUSE: Cause = {
    "code": "rego_parse_error",
    "message": "unexpected",
    "location": {"file": "f", "row": 2},
}


def status(*causes: Cause, rivals: tuple[ObjectKey, ...] = (), in_force: bool = True) -> Any:
    return json.loads(account(causes, rivals, in_force=in_force))


def test_policy_without_causes_is_ok_in_the_words_of_kube_mgmt() -> None:
    assert account([], (), in_force=True) == '{"status":"ok"}'


def test_policy_in_force_that_another_conflicts_with_names_it() -> None:
    assert status(rivals=(RIVAL,)) == {"status": "ok", "conflicts": ["ns/other"]}


def test_compiler_errors_are_told_whole_as_opa_would() -> None:
    found = status(CAUSE)
    assert found["status"] == "error"
    assert found["error"]["code"] == "invalid_parameter"
    assert found["error"]["message"] == "error(s) occurred while compiling module(s)"
    assert found["error"]["errors"] == [CAUSE]


def test_status_says_what_is_in_force_instead() -> None:
    assert status(CAUSE)["in_force"] == "the last good version"
    assert status(CAUSE, in_force=False)["in_force"] == "nothing of this ConfigMap"


def test_conflict_names_the_other_beside_the_error() -> None:
    *_, last = status(CAUSE, rivals=(RIVAL,))["error"]["errors"]
    assert last == {"code": "conflict", "message": "conflicts with ConfigMap ns/other"}


def test_rival_that_is_a_placementpolicy_is_called_so() -> None:
    rivals = (policy_key(RIVAL), RIVAL)
    assert status(rivals=rivals)["conflicts"] == ["ns/other", "PlacementPolicy ns/other"]
    errors = status(CAUSE, rivals=rivals)["error"]["errors"]
    assert errors[-1]["message"] == "conflicts with PlacementPolicy ns/other"


def test_what_the_guard_found_is_the_message() -> None:
    found = status(
        forbidden("ns/p/a.rego", Finding("one")), forbidden("ns/p/a.rego", Finding("two", 7))
    )
    assert (found["error"]["code"], found["error"]["message"]) == ("forbidden", "one; two")


@pytest.mark.parametrize("code", ["too_expensive", "not_tried", "quarantined"])
def test_what_took_too_much_or_ended_opa_is_the_message(code: str) -> None:
    found = status({"code": code, "message": "too much"})
    assert (found["error"]["code"], found["error"]["message"]) == (code, "too much")


def test_status_of_any_number_and_length_of_causes_is_one_that_fits() -> None:
    long: Cause = {**CAUSE, "message": "\0" * 10**6, "details": {"line": "x" * 10**6}}
    text = account([long] * 3000, [RIVAL] * 3000, in_force=False)
    assert len(text) < 2**18 * 0.75
    errors = json.loads(text)["error"]["errors"]
    assert errors[0]["location"] == CAUSE["location"]
    assert [cause["message"] for cause in errors if cause["code"] == "more"] == [
        "and 2980 more",
        "and 2980 more",
    ]
    warned = account([], [RIVAL] * 3000, in_force=True, warnings=[LONG] * 3000)
    assert len(warned) < 2**18 * 0.75
    assert json.loads(warned)["warnings"][-1] == {"code": "more", "message": "and 2980 more"}


def test_warning_says_what_and_where_and_what_was_probably_meant() -> None:
    warnings = [
        PolicyWarning("unknown_rule", "ns/p/a.rego", 3, "it has none", "annotations"),
        PolicyWarning("unknown_label", "", 0, "no policy has it"),
    ]
    assert json.loads(account([], (), in_force=True, warnings=warnings)) == {
        "status": "ok",
        "warnings": [
            {
                "code": "unknown_rule",
                "file": "ns/p/a.rego",
                "row": 3,
                "message": "it has none",
                "suggestion": "annotations",
            },
            {"code": "unknown_label", "message": "no policy has it"},
        ],
    }
