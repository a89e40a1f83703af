"""What is printed of verdicts, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube_sync.admission.scheduling.check import judged
from kube_sync.admission.scheduling.evidence import Evidence
from kube_sync.admission.scheduling.pods import Account, Candidate, Request, candidates
from kube_sync.admission.scheduling.verdicts import Decision, Verdict, answer
from kube_sync.config import Coordination, Scheduling, Settings
from kube_sync.errors import Undecided
from kube_sync.kube.manifests import Document
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policykinds.reports import Report

POD = Candidate("Pod", "web", Account("team-a", "default"), {})
FINE = {"allowed": True, "reasons": [], "patch": [], "policies": ["a"]}


def denied(*reasons: str, policies: tuple[str, ...] = ("a", "b")) -> Verdict:
    return Verdict(POD, Decision(allowed=False, reasons=reasons, patch=(), policies=policies))


def admitted(*patch: Any) -> Verdict:
    decision = Decision(allowed=True, reasons=(), patch=patch, policies=("a",))
    return Verdict(POD, decision, {"allowed": {"schedulerNames": ["x"]}})


def text(*verdicts: Verdict, **reports: Report) -> str:
    return answer(verdicts, reports, as_json=False).text


def test_denial_gives_its_reasons_and_the_policies() -> None:
    assert text(denied("spec.x: no", "spec.y: no")).splitlines() == [
        "Pod web as system:serviceaccount:team-a:default: denied",
        "  spec.x: no",
        "  spec.y: no",
        "policies: a, b",
    ]


def test_admission_shows_the_merged_policy_and_what_would_be_added() -> None:
    change = {"op": "add", "path": "/spec/schedulerName", "value": "x"}
    assert text(admitted(change)).splitlines() == [
        "Pod web as system:serviceaccount:team-a:default: admitted",
        "policies: a",
        "merged:",
        "  allowed:",
        "    schedulerNames:",
        "    - x",
        "changes:",
        "  - op: add",
        "    path: /spec/schedulerName",
        "    value: x",
    ]


def test_nobody_is_merged_where_no_policy_may_be_used() -> None:
    assert text(denied("no", policies=())).endswith("policies: none that it may use")


def test_without_any_policy_every_pod_is_admitted() -> None:
    found = answer([Verdict(POD)], {}, as_json=False)
    assert found.status == 0
    assert found.text.endswith("\n  there is no SchedulingPolicy: every pod is admitted")


def test_policies_that_are_not_used_are_told_with_why() -> None:
    reports = {
        "b": Report(("spec.x: unknown",), ()),
        "a": Report((), ("terms are ORed", "nobody")),
        "c": Report((), ()),
    }
    assert text(admitted(), **reports).split("\n\n")[1:] == [
        "policies that are not used, and why:\n  b: spec.x: unknown",
        "policies that may not mean what they seem to:\n  a: terms are ORed\n  a: nobody",
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_one_denial_is_the_exit_status(*, as_json: bool) -> None:
    assert answer([admitted(), denied("no")], {}, as_json=as_json).status == 1
    assert answer([admitted(), admitted()], {}, as_json=as_json).status == 0


def test_json_is_whole() -> None:
    verdicts = [admitted({"op": "remove", "path": "/x"}), Verdict(POD), denied("no")]
    found = json.loads(answer(verdicts, {"a": Report(("p",), ("f",))}, as_json=True).text)
    assert (found["allowed"], len(found["pods"])) == (False, 3)
    assert found["pods"][0] == {
        "kind": "Pod",
        "name": "web",
        "namespace": "team-a",
        "serviceAccount": "default",
        "allowed": True,
        "reasons": [],
        "policies": ["a"],
        "patch": [{"op": "remove", "path": "/x"}],
        "merged": {"allowed": {"schedulerNames": ["x"]}},
    }
    assert found["pods"][1]["allowed"] is True
    assert found["reports"] == {"a": {"problems": ["p"], "findings": ["f"]}}


def test_what_a_pod_says_cannot_move_a_cursor() -> None:
    assert "\x1b" not in text(denied("spec.x: \x1b[2J"))


class Answers(ScratchOpa):
    """An OPA that gives a fixed answer."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.data: Any = None

    async def evaluated(
        self, _modules: Modules, data: Any, asked: Any, _query: str, _given: Any = ()
    ) -> Any:
        self.data = data
        self.asked: list[Any] = asked["requests"]
        return self.value


