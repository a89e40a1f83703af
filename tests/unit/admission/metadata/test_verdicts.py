"""What a decision does to an object, who does it, and what is printed of that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.admission.metadata.check import judged
from kube_sync.admission.metadata.effects import (
    Change,
    Decision,
    Disagreement,
    Rule,
    Setting,
    changes,
    disagreements,
    in_force,
)
from kube_sync.admission.metadata.objects import Candidate, Request, candidates
from kube_sync.admission.metadata.verdicts import Verdict, answer
from kube_sync.config import Metadata, Settings
from kube_sync.errors import Undecided
from kube_sync.kube.manifests import Document
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policykinds.reports import Report

FINE: dict[str, Any] = {"allowed": True, "reasons": [], "patch": [], "policies": ["a", "b"]}
QOS_KEY = "scheduler.alpha.kubernetes.io/qos"


def decision(**other: Any) -> Decision:
    said = {**FINE, **other}
    return Decision(said["allowed"], *(tuple(said[n]) for n in ("reasons", "patch", "policies")))


def rule(policy: str, index: int, action: Any) -> Rule:
    return Rule(policy, index, {"policyPredicate": {}, "policyAction": action})


def sets(policy: str, value: str, field: str = "updatedLabels") -> Rule:
    return rule(policy, 0, {field: {"k": value}})


def whole(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata}


def subject(**request: Any) -> Candidate:
    return Candidate("ConfigMap", "c", "shop", {"operation": "CREATE"}, **request)


def text(*verdicts: Verdict, **reports: Report) -> str:
    return answer(verdicts, reports, as_json=False).text


def test_last_rule_that_sets_a_key_is_who_changed_it() -> None:
    found = changes(
        whole(labels={"k": "0"}), whole(labels={"k": "2"}), [sets("a", "1"), sets("b", "2")], {}
    )
    assert found == [Change("label", "k", "0", "2", 'metadata policy "b", rule 0')]


def test_quality_of_service_is_who_sets_its_annotation() -> None:
    after = whole(annotations={QOS_KEY: "Burstable", "other": "x"})
    found = changes(whole(annotations={"other": "x"}), after, [], {QOS_KEY: "Burstable"})
    assert found == [Change("annotation", QOS_KEY, None, "Burstable", "quality of service")]


def test_change_that_no_rule_asks_for_is_shown_all_the_same() -> None:
    assert changes({}, whole(labels={"k": "1"}), [], {})[0].by == "nobody says why"


@pytest.mark.parametrize("before", [{}, {"metadata": None}, whole(labels=None), whole(labels=[1])])
def test_what_is_no_map_had_no_key(before: Any) -> None:
    assert changes(before, whole(labels={"k": "1"}), [sets("a", "1")], {})[0].before is None


def test_value_that_is_there_already_is_no_change() -> None:
    same = whole(labels={"k": "1"})
    assert changes(same, same, [sets("a", "1")], {}) == []


def test_rules_that_agree_do_not_conflict() -> None:
    assert disagreements([sets("a", "1"), sets("b", "1")], {}) == []
    assert disagreements([sets("a", "1"), sets("b", "2", "updatedAnnotations")], {}) == []


def test_rules_that_set_different_values_are_told_in_their_order() -> None:
    found = disagreements([sets("a", "1"), sets("b", "2")], {})
    one, two = (Setting(v, f'metadata policy "{p}", rule 0') for p, v in (("a", "1"), ("b", "2")))
    assert found == [Disagreement("label", "k", (one, two))]
    qos = disagreements([sets("a", "mine", "updatedAnnotations")], {"k": "Burstable"})
    assert [setting.by for setting in qos[0].settings] == [
        "quality of service",
        'metadata policy "a", rule 0',
    ]


def test_rules_of_policies_that_had_no_say_do_not_count() -> None:
    assert in_force([sets("a", "1")], decision(policies=[])) == []


def test_where_a_rule_rejects_only_such_rules_count() -> None:
    both = [sets("a", "1"), rule("a", 1, {"reject": True})]
    assert in_force(both, decision(allowed=False, policies=["a"])) == both[1:]
    assert in_force(both, decision()) == both


def test_changes_and_conflicts_and_reasons_are_told() -> None:
    change = Change("label", "k", "0", "2", "b")
    conflict = Disagreement("label", "k", (Setting("1", "a"), Setting("2", "b")))
    found = Verdict(subject(), decision(reasons=["r"]), (), (change,), (conflict,))
    assert text(found).splitlines() == [
        "ConfigMap c in shop, CREATE: admitted, with changes",
        '  label k: "0" → "2" (b)',
        '  conflict: label k, the last one counts: "1" (a), "2" (b)',
        "because:",
        "  r",
    ]


def test_title_tells_what_it_is_and_what_becomes_of_it() -> None:
    cluster = Candidate("Node", "", "", {"operation": "UPDATE"})
    rejected = decision(allowed=False, reasons=["no"])
    assert text(
        Verdict(subject(), decision()),
        Verdict(subject(product="pods"), rejected),
        Verdict(cluster, decision()),
    ).split("\n\n") == [
        "ConfigMap c in shop, CREATE: admitted as it is",
        "pods of ConfigMap c in shop, CREATE: rejected\nbecause:\n  no",
        "Node (no name), of the cluster, UPDATE: admitted as it is",
    ]


def test_rules_at_fault_and_findings_are_told_of_their_policies() -> None:
    reports = {"shop/a": Report(("wrong",), ("odd",)), "shop/b": Report((), ())}
    assert text(Verdict(subject(), decision()), **reports).split("\n\n")[1:] == [
        "rules that apply to nothing, and why:\n  shop/a: wrong",
        "policies that may not mean what they seem to:\n  shop/a: odd",
    ]


def test_what_an_object_says_cannot_move_a_cursor() -> None:
    change = Change("label", "k", "\x1b[2J", "\x9b", "b")
    assert not {"\x1b", "\x9b"} & set(text(Verdict(subject(), decision(), (), (change,))))


@pytest.mark.parametrize("as_json", [True, False])
def test_one_rejection_is_the_exit_status(*, as_json: bool) -> None:
    fine, rejected = (Verdict(subject(), decision(allowed=allowed)) for allowed in (True, False))
    assert answer([fine, rejected], {}, as_json=as_json).status == 1
    assert answer([fine, fine], {}, as_json=as_json).status == 0


def test_json_is_whole() -> None:
    change = Change("label", "k", None, "2", "b")
    conflict = Disagreement("label", "k", (Setting("1", "a"), Setting("2", "b")))
    verdict = Verdict(subject(), decision(), (sets("b", "2"),), (change,), (conflict,))
    found = json.loads(answer([verdict], {"shop/a": Report(("p",), ("f",))}, as_json=True).text)
    assert found == {
        "allowed": True,
        "objects": [
            {
                "kind": "ConfigMap",
                "name": "c",
                "namespace": "shop",
                "podTemplate": False,
                "creates": "",
                "operation": "CREATE",
                **FINE,
                "rules": [{"policy": "b", "rule": 0}],
                "changes": [{"what": "label", "key": "k", "before": None, "after": "2", "by": "b"}],
                "conflicts": [
                    {
                        "what": "label",
                        "key": "k",
                        "settings": [{"value": "1", "by": "a"}, {"value": "2", "by": "b"}],
                    }
                ],
            }
        ],
        "reports": {"shop/a": {"problems": ["p"], "findings": ["f"]}},
    }


class Answers(ScratchOpa):
    """An OPA that gives a fixed answer."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.requests = 1
        self.config: Any = None

    async def evaluated(
        self, _modules: Modules, data: Any, asked: Any, _query: str, _given: Any = ()
    ) -> Any:
        assert data["kubernetes"] == {"metadatapolicies": {"shop": {}}}
        self.config = data["kube_sync"]["config"]
        assert len(asked["requests"]) == self.requests
        return self.value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "gives no decision"),
        ({"decisions": [{"decision": {}}], "reports": {}}, "gives no decision"),
        ({"decisions": [], "reports": {}}, "pipeline is undefined"),
        (
            {
                "decisions": [{"decision": FINE, "after": {}, "qos": {}, "rules": []}],
                "reports": {"shop/a": []},
            },
            "report is no report",
        ),
    ],
    ids=str,
)
async def test_answer_that_is_no_decision_says_nothing_of_the_object(value: Any, said: str) -> None:
    found = candidates(
        [Document("f", {"apiVersion": "v1", "kind": "ConfigMap"})], [], Request(("f",))
    )
    with pytest.raises(Undecided, match=said):
        await judged(found, {"shop": {}}, Settings(), {}, Answers(value))


