from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.opa.inspection import Finding, forbidden
from kube_sync.opa.scratch import Cause
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import account
from kube_sync.policies.placementpolicy_status import (
    CandidateOutcome,
    Outcomes,
    PolicyOutcome,
    as_annotation,
    conditions,
    unreadable,
)
from kube_sync.policies.policywarning import PolicyWarning
from kube_sync.policies.staging.lanes import Counted, status_of

KEY = policy_key(ObjectKey("ns", "web"))
POLICY = PlacementPolicy(KEY, "1", "uid", 4, "", "active", {f"{KEY}/a.rego": "package a"})
BROKEN: Cause = {
    "code": "rego_parse_error",
    "message": "unexpected }",
    "location": {"file": f"{KEY}/a.rego", "row": 3},
}
FINE = PolicyOutcome()
STANDARD = ("Ready", "Reconciling", "Stalled")  # test_placementpolicy_phase.py


def said(
    outcome: PolicyOutcome | CandidateOutcome | None, policy: PlacementPolicy = POLICY
) -> dict[str, tuple[str, ...]]:
    """Return status, reason and message of each condition that is ours alone."""
    found = conditions(policy, outcome)
    return {one.type: tuple(one[1:]) for one in found if one.type not in STANDARD}


def test_policy_that_decides_is_compiled_active_and_in_nobodys_way() -> None:
    assert said(FINE) == {
        "Compiled": ("True", "Compiled", "it compiles together with all others"),
        "Active": ("True", "InForce", "decisions are made by it"),
        "Conflicting": ("False", "Clear", "none is in its way"),
    }


def test_compiler_errors_are_told_with_file_and_row() -> None:
    elsewhere = BROKEN | {"location": {"file": "ns/lib/b.rego", "row": 7}}
    nowhere: Cause = {"code": "timeout", "message": "took too long"}
    status, reason, message = said(PolicyOutcome([BROKEN, elsewhere, nowhere]))["Compiled"]
    assert (status, reason) == ("False", "CompileError")
    assert message.splitlines() == [
        "a.rego:3: rego_parse_error: unexpected }",
        "ns/lib/b.rego:7: rego_parse_error: unexpected }",
        "timeout: took too long",
    ]


def test_it_says_what_is_in_force_instead() -> None:
    assert said(PolicyOutcome([BROKEN], held=True))["Active"] == (
        "False",
        "LastGood",
        "its last good version is in force instead",
    )
    assert said(PolicyOutcome([BROKEN]))["Active"][:2] == ("False", "NotInForce")


def test_rivals_of_either_kind_are_named() -> None:
    other = ObjectKey("ns", "other")
    rivals = frozenset({other, policy_key(other)})
    assert said(PolicyOutcome(rivals=rivals))["Conflicting"] == (
        "True",
        "Conflict",
        "conflicts with ConfigMap ns/other\nconflicts with PlacementPolicy ns/other",
    )


def test_what_no_policy_may_say_is_a_reason_of_its_own() -> None:
    found = said(PolicyOutcome([forbidden(f"{KEY}/a.rego", Finding("package system is reserved"))]))
    assert found["Compiled"] == (
        "False",
        "Forbidden",
        "a.rego: forbidden: package system is reserved",
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("too_expensive", "TooExpensive"),
        ("not_tried", "NotTriedAgain"),
        ("quarantined", "Quarantined"),
    ],
)
def test_what_took_too_much_or_ended_opa_is_a_reason_of_its_own(code: str, reason: str) -> None:
    found = said(PolicyOutcome([{"code": code, "message": "of memory"}], held=True))
    assert found["Compiled"] == ("False", reason, f"{code}: of memory")
    assert found["Active"][1] == "LastGood"


def test_what_cannot_be_read_is_a_reason_of_its_own() -> None:
    policy = replace(POLICY, modules={}, unreadable="spec: Expected `object`")
    found = said(PolicyOutcome(unreadable(policy), held=True), policy)
    assert found["Compiled"][:2] == ("False", "Unreadable")
    assert "Expected `object`" in found["Compiled"][2]
    assert found["Active"][1] == "LastGood"


