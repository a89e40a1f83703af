from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.decision_reader import (
    DecisionReader,
    rows_of_annotation,
    rows_with_literal,
)
from kube_sync.errors import Undecided
from kube_sync.guard import Placements
from kube_sync.guard.placements import PREFERENCES, SELECTOR

PLACEMENT = """package io.k8s.federation.admission

# annotations["federation.kubernetes.io/replica-set-preferences"] is decided below
annotations["federation.kubernetes.io/replica-set-preferences"] := preferences if {
	input.kind == "ReplicaSet"
}

preferences := {"clustrs": {"c001": {"weight": 1}}}
"""
READS_IT = """package io.k8s.federation.admission

requested := input.metadata.annotations["federation.kubernetes.io/replica-set-preferences"]
"""
MODULES = {
    "opa/placement/policy.rego": PLACEMENT,
    "opa/team.PlacementPolicy/main": READS_IT,
    "static.rego": "package other\n",
}
WORD_IS_AT = "policy.rego row 8 of ConfigMap opa/placement"
RULE_IS_AT = "policy.rego row 4 of ConfigMap opa/placement"


def reader(modules: Mapping[str, str] = MODULES, **names: str) -> DecisionReader:
    return DecisionReader(Placements().unreadable, lambda: modules, names)


def answer(value: object, annotation: str = PREFERENCES, **more: object) -> bytes:
    return json.dumps({"annotations": {annotation: value}, **more}).encode()


def refusal(found: DecisionReader, body: bytes) -> str:
    with pytest.raises(Undecided) as error:
        found(body)
    return str(error.value)


def test_readable_decision_is_read_as_always() -> None:
    decision = Decision({PREFERENCES: '{"clusters":{"c1":{}}}'}, warnings=("w",))
    assert reader()(answer({"clusters": {"c1": {}}}, warnings=["w"])) == decision


def test_misspelt_key_is_told_with_the_row_in_which_it_stands() -> None:
    said = refusal(reader(), answer({"clustrs": {"c001": {}}}))
    expected = '{"clusters": {NAME: {"weight": 1}}}'
    assert said == (
        f"{WORD_IS_AT}: annotation {PREFERENCES}: expected {expected},"
        " found the key `clustrs` instead of `clusters`"
    )


def test_list_in_place_of_an_object_is_told_with_the_row_of_the_rule() -> None:
    said = refusal(reader(), answer([{"name": "c001"}]))
    assert said.startswith(f"{RULE_IS_AT}: annotation {PREFERENCES}: expected ")
    assert "found an array" in said


def test_module_that_only_reads_the_annotation_is_not_blamed() -> None:
    assert rows_of_annotation(MODULES, PREFERENCES) == [("opa/placement/policy.rego", 4)]
    assert rows_of_annotation({"a/b/c": READS_IT}, PREFERENCES) == [("a/b/c", 3)]


def test_several_rules_are_all_named() -> None:
    other = 'package x\n\nannotations["federation.kubernetes.io/replica-set-preferences"] := []\n'
    said = refusal(reader({**MODULES, "opa/team.PlacementPolicy/main": other}), answer([]))
    named = "main row 3 of PlacementPolicy opa/team"
    assert said.startswith(f"{RULE_IS_AT} or {named}: annotation")


def test_rule_whose_key_is_put_together_is_told_by_its_head() -> None:
    module = "package x\n\nannotations[sprintf(key, [1])] := []\n"
    assert rows_of_annotation({"a/b/c": module}, PREFERENCES) == [("a/b/c", 3)]


@pytest.mark.parametrize("modules", [{}, {"a/b/c": "package x\n\nerrors contains 1\n"}])
def test_without_a_row_the_annotation_is_named_all_the_same(modules: Mapping[str, str]) -> None:
    said = refusal(reader(modules), answer("x", SELECTOR))
    assert said.startswith(f"the policy's annotation {SELECTOR}: expected a list of")


def test_file_that_people_know_a_module_by_is_named() -> None:
    found = DecisionReader(
        Placements().unreadable, lambda: MODULES, {"opa/placement/policy.rego": "new/policy.rego"}
    )
    assert refusal(found, answer([])).startswith("new/policy.rego row 4: annotation")
    static = {"static.rego": PLACEMENT}
    assert refusal(reader(static), answer([])).startswith("static.rego row 4: annotation")


def test_row_is_looked_for_anew_once_the_policies_differ() -> None:
    modules = dict(MODULES)
    found = DecisionReader(Placements().unreadable, lambda: dict(modules))
    assert "row 4 of" in refusal(found, answer([]))
    modules["opa/placement/policy.rego"] = f"\n{PLACEMENT}"
    assert "row 5 of" in refusal(found, answer([]))


def test_what_a_policy_refuses_is_refused_for_its_own_reasons() -> None:
    assert reader()(answer([], errors=["no"])).errors == ("no",)


def test_string_is_found_where_it_stands_and_not_in_comments() -> None:
    modules = {"a/b/c": '# "atlantis"\nx := "atlantis"\ny := `atlantis`\nz := "atlantis2"\n'}
    assert rows_with_literal(modules, "atlantis") == [("a/b/c", 2), ("a/b/c", 3)]


def test_example_policies_are_found_by_the_annotation_that_they_decide() -> None:
    """Policies that were written for users, and not for this test."""
    folder = Path("rego/examples")
    sources = {str(f): f.read_text() for f in folder.rglob("*.rego") if "_test" not in f.name}
    deciding = {file for file, _ in rows_of_annotation(sources, PREFERENCES)}
    assert deciding
    for file in deciding:
        (module, row), *_ = rows_of_annotation({file: sources[file]}, PREFERENCES)
        assert "annotations" in sources[module].splitlines()[row - 1]