async def judge(value: Any, settings: Settings | None = None, **whole: Any) -> Any:
    document = Document("f", {"apiVersion": "v1", "kind": "Pod", **whole})
    pods = candidates([document], Request(("f",)))
    engine = Answers(value)
    found = await judged(pods, Evidence(), settings or Settings(), {}, engine)
    return found, engine.data


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "gives no decision"),
        ({"decisions": [{"decision": {}, "merged": []}], "reports": {}}, "gives no decision"),
        (
            {"decisions": [{"decision": FINE | {"allowed": "yes"}, "merged": []}], "reports": {}},
            "gives no decision",
        ),
        ({"decisions": [], "reports": {}}, "decision is undefined"),
    ],
    ids=str,
)
async def test_answer_that_is_no_decision_says_nothing_of_the_pod(value: Any, said: str) -> None:
    with pytest.raises(Undecided, match=said):
        await judge(value)


async def test_configuration_is_part_of_what_is_judged_by() -> None:
    value = {"decisions": [{"decision": FINE, "merged": []}], "reports": {}}
    settings = Settings(scheduling=Scheduling(merge_option=3, user_may_use=True))
    ((verdicts, _), data) = await judge(value, settings)
    assert (verdicts[0].allowed, verdicts[0].merged) == (True, None)
    config = data["kube_sync"]["config"]["scheduling"]
    assert config == msgspec.to_builtins(settings.scheduling)
    assert config["merge_option"] == 3


@pytest.mark.parametrize("namespace", ["kube-system", "ours"])
async def test_pod_of_an_exempt_namespace_is_admitted_because_nobody_is_asked(
    namespace: str,
) -> None:
    settings = Settings(coordination=Coordination(namespace=namespace))
    value = {"decisions": [{"decision": {**FINE, "allowed": False}, "merged": []}], "reports": {}}
    found, _ = await judge(value, settings, metadata={"name": "web", "namespace": namespace})
    answered = answer(*found, as_json=False)
    assert (answered.status, answered.text.splitlines()) == (
        0,
        [
            f"Pod web as system:serviceaccount:{namespace}:default: admitted",
            f"  the namespace {namespace} is exempt: the webhook is not asked about its objects",
        ],
    )


class Turns(Answers):
    """An OPA that gives its answers in turn."""

    async def evaluated(
        self, modules: Modules, data: Any, asked: Any, query: str, _given: Any = ()
    ) -> Any:
        answers = self.value
        self.value = answers[0]
        found = await super().evaluated(modules, data, asked, query)
        self.value = answers[1:]
        return found


async def daemonset(*answers: Any) -> Any:
    """Return the verdict on a DaemonSet by the answers about it and about its pods."""
    spec: Any = {"template": {"spec": {}}}
    whole = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    pods = candidates([Document("f", whole)], Request(("f",)))
    turns = Turns([{"decisions": [one], "reports": {}} for one in answers])
    (verdicts, _) = await judged(pods, Evidence(), Settings(), {}, turns)
    return verdicts[0], turns.asked[0]["object"], turns.data


@pytest.mark.parametrize(
    ("written", "made", "reasons"),
    [(False, True, ("written",)), (True, False, ("made",)), (True, True, ())],
)
async def test_daemonset_is_denied_when_it_is_written_or_by_its_pods(
    *, written: bool, made: bool, reasons: Any
) -> None:
    decisions = [
        {"decision": {**FINE, "allowed": ok, "reasons": [] if ok else [name]}, "merged": []}
        for name, ok in (("written", written), ("made", made))
    ]
    verdict, *_ = await daemonset(*decisions)
    assert verdict.decision.reasons == reasons


async def test_pods_of_a_daemonset_are_of_the_template_that_is_stored() -> None:
    first = {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"a": "b"}}
    after = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    second = {"op": "add", "path": "/spec/priorityClassName", "value": "gold"}
    verdict, pod, data = await daemonset(
        {"decision": {**FINE, "patch": [first]}, "after": [after], "merged": []},
        {"decision": {**FINE, "patch": [second]}, "merged": []},
    )
    assert pod["spec"]["nodeSelector"] == {"a": "b"}
    assert "nodeAffinity" in pod["spec"]["affinity"]
    assert verdict.decision.patch == (first, second)
    assert data["kubernetes"]["daemonsets"] == {"default": {"d": after}}


async def test_pod_is_judged_as_the_api_server_fills_it_in() -> None:
    value = {"decisions": [{"decision": FINE, "merged": []}], "reports": {}}
    rules = Scheduling(global_default_priority_class="common", injected_toleration_seconds=7)
    pods = candidates(
        [Document("f", {"apiVersion": "v1", "kind": "Pod", "spec": {}})], Request(("f",))
    )
    engine = Answers(value)
    await judged(pods, Evidence(), Settings(scheduling=rules), {}, engine)
    spec = engine.asked[0]["object"]["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("default-scheduler", "common")
    assert [one["tolerationSeconds"] for one in spec["tolerations"]] == [7, 7]
