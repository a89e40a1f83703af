from __future__ import annotations

from typing import Any

import pytest

from kube_sync.admission.conflicts import describe
from kube_sync.opa.client import OpaError

MODULES = {
    "ns/one/policy.rego": "package a.b\n\nannotations[k] := v if input.x",
    "ns/two/policy": '# ours\npackage a.b\n\nimport rego.v1\n\nannotations["x"] := 2',
    "ns/three/policy.rego": "package a.b\nannotations_of(x) := 3\nerrors contains 1",
    "ns/four/policy.rego": "package a.c\nannotations[k] := v if input.x",
}


def _conflict(message: str, file: object = "", row: object = 0) -> OpaError:
    location = {"file": file, "row": row, "col": 1}
    cause = {"code": "eval_conflict_error", "message": message, "location": location}
    return OpaError("internal_error", "while evaluating", [cause])


def _both(one: str, other: str, what: str = "rule data.a.b.annotations.x") -> OpaError:
    return _conflict(
        f'{what} produced conflicting values:\n  "1 at x:2" at {one}\n  [2] at {other}'
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ns/one/policy.rego:3", "ns/two/policy:6"),  # each by itself
        ("/ns/one/policy.rego:3", "/ns/two/policy.rego:6"),  # out of a bundle
        ("kube-sync/ns/one/policy.rego:3", "kube-sync/ns/two/policy.rego:6"),
    ],
)
def test_both_modules_are_named_with_their_configmaps(one: str, other: str) -> None:
    assert describe(_both(one, other), MODULES) == (
        "policies give the rule data.a.b.annotations.x different values: policy.rego row 3 of "
        "ConfigMap ns/one and policy row 6 of ConfigMap ns/two"
    )


def test_values_are_not_told() -> None:
    """They are made of what the policy reads, and the one who is denied may not read that."""
    assert "1 at" not in describe(_both("ns/one/policy.rego:3", "ns/two/policy:6"), MODULES)


def test_two_values_in_one_module_are_named_by_row() -> None:
    error = _both("ns/one/policy.rego:3", "ns/one/policy.rego:4")
    said = describe(error, MODULES)
    assert said.endswith(
        "policy.rego row 3 of ConfigMap ns/one and policy.rego row 4 of ConfigMap ns/one"
    )


def test_a_rule_whose_key_has_a_space_is_named_whole() -> None:
    said = describe(_both("x:1", "y:2", 'rule data.a.b.annotations["a b"]'), {})
    assert said.startswith('policies give the rule data.a.b.annotations["a b"] different values')


def test_a_function_is_called_so() -> None:
    what = "function data.a.b.f"
    error = _conflict(
        f"{what} produced conflicting values for the same inputs:\n  1 at x:1\n  2 at y:2"
    )
    assert describe(error, {}) == (
        "policies give the function data.a.b.f different values: x row 1 and y row 2"
    )


def test_modules_that_no_configmap_holds_are_named_as_opa_does() -> None:
    said = describe(_both("/policies/extra.rego:3", "ns/two/policy:6"), MODULES)
    assert "/policies/extra.rego row 3 and policy row 6 of ConfigMap ns/two" in said


@pytest.mark.parametrize(
    ("file", "row", "other"),
    [
        ("ns/one/policy.rego", 3, "policy of ConfigMap ns/two"),
        ("ns/two/policy", 6, "policy.rego of ConfigMap ns/one"),
    ],
)
def test_the_other_module_is_found_where_opa_names_one_place(
    file: str, row: int, other: str
) -> None:
    error = _conflict("complete rules must not produce multiple outputs", file, row)
    said = describe(error, MODULES)
    assert said.startswith("policies give one rule different values: policy")
    assert f"row {row} of ConfigMap" in said
    assert said.endswith(f" and {other}")


@pytest.mark.parametrize(
    ("file", "row"),
    [
        ("ns/one/policy.rego", 2),  # an empty row: no rule has its name there
        ("ns/one/policy.rego", 99),
        ("ns/one/policy.rego", None),
        ("ns/four/policy.rego", 2),  # its package is its own
        ("elsewhere.rego", 1),
    ],
)
def test_one_place_is_named_alone_where_the_other_cannot_be_told(file: str, row: object) -> None:
    said = describe(_conflict("conflict", file, row), MODULES)
    assert " and " not in said


def test_a_conflict_at_no_place_is_told_all_the_same() -> None:
    error = OpaError("internal_error", "m", [{"code": "eval_conflict_error"}])
    assert describe(error, MODULES) == (
        "policies give one rule different values: OPA does not say where"
    )


def _failed(*errors: Any) -> OpaError:
    return OpaError("internal_error", "while evaluating", list(errors))


def test_any_other_failure_names_the_configmap_it_lies_in() -> None:
    cause = {
        "code": "eval_type_error",
        "message": "to_number: not a number",
        "location": {"file": "/ns/two/policy.rego", "row": 6},
    }
    assert describe(_failed(cause), MODULES) == (
        "the policy failed: /ns/two/policy.rego:6: to_number: not a number "
        "(policy row 6 of ConfigMap ns/two)"
    )


def test_a_failure_names_the_placementpolicy_it_lies_in() -> None:
    module = "ns/two.PlacementPolicy/policy.rego"
    cause = {"message": "m", "location": {"file": f"kube-sync/{module}", "row": 6}}
    said = describe(_failed(cause), {module: "package two"})
    assert said.endswith("(policy.rego row 6 of PlacementPolicy ns/two)")


@pytest.mark.parametrize("cause", ["text", {"location": None}, {"location": {"file": ""}}])
def test_a_failure_at_no_place_is_told_as_opa_does(cause: object) -> None:
    assert describe(_failed(cause), MODULES) == "the policy failed: while evaluating"
    assert describe(_failed(), MODULES) == "the policy failed: while evaluating"
