"""What GitOps tools wait for: policies on a real API server, as kstatus and Argo CD judge them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kube_sync.kube.policymaps import STATUS
from tests.eventually import eventually
from tests.fakes.manifests import build
from tests.integration.test_pair import ROOT
from tests.kstatus import CURRENT, FAILED, IN_PROGRESS, computed
from tools.demo.components import start_service
from tools.demo.fleet import POLICIES
from tools.servers.kstatus import verdicts
from tools.servers.manifests import manifests_of
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

KINDS: Final = ROOT / "manifests/crds"
HEALTH: Final = {CURRENT: "Healthy", IN_PROGRESS: "Progressing", FAILED: "Degraded"}
PREFIX: Final = "resource.customizations.health."
BROKEN: Final = "package broken\n\np contains }\n"
GROUP: Final = "policy.kube-sync.io"

Json = dict[str, Any]


def placement(name: str, rego: str, stage: str = "active", namespace: str = POLICIES) -> Json:
    spec = {"modules": [{"name": "a.rego", "rego": rego}], "stage": stage}
    return policy("PlacementPolicy", name, spec, namespace)


def policy(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    version = f"{GROUP}/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def configmap(name: str, data: Mapping[str, str], namespace: str = POLICIES, **labels: str) -> Json:
    marks = {f"kube-sync.io/{label}": value for label, value in labels.items()}
    metadata = {"name": name, "namespace": namespace} | ({"labels": marks} if marks else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def metadata_policy(name: str, predicate: Json) -> Json:
    rule = {"policyPredicate": predicate, "policyAction": {"reject": True}}
    return policy("MetadataPolicy", name, {"rules": [rule]}, "default")


def canary(name: str) -> Json:
    found = placement(name, "package canary\n\np := 1\n", "canary")
    found["metadata"]["annotations"] = {"kube-sync.io/canary-share": "0.1"}
    return found


OBJECTS: Final[list[tuple[Json, str]]] = [
    (placement("good", "package good\n\np := 1\n"), CURRENT),
    (placement("broken", BROKEN), FAILED),
    (canary("canary"), IN_PROGRESS),
    (placement("candidate", "package a\n\np := 1\n", "candidate"), IN_PROGRESS),
    (placement("candidate-broken", BROKEN, "candidate"), FAILED),
    (placement("shadow", "package b\n\np := 1\n", "shadow"), IN_PROGRESS),
    (placement("elsewhere", "package c\n", namespace="default"), IN_PROGRESS),
    (metadata_policy("good", {"labelSelector": {"matchLabels": {"a": "b"}}}), CURRENT),
    (metadata_policy("broken", {"labelSelektor": {}}), FAILED),
    (policy("SchedulingPolicy", "good", {"allowed": {"schedulerNames": []}}), CURRENT),
    (policy("SchedulingPolicy", "broken", {"allowed": {"nodeSelektors": {}}}), FAILED),
]
# kstatus knows nothing of them: it calls each ConfigMap current.
CONFIGMAPS: Final[list[tuple[Json, str]]] = [
    (configmap("good", {"a.rego": "package configmaps.good\n\np := 1\n"}), CURRENT),
    (configmap("broken", {"a.rego": BROKEN}), FAILED),
    (configmap("shadow", {"a.rego": "package d\n\np := 1\n"}, stage="shadow"), IN_PROGRESS),
    (configmap("broken-candidate", {"a.rego": BROKEN}, stage="candidate"), FAILED),
]
UNTOLD: Final[list[tuple[Json, str]]] = [
    (configmap("plain", {"a": "b"}, "default"), CURRENT),
    (configmap("not-seen-yet", {"a.rego": "package a\n"}), IN_PROGRESS),
]


@dataclass
class World:
    """A stack, and a replicator that can be started again, as for an upgrade."""

    stack: RunningStack
    folder: Path
    replicator: RunningServer | None = None

    def start(self) -> None:
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["replicator"])},
            "opa": self.stack.opa_settings(),
            "decisions": self.stack.endpoint.server(),
            "builtin": ["metadata", "scheduling"],
        }
        self.replicator = start_service("replicate", self.folder, configuration)

    def stop(self) -> None:
        if self.replicator is not None:
            self.replicator.stop()

    def found(self, wanted: Json) -> Json:
        metadata = wanted["metadata"]
        plural = wanted["kind"].lower().replace("policy", "policies").replace("map", "maps")
        found: Json = self.stack.api.get(plural, metadata["name"], metadata.get("namespace", ""))
        return found

    def annotation(self, wanted: Json) -> str:
        return str(self.found(wanted)["metadata"].get("annotations", {}).get(STATUS, ""))

    def kstatus(self, wanted: Json) -> str:
        return computed(self.found(wanted))

    def ready_generation(self, wanted: Json) -> int | None:
        """Return the generation of which it is said to be ready."""
        conditions = self.found(wanted)["status"].get("conditions", ())
        (ready,) = (one for one in conditions if one["type"] == "Ready")
        return ready["observedGeneration"] if ready["status"] == "True" else None

    def table(self, wanted: Json) -> dict[str, str]:
        """Return what `kubectl get` prints of it, by column."""
        metadata = wanted["metadata"]
        namespace = f"--namespace={metadata['namespace']}"
        lines = self.stack.kubectl("get", wanted["kind"], metadata["name"], namespace).splitlines()
        return dict(zip(lines[0].split(), lines[1].split(), strict=True))


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("gitops")
    with furnished_stack(launcher, folder / "stack") as stack:
        stack.apply(ROOT / "manifests/metadata-rbac", ROOT / "manifests/scheduling-rbac")
        stack.install_kinds(KINDS)
        for wanted, _ in (*OBJECTS, *CONFIGMAPS):
            stack.api.apply(wanted, strict=False)
        world = World(stack, folder / "replicate")
        world.start()
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
async def world(module_world: World) -> World:
    """Everything has been looked at."""
    for wanted, expected in OBJECTS:
        await eventually(partial(module_world.kstatus, wanted), expected)
    for wanted, _ in CONFIGMAPS:
        await eventually(partial(module_world.annotation, wanted))
    return module_world


async def test_policy_is_current_only_without_trouble_and_nothing_to_wait_for(
    world: World,
) -> None:
    broken, _ = OBJECTS[1]
    candidate, _ = OBJECTS[3]
    assert world.table(broken)["READY"] == "False"
    said = {one["type"]: one for one in world.found(candidate)["status"]["conditions"]}
    assert said["Reconciling"]["reason"] == "AwaitingApproval"
    assert "`kube-sync stage placementpolicy/candidate active`" in said["Ready"]["message"]


async def test_scripts_are_added_to_the_settings_of_argo_cd_that_are_there(world: World) -> None:
    api = world.stack.api
    api.create_namespace("argocd")
    api.apply(configmap("argocd-cm", {"url": "https://argocd.example.com"}, "argocd"))
    (scripts,) = build("argocd-policy-health")
    api.apply(scripts, manager="kube-sync-health")
    data = api.get("configmaps", "argocd-cm", "argocd")["data"]
    assert data.pop("url") == "https://argocd.example.com"
    kinds = ["PlacementPolicy", "SchedulingPolicy", "MetadataPolicy"]
    assert set(data) == {f"{PREFIX}ConfigMap", *(f"{PREFIX}{GROUP}_{kind}" for kind in kinds)}


@pytest.mark.built("kstatus")
async def test_kstatus_itself_and_the_lua_of_argo_cd_say_the_same(world: World) -> None:
    (scripts,) = build("argocd-policy-health")
    told = [(world.found(wanted), expected) for wanted, expected in (*OBJECTS, *CONFIGMAPS)]
    cases = [*told, *UNTOLD]
    said = verdicts((found, script_for(scripts, found)) for found, _ in cases)
    for (found, expected), verdict in zip(cases, said, strict=True):
        assert verdict["health"]["status"] == HEALTH[expected], (found, verdict)
        is_ours = found["kind"] != "ConfigMap"
        assert verdict["status"] == (expected if is_ours else CURRENT), (found, verdict)
        if is_ours:
            assert verdict["status"] == computed(found)
    assert "rego_parse_error" in said[1]["health"]["message"]


def script_for(scripts: Json, found: Json) -> str:
    """Return the script that Argo CD runs for an object, by the key of its settings."""
    group, _, _ = found["apiVersion"].rpartition("/")
    key = f"{PREFIX}{group}_{found['kind']}" if group else f"{PREFIX}{found['kind']}"
    return str(scripts["data"][key])


@pytest.mark.slow  # unit/policies/test_placementpolicy_status.py
async def test_definition_without_the_field_gets_conditions_and_a_newer_one_the_field(
    world: World,
) -> None:
    api, (good, _) = world.stack.api, OBJECTS[0]
    world.stop()
    for definition in older(KINDS / "placementpolicies.yaml"):
        api.apply(definition, force=True)
        await eventually(lambda: "observedGeneration" not in world.found(good)["status"])
    edited = placement("good", "package good\n\np := 2\n")
    api.apply(edited)
    world.start()
    await eventually(lambda: world.ready_generation(good) == 2)
    assert "observedGeneration" not in world.found(good)["status"]
    world.stop()
    world.stack.install_kinds(KINDS)
    await eventually(partial(world.kstatus, good), IN_PROGRESS)  # until the new version has looked
    world.start()
    await eventually(partial(world.kstatus, good), CURRENT)
    assert world.found(good)["status"]["observedGeneration"] == 2


def older(path: Path) -> Iterator[Json]:
    """Yield a definition as it was before statuses had observedGeneration."""
    for found in manifests_of(path):
        definition = copy.deepcopy(dict(found))
        (version,) = definition["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        del status["default"], status["properties"]["observedGeneration"]
        yield definition
