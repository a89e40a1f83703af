"""Ready, Reconciling and Stalled of a PlacementPolicy, for every outcome that it may have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kube_sync.kube.conditions import Condition
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause
from kube_sync.policies.configmap_status import account
from kube_sync.policies.placementpolicy_status import CandidateOutcome, PolicyOutcome, conditions
from kube_sync.policies.policywarning import PolicyWarning

KEY = policy_key(ObjectKey("ns", "web"))
POLICY = PlacementPolicy(KEY, "1", "uid", 4, "", "active", {f"{KEY}/a.rego": "package a"})
WARNING = PolicyWarning("unknown_rule", f"{KEY}/a.rego", 3, "it has none")


def cause(code: str) -> Cause:
    return {"code": code, "message": "why"}


def staged(**said: Any) -> CandidateOutcome:
    return CandidateOutcome(json.dumps({"status": "ok", "effect": None, **said}))


AT_FAULT = CandidateOutcome(account([cause("rego_parse_error")], (), in_force=False))
WAITS = CandidateOutcome(account([cause("waiting")], (), in_force=False))
HALTED = staged(status="halted", halted={"why": ["1 would be failed"], "counts": {}})
EFFECT = {"share": "0.1", "namespaces": []}


def of(outcome: PolicyOutcome | CandidateOutcome | None, stage: str) -> dict[str, Condition]:
    found = conditions(replace(POLICY, stage=stage), outcome)
    return {one.type: one for one in found}


@pytest.mark.parametrize(
    ("stage", "outcome", "phase", "reason"),
    [
        ("active", PolicyOutcome(), "Ready", "InForce"),
        ("active", PolicyOutcome(warnings=[WARNING]), "Ready", "InForce"),
        ("active", PolicyOutcome(rivals=frozenset({KEY})), "Ready", "InForce"),
        ("active", PolicyOutcome([cause("rego_parse_error")]), "Stalled", "CompileError"),
        ("active", PolicyOutcome([cause("x")], held=True), "Stalled", "CompileError"),
        ("active", PolicyOutcome([cause("quarantined")]), "Stalled", "Quarantined"),
        ("active", PolicyOutcome([cause("waiting")]), "Reconciling", "Waiting"),
        ("active", PolicyOutcome(refused=[cause("unauthorized")]), "Stalled", "NotInForce"),
        ("candidate", None, "Reconciling", "Candidate"),
        ("candidate", staged(), "Reconciling", "AwaitingApproval"),
        ("candidate", AT_FAULT, "Stalled", "CompileError"),
        ("shadow", staged(), "Reconciling", "AwaitingApproval"),
        ("shadow", AT_FAULT, "Stalled", "CompileError"),
        ("canary", staged(), "Reconciling", "NotCounted"),
        ("canary", WAITS, "Reconciling", "Waiting"),
        ("canary", staged(effect=EFFECT), "Reconciling", "AwaitingApproval"),
        ("canary", HALTED, "Stalled", "Halted"),
        ("later", None, "Stalled", "UnknownStage"),
    ],
)
def test_policy_is_ready_only_in_force_and_stalled_where_a_person_has_to_act(
    stage: str, outcome: PolicyOutcome | CandidateOutcome | None, phase: str, reason: str
) -> None:
    found = of(outcome, stage)
    standard = [found[kind] for kind in ("Ready", "Reconciling", "Stalled")]
    assert [one.type for one in standard if one.status == "True"] == [phase]
    assert {one.reason for one in standard} == {reason}


def test_what_waits_for_a_person_names_the_command() -> None:
    found = of(staged(effect=EFFECT), "canary")
    assert found["Ready"].message.splitlines() == [
        "it decides on 10 % of all objects, and what is in force on the others",
        "it waits for a person: `kube-sync stage placementpolicy/web active` puts it into force",
    ]


def test_what_does_not_compile_says_why_in_ready() -> None:
    found = of(PolicyOutcome([cause("rego_parse_error")], held=True), "active")
    assert found["Ready"].message == found["Compiled"].message == "rego_parse_error: why"
