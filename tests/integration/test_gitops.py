"""What GitOps tools wait for: policies on a real API server, as kstatus and Argo CD judge them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kube_sync.kube.policymaps import STATUS
from kube_sync.policies.configmap_status import WAITING, account
from tests.eventually import eventually
from tests.fakes.manifests import build
from tests.integration.builtin_world import Json, World, policy
from tests.integration.test_pair import ROOT
from tests.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, computed
from tools.demo.fleet import POLICIES
from tools.servers.errors import ToolError
from tools.servers.kstatus import Question, verdicts
from tools.servers.manifests import manifests_of
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

KINDS: Final = ROOT / "manifests/crds"
HEALTH: Final = {
    CURRENT: "Healthy",
    IN_PROGRESS: "Progressing",
    TERMINATING: "Progressing",
    FAILED: "Degraded",
}
PREFIX: Final = "resource.customizations."
GROUP: Final = "policy.kube-sync.io"
BROKEN: Final = "package broken\n\np contains }\n"
FINALIZER: Final = "example.com/kept"


@dataclass(frozen=True)
class State:
    """A policy in a state; `status` is what kstatus makes of it."""

    name: str
    wanted: Json
    status: str
    reason: str = ""  # of Ready
    first: Json | None = None  # what it was before

    def __str__(self) -> str:
        return f"{self.wanted['kind']} {self.name}"


def placement(name: str, rego: str, stage: str = "active", namespace: str = POLICIES) -> Json:
    spec = {"modules": [{"name": "a.rego", "rego": rego}], "stage": stage}
    return policy("PlacementPolicy", name, spec, namespace)


def marked(found: Json, where: str, **marks: str) -> Json:
    """Return an object with these of our `labels` or `annotations`."""
    found["metadata"][where] = {
        f"kube-sync.io/{name.replace('_', '-')}": value for name, value in marks.items()
    }
    return found


def leaving(found: Json) -> Json:
    found["metadata"]["finalizers"] = [FINALIZER]
    return found


def configmap(name: str, data: Mapping[str, str], namespace: str = POLICIES, **labels: str) -> Json:
    marks = {f"kube-sync.io/{label}": value for label, value in labels.items()}
    metadata = {"name": name, "namespace": namespace} | ({"labels": marks} if marks else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def labelled(name: str, label: str, value: str) -> Json:
    """Return a ConfigMap with one of kube-mgmt's labels."""
    found = configmap(name, {"a.rego": "1"}, "default" if label == "policy" else POLICIES)
    found["metadata"]["labels"] = {f"openpolicyagent.org/{label}": value}
    return found


def told(found: Json, status: str) -> Json:
    """Return a ConfigMap with this status annotation."""
    found["metadata"]["annotations"] = {STATUS: status}
    return found


def metadata_policy(
    name: str, predicate: Json, value: str = "", namespace: str = "default"
) -> Json:
    action = {"updatedLabels": {"a": value}} if value else {"reject": True}
    rule = {"policyPredicate": predicate, "policyAction": action}
    return policy("MetadataPolicy", name, {"rules": [rule]}, namespace)


def scheduling_policy(name: str, **allowed: Any) -> Json:
    return policy("SchedulingPolicy", name, {"allowed": allowed})