def test_what_opa_does_not_take_compiles_and_is_not_active() -> None:
    found = said(PolicyOutcome(refused=[{"code": "unauthorized", "message": "403"}]))
    assert found["Compiled"][0] == "True"
    assert found["Active"] == (
        "False",
        "NotInForce",
        "nothing of it is in force\nOPA does not take it: unauthorized: 403",
    )


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("candidate", "Candidate"),
        ("later", "UnknownStage"),
    ],
)
def test_policy_that_is_not_meant_to_decide_says_so(stage: str, reason: str) -> None:
    found = said(None, replace(POLICY, stage=stage))
    assert found["Active"][:2] == ("False", reason)
    assert "not loaded" in found["Active"][2]
    assert found["Compiled"][0] == found["Conflicting"][0] == "Unknown"


class Bench:
    """Outcomes, what they want, and a clock that goes on with each telling."""

    def __init__(self) -> None:
        self.wanted: list[Sequence[Mapping[str, Any]]] = []  # conditions
        self.staged: list[Any] = []
        self.observed: list[int | None] = []
        self.time = datetime(2026, 11, 22, tzinfo=UTC)
        self.outcomes = Outcomes(self.want, now=self.now)

    def want(self, _policy: PlacementPolicy, status: dict[str, Any]) -> None:
        self.wanted.append(status["conditions"])
        self.staged.append(status.get("staged"))
        self.observed.append(status.get("observedGeneration"))

    def now(self) -> datetime:
        self.time += timedelta(hours=1)
        return self.time

    def tell(
        self, policy: PlacementPolicy, outcome: PolicyOutcome | CandidateOutcome | None
    ) -> list[str]:
        """Return the times of what was wanted last."""
        self.outcomes.tell([(policy, outcome)])
        return [one["lastTransitionTime"][11:13] for one in self.wanted[-1][:3]]

    def as_written(self) -> PlacementPolicy:
        found = tuple(self.wanted[-1])
        return replace(POLICY, version="2", conditions=found, staged=self.staged[-1])


def test_conditions_have_the_generation_that_they_are_about() -> None:
    bench = Bench()
    bench.tell(POLICY, FINE)
    assert {one["observedGeneration"] for one in bench.wanted[0]} == {4}


def test_generation_is_written_only_where_the_definition_has_the_field() -> None:
    bench = Bench()
    bench.tell(POLICY, FINE)
    bench.tell(replace(POLICY, observed=-1), FINE)
    assert bench.observed == [None, 4]
    written = replace(bench.as_written(), observed=4)
    bench.tell(written, FINE)
    assert len(bench.wanted) == 2
    bench.tell(replace(written, observed=3), FINE)
    assert bench.observed == [None, 4, 4]


def test_what_is_right_already_is_not_wanted() -> None:
    bench = Bench()
    bench.tell(POLICY, FINE)
    bench.tell(bench.as_written(), FINE)
    assert len(bench.wanted) == 1


def test_only_what_changes_gets_another_time() -> None:
    bench = Bench()
    assert bench.tell(POLICY, FINE) == ["01", "01", "01"]
    assert bench.tell(bench.as_written(), PolicyOutcome([BROKEN])) == ["02", "02", "01"]


def test_what_is_told_again_before_its_write_was_seen_is_the_same_write() -> None:
    bench = Bench()
    bench.tell(POLICY, FINE)
    bench.tell(POLICY, FINE)
    assert bench.wanted[0] == bench.wanted[1]


def test_conditions_without_a_type_are_none_and_do_no_harm() -> None:
    """A definition of another schema may let them in."""
    bench = Bench()
    odd = replace(POLICY, conditions=({"type": [None]}, {"type": 7}, {"status": "True"}))
    assert bench.tell(odd, FINE) == ["01", "01", "01"]


def test_what_was_written_and_removed_by_somebody_is_written_again() -> None:
    bench = Bench()
    bench.tell(POLICY, FINE)
    bench.tell(replace(POLICY, version="3"), FINE)
    assert len(bench.wanted) == 2


SHADOW = replace(POLICY, stage="shadow", stands_for=policy_key(ObjectKey("ns", "other")))
TOO_MUCH: Cause = {"code": "too_expensive", "message": "too expensive to compile (1 s)"}
COUNTED = CandidateOutcome(status_of(SHADOW, (), Counted(7, {"moves": 2}), [SHADOW]))


def test_staged_policy_has_no_effect_and_says_so() -> None:
    found = said(COUNTED, SHADOW)
    assert found["Compiled"][:2] == ("True", "Compiled")
    assert found["Active"][:2] == ("False", "Shadow")
    assert "has no effect" in found["Active"][2]
    assert found["Conflicting"][0] == "Unknown"