async def one(whole: Any, settings: Settings | None = None, **decided: Any) -> Any:
    """Return the verdict on an object that a rule would reject, or annotate."""
    found = candidates([Document("f", whole)], [], Request(("f",)))
    value = {"decision": {**FINE, **decided}, "after": whole, "qos": {}, "rules": []}
    answers = Answers({"decisions": [value], "reports": {}})
    (verdicts, _) = await judged(found, {"shop": {}}, settings or Settings(), {}, answers)
    return verdicts[0], answers.config


@pytest.mark.parametrize(
    ("version", "kind", "namespace", "said"),
    [
        ("v1", "ConfigMap", "kube-system", "the namespace kube-system is exempt"),
        ("v1", "ConfigMap", "kube-sync", "the namespace kube-sync is exempt"),
        ("v1", "Event", "shop", "no policy applies to the kind Event"),
        ("events.k8s.io/v1", "Event", "shop", "no policy applies to the kind Event"),
        ("coordination.k8s.io/v1", "Lease", "shop", "no policy applies to the kind Lease"),
        ("v1", "Binding", "shop", "no policy applies to the kind Binding"),
        ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "shop", "no policy applies"),
    ],
)
async def test_what_the_webhook_is_not_asked_about_is_admitted_and_says_so(
    version: str, kind: str, namespace: str, said: str
) -> None:
    metadata = {"name": "it", "namespace": namespace}
    whole = {"apiVersion": version, "kind": kind, "metadata": metadata}
    verdict, _ = await one(whole, allowed=False)
    answered = answer([verdict], {}, as_json=False)
    assert answered.status == 0
    assert answered.text.startswith(f"{kind} it in {namespace}, CREATE: admitted as it is\n")
    assert f"\n  {said}" in answered.text


async def test_configuration_of_the_rules_is_theirs_in_a_check_too() -> None:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}}
    _, config = await one(whole, Settings(metadata=Metadata(qos=False)))
    assert config == {"metadata": {"qos": False}}


async def test_policy_in_an_exempt_namespace_is_reported_as_applying_to_nothing() -> None:
    reports = {"kube-system/p": {"problems": ["spec.x: unknown"], "findings": []}}
    answers = Answers({"decisions": [], "reports": reports})
    answers.requests = 0
    _, found = await judged([], {"shop": {}}, Settings(), {}, answers)
    assert found["kube-system/p"].problems == (
        "the namespace kube-system is exempt: the webhook is not asked about its objects",
        "spec.x: unknown",
    )