SELECTED: Final = {"labelSelector": {"matchLabels": {"a": "b"}}}
RIVALS: Final = "package rivals\n\ndefault p := "
STATES: Final = [
    State("in force", placement("good", "package good\n\np := 1\n"), CURRENT, "InForce"),
    State("that does not compile", placement("broken", BROKEN), FAILED, "CompileError"),
    State(
        "whose last good version is in force",
        placement("edited", BROKEN.replace("broken", "edited")),
        FAILED,
        "CompileError",
        placement("edited", "package edited\n\np := 1\n"),
    ),
    State("in whose way another is", placement("rival-a", f"{RIVALS}1\n"), CURRENT, "InForce"),
    State("in the way of another", placement("rival-b", f"{RIVALS}2\n"), FAILED, "CompileError"),
    State("forbidden", placement("forbidden", "package system.log\n\nmask := 1\n"), FAILED),
    State(
        "waiting for approval as a candidate",
        placement("candidate", "package a\n\np := 1\n", "candidate"),
        IN_PROGRESS,
        "AwaitingApproval",
    ),
    State(
        "a candidate that does not compile",
        placement("candidate-broken", BROKEN, "candidate"),
        FAILED,
        "CompileError",
    ),
    State(
        "waiting for approval as a shadow",
        placement("shadow", "package b\n\np := 1\n", "shadow"),
        IN_PROGRESS,
        "AwaitingApproval",
    ),
    State(
        "a canary that is counted or decides",
        marked(
            placement("canary", "package canary\n\np := 1\n", "canary"),
            "annotations",
            canary_share="0.1",
        ),
        IN_PROGRESS,
    ),
    State(
        "of an unknown stage",
        marked(placement("unknown", "package c\n\np := 1\n"), "labels", stage="later"),
        FAILED,
        "UnknownStage",
    ),
    State(
        "that nobody reads", placement("elsewhere", "package d\n", "active", "default"), IN_PROGRESS
    ),
    State("being deleted", leaving(placement("leaving", "package e\n\np := 1\n")), TERMINATING),
    State("in force", metadata_policy("good", SELECTED), CURRENT, "Valid"),
    State("with a fault", metadata_policy("broken", {"labelSelektor": {}}), FAILED, "Invalid"),
    State("that contradicts another", metadata_policy("one", {}, "x"), CURRENT, "Valid"),
    State("that another contradicts", metadata_policy("other", {}, "y"), CURRENT, "Valid"),
    State(
        "in an exempt namespace",
        metadata_policy("exempt", SELECTED, namespace="kube-system"),
        FAILED,
        "NamespaceExempt",
    ),
    State("being deleted", leaving(metadata_policy("leaving", SELECTED)), TERMINATING),
    State("in force", scheduling_policy("good", schedulerNames=[]), CURRENT, "Valid"),
    State("with a fault", scheduling_policy("broken", nodeSelektors={}), FAILED, "Invalid"),
    State("being deleted", leaving(scheduling_policy("leaving")), TERMINATING),
]
# kstatus knows nothing of them: it calls each ConfigMap current.
CONFIGMAPS: Final = [
    State(
        "in force", configmap("good", {"a.rego": "package configmaps.good\n\np := 1\n"}), CURRENT
    ),
    State("that does not compile", configmap("broken", {"a.rego": BROKEN}), FAILED),
    State(
        "waiting for approval as a shadow",
        configmap("shadow", {"a.rego": "package f\n\np := 1\n"}, stage="shadow"),
        IN_PROGRESS,
    ),
    State(
        "a candidate that does not compile",
        configmap("candidate", {"a.rego": BROKEN}, stage="candidate"),
        FAILED,
    ),
]
_WAITING: Final = account([{"code": WAITING, "message": "others are tried"}], (), in_force=False)
UNTOLD: Final = [
    State("that is no policy", configmap("plain", {"a": "b"}, "default"), CURRENT),
    State("that is no policy, beside policies", configmap("notes", {"a.rego.txt": ""}), CURRENT),
    State("of data", labelled("data", "data", "opa"), CURRENT),
    State("not looked at yet, by its label", labelled("labelled", "policy", "rego"), IN_PROGRESS),
    State("not looked at yet", configmap("not-seen-yet", {"a.rego": "package a\n"}), IN_PROGRESS),
    State(
        "with binary data, not looked at yet",
        configmap("binary", {}) | {"binaryData": {"a.rego": "//4="}},
        IN_PROGRESS,
    ),
    State("waiting", told(configmap("waiting", {"a.rego": ""}), _WAITING), IN_PROGRESS),
    State("halted", told(configmap("halted", {"a.rego": ""}), '{"status":"halted"}'), FAILED),
]