def test_staged_policy_at_fault_says_why_with_file_and_row() -> None:
    found = said(CandidateOutcome(account([BROKEN], (), in_force=False)), SHADOW)
    assert found["Compiled"] == (
        "False",
        "CompileError",
        "a.rego:3: rego_parse_error: unexpected }",
    )
    assert found["Active"][:2] == ("False", "NotStaged")
    unmovable: Cause = {"code": "stage", "message": "leads to both sets"}
    found = said(CandidateOutcome(account([unmovable], (), in_force=False)), SHADOW)
    assert found["Compiled"] == ("False", "NotStaged", "stage: leads to both sets")


def test_what_was_counted_is_a_field_of_the_status_and_goes_with_the_stage() -> None:
    bench = Bench()
    bench.tell(SHADOW, COUNTED)
    name = "PlacementPolicy ns/web"
    assert bench.staged[-1] == {
        "stage": "shadow",
        "standsFor": "PlacementPolicy ns/other",
        "modules": digest(SHADOW.modules),
        "togetherWith": [name],
        "objects": 7,
        "moves": 2,
    }
    written = bench.as_written()
    bench.tell(replace(written, stage="shadow"), COUNTED)
    assert len(bench.wanted) == 1
    more = CandidateOutcome(status_of(SHADOW, (), Counted(8, {"moves": 2}), ()))
    assert bench.tell(replace(written, stage="shadow"), more) == ["01", "01", "01"]
    assert bench.staged[-1]["objects"] == 8
    bench.tell(written, FINE)
    assert bench.staged[-1] is None


def test_what_a_staged_policy_says_stands_while_its_lane_is_made_anew() -> None:
    bench = Bench()
    bench.tell(SHADOW, None)
    assert [one["status"] for one in bench.wanted[-1][:3]] == ["Unknown", "False", "Unknown"]
    bench.tell(SHADOW, COUNTED)
    written = replace(bench.as_written(), stage="shadow")
    bench.tell(written, None)
    assert len(bench.wanted) == 2
    bench.tell(replace(written, generation=5), None)  # it is another one by now
    assert (len(bench.wanted), bench.staged[-1]) == (3, None)
    active = replace(POLICY, conditions=(written.conditions[0], {"type": "Active"}))
    bench.tell(replace(active, stage="shadow"), None)
    assert len(bench.wanted) == 4


def test_status_says_what_the_annotation_of_a_configmap_would() -> None:
    bench = Bench()
    assert as_annotation(SHADOW) is None
    bench.tell(SHADOW, COUNTED)
    written = replace(bench.as_written(), stage="shadow")
    assert json.loads(as_annotation(written) or "") == json.loads(COUNTED.said)
    assert as_annotation(replace(written, generation=5)) is None
    bench.tell(SHADOW, CandidateOutcome(account([BROKEN], (), in_force=False)))
    found = json.loads(as_annotation(bench.as_written()) or "")
    assert (found["status"], "unexpected }" in found["error"]["message"]) == ("error", True)


CANARY = replace(SHADOW, stage="canary")
EFFECT = {"share": "0.25", "namespaces": ["shop"]}
HALTED = {"why": ["1 would be failed, at most 0 may"], "counts": {"objects": 8}}


def canary_says(status: str = "ok", **more: Any) -> CandidateOutcome:
    return CandidateOutcome(
        json.dumps({"status": status, "stage": "canary", "effect": None, **more})
    )


@pytest.mark.parametrize(
    ("outcome", "reason", "why"),
    [
        (None, "NotCounted", "it is counted before anything is decided by it"),
        (canary_says(), "NotCounted", "it is counted before anything is decided by it"),
        (
            canary_says(effect=EFFECT),
            "Canary",
            "it decides on 25 % of all objects and all in shop, and what is in force on the others",
        ),
        (
            canary_says("halted", halted=HALTED),
            "Halted",
            "it was taken out: 1 would be failed, at most 0 may",
        ),
    ],
)
def test_canary_does_not_decide_on_all_and_says_on_what(
    outcome: CandidateOutcome | None, reason: str, why: str
) -> None:
    assert said(outcome, CANARY)["Active"] == ("False", reason, why)


def test_what_is_said_of_a_canary_has_no_field_that_is_null() -> None:
    """The API server may leave it out, and then it would be written again and again."""
    bench = Bench()
    bench.tell(CANARY, canary_says())
    assert bench.staged[-1] == {"stage": "canary"}
    bench.tell(CANARY, canary_says("halted", halted=HALTED))
    assert bench.staged[-1] == {"stage": "canary", "halted": HALTED}


