from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.replicator.candidates.answers import (
    Answer,
    Planned,
    Unplanned,
    Version,
    dated_as,
    says,
    text_of,
)
from kube_sync.replicator.policies.outcomes import Tried, staged_by

KEY = ObjectKey("ns", "placement-candidate")
VERSION = Version("ns/placement", "0c1d")
EFFECTS = {"failed": 0, "refused": 1, "undecided": 0, "nowhere": 0, "moves": 12, "adds": 0}
PLANNED = Planned(300, EFFECTS, 3)
ANSWER = Answer(KEY, VERSION, PLANNED, "2026-11-22T12:00:00Z")
OBJECT = str(policy_key(ObjectKey("ns", "placement")))
FILE = "ConfigMap ns/placement-candidate (ns/placement/policy.rego)"


def said(answer: Answer) -> Any:
    return json.loads(text_of(answer))


def wrong(*lines: str) -> Any:
    return said(replace(ANSWER, outcome=Unplanned(lines)))


def test_summary_has_the_names_and_numbers_of_a_plan() -> None:
    assert said(ANSWER) == {
        "status": "ok",
        "stage": "candidate",
        "stands_for": "ns/placement",
        "modules": "0c1d",
        "objects": 300,
        **EFFECTS,
        "exit": 3,
        "when": "2026-11-22T12:00:00Z",
    }


def test_others_that_it_was_planned_with_and_what_a_plan_does_not_know_are_told() -> None:
    noted = replace(PLANNED, notes=("policy ConfigMap ns/lib is not in force",))
    answer = said(replace(ANSWER, outcome=noted, together=("ns/other",)))
    assert answer["together_with"] == ["ns/other"]
    assert answer["notes"] == ["policy ConfigMap ns/lib is not in force"]


def test_error_names_the_candidates_own_file_and_row() -> None:
    answer = wrong(f"{FILE}:3: rego_parse_error: unexpected }} token")
    assert (answer["status"], answer["error"]["code"]) == ("error", "invalid_parameter")
    (cause,) = answer["error"]["errors"]
    assert cause == {
        "code": "rego_parse_error",
        "message": "unexpected } token",
        "location": {"file": "ns/placement-candidate/policy.rego", "row": 3},
    }


def test_error_in_another_policy_keeps_that_ones_file() -> None:
    (cause,) = wrong("ns/lib/lib.rego:7: rego_type_error: conflict")["error"]["errors"]
    assert cause["location"] == {"file": "ns/lib/lib.rego", "row": 7}


def test_finding_without_a_row_names_the_file() -> None:
    (cause,) = wrong(f"{FILE}: forbidden: the package system is reserved")["error"]["errors"]
    assert cause["location"] == {"file": "ns/placement-candidate/policy.rego"}


def test_plan_that_was_not_made_says_why_and_names_no_file() -> None:
    answer = wrong("it took more than 600 s")
    assert answer["error"]["code"] == "not_planned"
    assert answer["error"]["message"] == "it took more than 600 s"
    assert answer["error"]["errors"] == [
        {"code": "not_planned", "message": "it took more than 600 s"}
    ]


def test_what_is_said_of_many_errors_is_bounded() -> None:
    answer = wrong(*[f"{FILE}:{row}: rego_parse_error: {'x' * 5000}" for row in range(1, 500)])
    causes = answer["error"]["errors"]
    assert (len(causes), causes[-1]["message"]) == (21, "and 479 more")
    assert len(json.dumps(answer)) < 20_000


@pytest.mark.parametrize("found", [None, "", "no json", "[]", '{"status":"ok"}'])
def test_annotation_of_another_meaning_does_not_say_it(found: str | None) -> None:
    assert not says(found, text_of(ANSWER))


def test_same_summary_of_another_day_is_the_same() -> None:
    later = replace(ANSWER, when="2026-11-23T00:00:00Z")
    assert says(text_of(ANSWER), text_of(later))
    other = replace(later, outcome=replace(PLANNED, status=2))
    assert not says(text_of(ANSWER), text_of(other))


def test_summary_that_a_placementpolicy_has_already_keeps_its_date() -> None:
    of_object = replace(ANSWER, key=policy_key(KEY), version=replace(VERSION, stands_for=OBJECT))
    found = staged_by(Tried(text_of(of_object)))
    assert found is not None
    assert found["standsFor"] == "PlacementPolicy ns/placement"
    later = replace(of_object, when="2026-11-23T00:00:00Z")
    assert json.loads(dated_as(found, text_of(later)))["when"] == of_object.when
    for other in (None, "no object", {**found, "moves": 13}, {**found, "when": 1}):
        assert json.loads(dated_as(other, text_of(later)))["when"] == later.when