@dataclass
class Policies:
    """All states, in a world with a replicator."""

    world: World
    scripts: Json = field(default_factory=dict)  # the settings of Argo CD

    def found(self, state: State) -> Json:
        """Return the policy of a state as it is now."""
        metadata = state.wanted["metadata"]
        plural = state.wanted["kind"].lower().replace("policy", "policies").replace("map", "maps")
        found: Json = self.world.found(plural, metadata["name"], metadata.get("namespace", ""))
        return found

    def annotation(self, state: State) -> str:
        return str(self.found(state)["metadata"].get("annotations", {}).get(STATUS, ""))

    def kstatus(self, state: State) -> str:
        return computed(self.found(state))

    def ready(self, state: State) -> Json:
        """Return the condition Ready, {} where there is none."""
        conditions = self.found(state)["status"].get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {})

    def apply(self, *states: State) -> None:
        for state in states:
            self.world.apply(state.wanted)

    def question(self, found: Json) -> Question:
        """Return what Argo CD is asked about an object, by the keys of its settings."""
        group, _, _ = found["apiVersion"].rpartition("/")
        of = f"{group}_{found['kind']}" if group else found["kind"]
        is_open = self.scripts.get(f"{PREFIX}useOpenLibs.{of}") == "true"
        return Question(found, self.scripts[f"{PREFIX}health.{of}"], is_open)


@pytest.fixture(scope="module")
def module_policies(
    launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Policies]:
    folder = tmp_path_factory.mktemp("gitops")
    with furnished_stack(launcher, folder / "stack") as stack:
        stack.apply(ROOT / "manifests/metadata-rbac", ROOT / "manifests/scheduling-rbac")
        stack.install_kinds(KINDS)
        world = World(stack, folder / "replicate", ("metadata", "scheduling"))
        (scripts,) = build("argocd-policy-health")
        policies = Policies(world, scripts["data"])
        for state in STATES:
            world.apply(state.first or state.wanted)
        policies.apply(*CONFIGMAPS)
        world.start()
        try:
            yield policies
        finally:
            world.stop()


@pytest.fixture
async def policies(module_policies: Policies) -> Policies:
    """Everything has been looked at, and what comes second is applied."""
    found = module_policies
    for state in STATES:
        metadata = found.found(state)["metadata"]
        if state.first is not None and metadata["generation"] == 1:
            await eventually(partial(found.kstatus, state), CURRENT)
            found.apply(state)
        if FINALIZER in metadata.get("finalizers", ()) and "deletionTimestamp" not in metadata:
            await eventually(partial(found.kstatus, state), CURRENT)
            kind, name = state.wanted["kind"], metadata["name"]
            plural = kind.lower().replace("policy", "policies")
            found.world.stack.api.delete(plural, name, metadata.get("namespace", ""))
    for state in STATES:
        await eventually(partial(found.kstatus, state), state.status)
    for state in CONFIGMAPS:
        await eventually(partial(found.annotation, state))
    return found


def test_every_kind_of_ours_is_in_the_table_in_force_and_being_deleted() -> None:
    kinds = {
        definition["spec"]["names"]["kind"]
        for file in KINDS.glob("*policies.yaml")
        for definition in manifests_of(file)
    }
    for status in (CURRENT, FAILED, TERMINATING):
        assert {s.wanted["kind"] for s in STATES if s.status == status} == kinds


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_policy_in_a_state_is(policies: Policies, state: State) -> None:
    assert policies.kstatus(state) == state.status
    ready = policies.ready(state)
    assert ready.get("reason", "") == state.reason or not state.reason
    standard = [
        one["type"]
        for one in policies.found(state)["status"].get("conditions", ())
        if one["type"] in ("Ready", "Reconciling", "Stalled") and one["status"] == "True"
    ]
    assert len(standard) == bool(ready)


async def test_kubectl_shows_and_waits_for_what_is_ready(policies: Policies) -> None:
    (candidate,) = (one for one in STATES if one.wanted["metadata"]["name"] == "candidate")
    message = policies.ready(candidate)["message"]
    assert "`kube-sync stage placementpolicy/candidate active`" in message
    kubectl = partial(policies.world.stack.kubectl, f"--namespace={POLICIES}")
    header, row = kubectl("get", "placementpolicy/broken").splitlines()
    assert dict(zip(header.split(), row.split(), strict=True))["READY"] == "False"
    wait = ("wait", "--for=condition=Ready")
    assert "condition met" in kubectl(*wait, "placementpolicy/good", "--timeout=1m")
    with pytest.raises(ToolError, match="condition not met"):
        kubectl(*wait, "placementpolicy/broken", "--timeout=0s")


