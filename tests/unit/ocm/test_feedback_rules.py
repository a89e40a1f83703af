"""What the stand-in for OCM's work agent reads of an object, as the agent does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ocm.feedback import RAW_LIMIT, feedback
from tests.ocm.jsonpath import find

BODY: dict[str, Any] = {
    "apiVersion": "examples.kube-sync.io/v1alpha1",
    "kind": "ColorPolicy",
    "metadata": {"name": "p", "annotations": {"a.b/c": "dotted"}},
    "status": {
        "observedGeneration": 3,
        "ready": True,
        "ratio": 0.5,
        "nothing": None,
        "conditions": [
            {"type": "Accepted", "status": "True", "reason": "Accepted"},
            {"type": "Enforced", "status": "False", "reason": "Overridden"},
        ],
    },
}


def read(
    *paths: tuple[str, str], raw: bool = False, version: str = ""
) -> tuple[dict[str, Any], str]:
    """Return the values by name, without their types, and the reason of the condition."""
    said = [{"name": n, "path": p} | ({"version": version} if version else {}) for n, p in paths]
    values, condition = feedback(BODY, [{"type": "JSONPaths", "jsonPaths": said}], raw=raw)
    by_name = {v["name"]: v["fieldValue"][_member(v["fieldValue"])] for v in values}
    return by_name, condition["reason"]


def _member(value: dict[str, Any]) -> str:
    return str(value["type"][0].lower() + value["type"][1:])


CONDITION = '.status.conditions[?(@.type=="{}")].{}'
SYNCED, FAILED = "StatusFeedbackSynced", "StatusFeedbackSyncFailed"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (CONDITION.format("Enforced", "reason"), "Overridden"),
        (".status.conditions[?(@.type!='Accepted')].status", "False"),
        (".status.observedGeneration", 3),
        (".status.ready", True),
        (".status.conditions[1].type", "Enforced"),
        (".status.conditions[-1].type", "Enforced"),
        (".status['observedGeneration']", 3),
        (r".metadata.annotations.a\.b/c", "dotted"),
        (".metadata.annotations['a.b/c']", "dotted"),
    ],
)
def test_a_scalar_is_read_with_its_type(path: str, value: object) -> None:
    assert read(("x", path)) == ({"x": value}, SYNCED)


@pytest.mark.parametrize(
    "path",
    [
        ".status.no.such",
        ".status.nothing",
        ".spec.x",
        ".status.ready.x",
        ".status.conditions[7]",
        CONDITION.format("Programmed", "status"),
    ],
)
def test_what_is_missing_or_null_is_left_out_in_silence(path: str) -> None:
    assert read(("x", path)) == ({}, SYNCED)


@pytest.mark.parametrize(
    "path", [".status.conditions", ".status", ".status.ratio", "status.ready", ".status["]
)
def test_what_is_no_scalar_or_no_path_drops_no_other(path: str) -> None:
    assert read(("good", ".status.ready"), ("bad", path)) == ({"good": True}, FAILED)


def test_of_several_matches_the_first_counts_and_with_the_gate_all() -> None:
    path = ("types", ".status.conditions[*].type")
    assert read(path) == ({"types": "Accepted"}, SYNCED)
    assert read(path, raw=True) == ({"types": '["Accepted","Enforced"]'}, SYNCED)


def test_with_the_gate_lists_and_objects_are_json_up_to_a_limit() -> None:
    values, reason = read(("x", ".status.conditions"), ("ratio", ".status.ratio"), raw=True)
    assert json.loads(values["x"]) == BODY["status"]["conditions"]
    assert (values["ratio"], reason) == ("0.5", SYNCED)
    big = {"apiVersion": "v1", "status": ["x" * RAW_LIMIT]}
    rules = [{"type": "JSONPaths", "jsonPaths": [{"name": "x", "path": ".status"}]}]
    assert feedback(big, rules, raw=True)[1]["reason"] == FAILED


def test_a_path_for_another_version_is_an_error() -> None:
    assert read(("x", ".status.ready"), version="v1") == ({}, FAILED)
    assert read(("x", ".status.ready"), version="v1alpha1") == ({"x": True}, SYNCED)


def test_without_rules_there_is_nothing_and_that_is_said() -> None:
    assert feedback(BODY, []) == (
        [],
        {"type": SYNCED, "status": "True", "reason": "NoStatusFeedbackSynced"},
    )


@pytest.mark.parametrize("path", ["..type", ".a[0:1]", ".a[0,1]", ".a[?(@.b)]"])
def test_what_the_stand_in_does_not_know_is_no_silence(path: str) -> None:
    with pytest.raises(NotImplementedError):
        find(path, BODY)


def test_well_known_statuses_are_not_known() -> None:
    with pytest.raises(NotImplementedError):
        feedback(BODY, [{"type": "WellKnownStatus"}])


@given(st.dictionaries(st.from_regex(r"[A-Za-z]\w*", fullmatch=True),
                       st.integers() | st.text() | st.booleans(), max_size=5))  # fmt: skip
def test_every_scalar_of_an_object_comes_back_as_it_is(values: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "status": values}
    paths = [{"name": name, "path": f".status.{name}"} for name in values]
    found, condition = feedback(body, [{"type": "JSONPaths", "jsonPaths": paths}])
    typed = {one["name"]: one["fieldValue"] for one in found}
    assert {name: typed[name][_member(typed[name])] for name in typed} == values
    assert condition["status"] == "True"