@pytest.mark.parametrize(
    "outcome",
    [canary_says(), canary_says(effect=EFFECT), canary_says("halted", halted=HALTED)],
)
def test_what_a_canary_says_stands_until_this_process_knows_more(outcome: CandidateOutcome) -> None:
    bench = Bench()
    bench.tell(CANARY, outcome)
    written = replace(bench.as_written(), stage="canary")
    bench.tell(written, None)
    assert len(bench.wanted) == 1
    bench.tell(replace(written, stage="shadow"), None)
    assert (len(bench.wanted), bench.staged[-1]) == (2, None)


def test_canary_that_was_halted_says_so_as_a_configmap_does() -> None:
    bench = Bench()
    bench.tell(CANARY, canary_says("halted", halted=HALTED))
    found = json.loads(as_annotation(bench.as_written()) or "")
    assert found == {"status": "halted", "stage": "canary", "halted": HALTED}


CANDIDATE = replace(POLICY, stage="candidate", stands_for=policy_key(ObjectKey("ns", "other")))
COMPILED = CandidateOutcome(status_of(CANDIDATE, (), None, ()))


def test_candidate_that_compiles_says_so_and_how_to_plan_with_it() -> None:
    bench = Bench()
    bench.tell(CANDIDATE, COMPILED)
    assert bench.staged[-1] == {
        "stage": "candidate",
        "standsFor": "PlacementPolicy ns/other",
        "modules": digest(CANDIDATE.modules),
        "plan": "kube-sync plan --staged --candidate ns/web.PlacementPolicy",
    }
    found = {one["type"]: (one["status"], one["reason"]) for one in bench.wanted[-1][:3]}
    assert found == {
        "Compiled": ("True", "Compiled"),
        "Active": ("False", "Candidate"),
        "Conflicting": ("Unknown", "NotTried"),
    }
    bench.tell(replace(bench.as_written(), stage="candidate"), COMPILED)
    assert len(bench.wanted) == 1


def test_candidate_at_fault_says_why_with_file_and_row() -> None:
    found = said(CandidateOutcome(account([BROKEN], (), in_force=False)), CANDIDATE)
    assert found["Compiled"] == (
        "False",
        "CompileError",
        "a.rego:3: rego_parse_error: unexpected }",
    )
    assert found["Active"][:2] == ("False", "Candidate")
    found = said(CandidateOutcome(account([TOO_MUCH], (), in_force=False)), CANDIDATE)
    assert found["Compiled"][:2] == ("False", "TooExpensive")


def test_what_another_process_said_of_a_candidate_stands_until_this_one_knows() -> None:
    bench = Bench()
    bench.tell(CANDIDATE, COMPILED)
    written = replace(bench.as_written(), stage="candidate")
    bench.tell(written, None)
    assert len(bench.wanted) == 1
    bench.tell(replace(written, generation=5), None)  # it is another one by now
    assert [one["status"] for one in bench.wanted[-1][:3]] == ["Unknown", "False", "Unknown"]


def test_policy_of_a_stage_that_nobody_knows_says_no_more_than_that() -> None:
    unmovable: Cause = {"code": "stage", "message": "nobody knows the stage"}
    tried = CandidateOutcome(account([unmovable], (), in_force=False))
    found = said(tried, replace(CANDIDATE, stage="later"))
    assert {name: one[:2] for name, one in found.items()} == {
        "Compiled": ("Unknown", "NotTried"),
        "Active": ("False", "UnknownStage"),
        "Conflicting": ("Unknown", "NotTried"),
    }


def test_policy_in_force_with_warnings_has_them_in_a_condition_of_their_own() -> None:
    warnings = (
        PolicyWarning("unknown_rule", f"{KEY}/a.rego", 3, "it has none", "annotations"),
        PolicyWarning("values_withheld", f"{KEY}/a.rego", 0, "it is undefined"),
    )
    found = said(PolicyOutcome(warnings=warnings))
    assert found["Active"] == ("True", "InForce", "decisions are made by it")
    status, reason, message = found["Warned"]
    assert (status, reason) == ("True", "UnknownRule")
    assert message.splitlines() == [
        "a.rego:3: unknown_rule: it has none (meant: annotations?)",
        "a.rego: values_withheld: it is undefined",
    ]


def test_policy_without_warnings_has_no_condition_of_them() -> None:
    assert said(PolicyOutcome()).keys() == {"Compiled", "Active", "Conflicting"}