async def test_scripts_are_added_to_the_settings_of_argo_cd_that_are_there(
    policies: Policies,
) -> None:
    api = policies.world.stack.api
    api.create_namespace("argocd")
    api.apply(configmap("argocd-cm", {"url": "https://argocd.example.com"}, "argocd"))
    (scripts,) = build("argocd-policy-health")
    api.apply(scripts, manager="kube-sync-health")
    data = api.get("configmaps", "argocd-cm", "argocd")["data"]
    assert data.pop("url") == "https://argocd.example.com"
    kinds = ["PlacementPolicy", "SchedulingPolicy", "MetadataPolicy"]
    assert set(data) == {
        f"{PREFIX}health.ConfigMap",
        f"{PREFIX}useOpenLibs.ConfigMap",
        *(f"{PREFIX}health.{GROUP}_{kind}" for kind in kinds),
    }


@pytest.mark.built("kstatus")
@pytest.mark.parametrize("state", [*STATES, *CONFIGMAPS, *UNTOLD], ids=str)
async def test_kstatus_flux_and_argo_cd_agree_on(policies: Policies, state: State) -> None:
    found = state.wanted if state in UNTOLD else policies.found(state)
    (verdict,) = verdicts([policies.question(found)])
    assert verdict["health"]["status"] == HEALTH[state.status], verdict
    if found["kind"] == "ConfigMap":
        assert verdict["status"] == CURRENT
        return
    assert verdict["status"] == state.status == computed(found)
    if state.status == FAILED:  # Flux and Argo CD show it
        assert verdict["health"]["message"] == policies.ready(state)["message"]


@pytest.mark.slow  # unit/policykinds/test_condition_writer.py
async def test_edit_is_waited_for_while_opa_is_away(policies: Policies) -> None:
    """It is neither healthy nor failed, and what was not edited stays as it was."""
    world, good = policies.world, [one for one in STATES if one.name == "in force"]
    edits = [
        placement("good", "package good\n\np := 2\n"),
        metadata_policy("good", SELECTED, "z"),
        scheduling_policy("good", schedulerNames=["mine"]),
    ]
    other = next(one for one in STATES if one.wanted["metadata"]["name"] == "rival-a")
    world.stack.opa.stop()
    try:
        for edit in edits:
            world.apply(edit)
        for system in ("metadata", "scheduling"):
            await world.ready(f"{system} conditions", "OPA")
        assert {policies.kstatus(state) for state in good} == {IN_PROGRESS}
        assert policies.kstatus(other) == CURRENT
    finally:
        world.stack.opa.start()
    for state in good:
        await eventually(partial(policies.kstatus, state), CURRENT)


@pytest.mark.slow  # unit/policies/test_placementpolicy_status.py
async def test_definition_without_the_field_gets_conditions_and_a_newer_one_the_field(
    policies: Policies,
) -> None:
    world, good = policies.world, STATES[0]

    def ready_generation() -> int | None:
        """Return the generation of which it is said to be ready."""
        ready = policies.ready(good)
        return ready["observedGeneration"] if ready["status"] == "True" else None

    world.stop()
    for definition in older(KINDS / "placementpolicies.yaml"):
        world.stack.api.apply(definition, force=True)
        await eventually(lambda: "observedGeneration" not in policies.found(good)["status"])
    world.apply(placement("good", "package good\n\np := 3\n"))
    generation = policies.found(good)["metadata"]["generation"]
    world.start()
    await eventually(ready_generation, generation)
    assert "observedGeneration" not in policies.found(good)["status"]
    world.stop()
    world.stack.install_kinds(KINDS)
    # Until the new version has looked.
    await eventually(partial(policies.kstatus, good), IN_PROGRESS)
    world.start()
    await eventually(partial(policies.kstatus, good), CURRENT)
    assert policies.found(good)["status"]["observedGeneration"] == generation


def older(path: Path) -> Iterator[Json]:
    """Yield a definition as it was before statuses had observedGeneration."""
    for found in manifests_of(path):
        definition = copy.deepcopy(dict(found))
        (version,) = definition["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        del status["default"], status["properties"]["observedGeneration"]
        yield definition
