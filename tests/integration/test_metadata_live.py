"""Labels and annotations by policy, on a real API server: every kind, and what is left alone."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.manifests import build
from tests.integration.scheduling_world import (
    MUTATING,
    ROOT,
    World,
    pod,
    service_account,
    system_world,
)
from tests.integration.test_qos_live import CLASSES, QOS, Pods
from tests.metadata.pods import pod as generated
from tests.parts import quickly
from tools.servers.errors import ToolError
from tools.servers.running import Launcher, free_port

POLICIES = "metadatapolicies.policy.kube-sync.io"
SCHEDULER = "scheduler.alpha.kubernetes.io/name"
_OF_EACH = 200
RESOURCES = {
    "Guaranteed": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "Burstable": {"requests": {"cpu": "1"}},
    "BestEffort": {},
}


@pytest.fixture(scope="module")
def ready(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("metadata")
    with system_world(launcher, folder, "metadata", {"qos": True}) as world:
        world.stack.install_kinds(ROOT / "manifests/crds")
        world.register()
        yield world


@pytest.fixture
async def world(ready: World) -> World:
    """Without any policy."""
    ready.register()
    ready.stack.api.delete_all(POLICIES)
    await eventually(ready.failure_policies, {"Ignore"})
    await eventually(partial(_annotated, ready, namespace_of(ready)), expected=True)
    return ready


def _annotated(world: World, namespace: str) -> bool:
    return QOS in noted(world, pod("probe", namespace))


def namespace_of(world: World) -> str:
    """Return a new namespace where pods can be made."""
    name = f"shop-{secrets.token_hex(4)}"
    world.stack.api.create_namespace(name)
    world.stack.api.create(service_account("default", name))
    return name


@pytest.fixture
def shop(world: World) -> str:
    return namespace_of(world)


def noted(world: World, manifest: dict[str, Any]) -> dict[str, str]:
    """Return those of an object that would be made."""
    made = world.create(manifest, "--dry-run=server")
    found: dict[str, str] = made["metadata"].get("annotations", {})
    return found


def labels(world: World, manifest: dict[str, Any]) -> Any:
    return world.create(manifest, "--dry-run=server")["metadata"].get("labels", {})


def policy(name: str, namespace: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "MetadataPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": [*rules]},
    }


def rule(key: str, operator: str, **action: Any) -> dict[str, Any]:
    expression = {"key": key, "operator": operator}
    return {
        "policyPredicate": {"labelSelector": {"matchExpressions": [expression]}},
        "policyAction": action,
    }


def default(key: str, value: str) -> dict[str, Any]:
    return rule(key, "DoesNotExist", updatedLabels={key: value})


def forbid(key: str) -> dict[str, Any]:
    return rule(key, "Exists", reject=True)


def configmap(name: str, namespace: str, /, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace} | metadata,
    }


def of_class(name: str, namespace: str, /, **metadata: Any) -> dict[str, Any]:
    """Return a pod of this class, by its name."""
    made = pod(name.lower(), namespace)
    made["metadata"] |= metadata
    made["spec"]["containers"][0]["resources"] = RESOURCES[name]
    return made


def choosing(namespace: str, name: str) -> dict[str, Any]:
    """Return the proposal's own: a class of pods gets its scheduler."""
    return policy(
        f"{name.lower()}-pods",
        namespace,
        {
            "policyPredicate": {"annotationSelector": {"matchLabels": {QOS: name}}},
            "policyAction": {"updatedAnnotations": {SCHEDULER: f"{name.lower()}-scheduler"}},
        },
    )


async def test_pods_without_any_policy_get_their_quality_of_service(
    world: World, shop: str
) -> None:
    for name in CLASSES:
        assert noted(world, of_class(name, shop)) == {QOS: name}
    spoofed = of_class("BestEffort", shop, annotations={QOS: "Guaranteed", "keep": "1"})
    assert noted(world, spoofed) == {QOS: "BestEffort", "keep": "1"}


@pytest.mark.slow  # test_qos_live.py has the same pods, without the webhook
async def test_annotation_is_the_class_of_each_generated_pod(world: World, shop: str) -> None:
    pods = Pods(world.stack, shop)
    with closing(pods.connection):
        manifests = [generated(seed, kind) for kind in CLASSES for seed in range(_OF_EACH)]
        created = [got for sent in manifests if (got := pods.create(sent))]
        pods.delete_all()
    assert [got["metadata"]["annotations"][QOS] for got in created] == [
        got["status"]["qosClass"] for got in created
    ]
    counted = Counter(got["status"]["qosClass"] for got in created)
    assert sum(counted.values()) >= 500
    assert min(counted[name] for name in CLASSES) >= 100, counted


async def test_three_policies_choose_the_scheduler_by_quality_of_service(
    world: World, shop: str
) -> None:
    """In one admission: the class, the annotation of it, and what schedulers read today."""
    for name in CLASSES:
        world.apply(choosing(shop, name))
    world.stack.apply(ROOT / "manifests/scheduler-name")
    try:
        for name in CLASSES:
            manifest = of_class(name, shop, annotations={QOS: "spoofed"})
            scheduler = f"{name.lower()}-scheduler"
            await eventually(partial(_chosen, world, manifest), scheduler)
            await eventually(partial(_scheduler, world, manifest), scheduler)
            stored = world.create(manifest)
            assert stored["metadata"]["annotations"] == {QOS: name, SCHEDULER: scheduler}
            assert stored["status"]["qosClass"] == name
        elsewhere = namespace_of(world)
        assert _scheduler(world, pod("any", elsewhere)) == "default-scheduler"
    finally:
        for manifest in build("scheduler-name"):
            world.stack.api.remove(manifest)


def _chosen(world: World, manifest: dict[str, Any]) -> str | None:
    return noted(world, manifest).get(SCHEDULER)


def _scheduler(world: World, manifest: dict[str, Any]) -> Any:
    return world.create(manifest, "--dry-run=server")["spec"]["schedulerName"]


@pytest.mark.slow
async def test_what_others_change_afterwards_is_seen_again(world: World, shop: str) -> None:
    """Called anew, the webhook finds another class, and the policies see that one."""
    for name in CLASSES:
        world.apply(choosing(shop, name))
    world.apply(_REQUESTING)
    world.apply(_binding("requesting"))
    try:
        await eventually(lambda: _class_stored(world, of_class("BestEffort", shop)), "Burstable")
        await eventually(
            lambda: _chosen(world, of_class("BestEffort", shop)), "burstable-scheduler"
        )
        stored = world.create(of_class("BestEffort", shop))
        assert stored["status"]["qosClass"] == "Burstable"
        assert stored["metadata"]["annotations"][SCHEDULER] == "burstable-scheduler"
    finally:
        for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            world.stack.api.delete(kind, "requesting")


# Gives what has no amounts some, once it is annotated as such: after our webhook's first call.
_REQUESTING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "requesting"},
    "spec": {
        "reinvocationPolicy": "IfNeeded",
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"],
                }
            ]
        },
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": f"has(object.metadata.annotations)"
                    f" && '{QOS}' in object.metadata.annotations"
                    f" && object.metadata.annotations['{QOS}'] == 'BestEffort'"
                    " ? [JSONPatch{op: 'add', path: '/spec/containers/0/resources/requests',"
                    " value: {'cpu': '100m'}}] : []"
                },
            }
        ],
    },
}


def _binding(policy: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": policy},
        "spec": {"policyName": policy},
    }


def _class_stored(world: World, manifest: dict[str, Any]) -> str | None:
    return noted(world, manifest).get(QOS)


async def test_objects_of_every_kind_are_labelled_and_rejected(world: World, shop: str) -> None:
    world.apply(policy("p", shop, default("team", "a"), forbid("bad")))
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    kinds: list[dict[str, Any]] = [
        configmap("c", shop),
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []},
        # Of a CRD, and never replicated.
        {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "PlacementDecision",
            "decisions": [],
        },
    ]
    for manifest in kinds:
        manifest["metadata"] = {"name": "x", "namespace": shop}
        await eventually(partial(labels, world, manifest), {"team": "a"})
        manifest["metadata"] |= {"labels": {"bad": "1"}}
        assert 'metadata policy "p", rule 1' in world.refused(manifest)
    assert labels(world, configmap("c", namespace_of(world))) == {}


async def test_an_update_is_judged_and_a_second_pass_changes_nothing(
    world: World, shop: str
) -> None:
    world.apply(policy("p", shop, default("team", "a"), forbid("bad")))
    await eventually(lambda: labels(world, configmap("c", shop)), {"team": "a"})
    first = world.create(configmap("c", shop))
    label = partial(world.stack.api.label, "configmap", "c", shop)
    with pytest.raises(ToolError, match="rejects objects with label"):
        label(bad="1")
    label(team="a")  # nothing new
    assert _stored(world, "configmap", "c", shop) == first
    label(team=None)
    assert _stored(world, "configmap", "c", shop)["metadata"]["labels"] == {"team": "a"}


def _stored(world: World, kind: str, name: str, namespace: str) -> Any:
    return world.stack.api.get(kind, name, namespace)


@pytest.mark.slow  # what the API server refuses
async def test_annotations_of_a_mebibyte_are_the_api_servers_to_refuse(
    world: World, shop: str
) -> None:
    world.apply(policy("p", shop, default("team", "a")))
    await eventually(lambda: labels(world, configmap("c", shop)), {"team": "a"})
    message = world.refused(configmap("c", shop, annotations={"big": "x" * (1 << 20)}))
    assert "metadata.annotations: Too long" in message
    fits = configmap("c", shop, annotations={"big": "x" * (200 << 10)})
    assert labels(world, fits) == {"team": "a"}


@pytest.mark.slow  # metadata_test.rego has both answers
async def test_a_default_is_not_held_against_the_object_but_another_value_is(
    world: World, shop: str
) -> None:
    """Asked at the end alone, as if another webhook had put in what is there."""
    world.apply(policy("p", shop, default("tier", "front"), forbid("tier")))
    await eventually(lambda: labels(world, configmap("c", shop)), {"tier": "front"})
    world.stack.api.delete(MUTATING, world.name)
    try:
        await eventually(lambda: labels(world, configmap("c", shop)), {})
        assert labels(world, configmap("c", shop, labels={"tier": "front"})) == {"tier": "front"}
        message = world.refused(configmap("c", shop, labels={"tier": "back"}))
        assert 'metadata policy "p", rule 1: rejects objects' in message
    finally:
        world.register()


async def test_a_policy_that_is_not_valid_is_refused_and_past_that_rejects_nothing(
    world: World, shop: str
) -> None:
    misspelt = {
        "policyPredicate": {"labelSelector": {"matchLabel": {"a": "b"}}},
        "policyAction": {"reject": True},
    }
    wrong = policy("wrong", shop, misspelt)
    message = world.refused(wrong, "--validate=ignore")
    assert "spec.rules[0].policyPredicate.labelSelector.matchLabel" in message
    world.unregister()
    try:
        # Until the API server itself knows that nobody is to be asked.
        await eventually(lambda: _makes(world, wrong, "--validate=ignore"), expected=True)
    finally:
        world.register()
    world.apply(policy("right", shop, default("team", "a")))
    await eventually(lambda: labels(world, configmap("c", shop)), {"team": "a"})


def _makes(world: World, manifest: dict[str, Any], *options: str) -> bool:
    try:
        world.create(manifest, *options)
    except ToolError:
        return False
    return True


async def test_without_opa_namespaces_without_policies_are_unaffected(
    world: World, shop: str
) -> None:
    elsewhere = namespace_of(world)
    world.apply(policy("p", shop, default("team", "a")))
    await eventually(lambda: labels(world, configmap("c", shop)), {"team": "a"})
    await eventually(world.failure_policies, {"Fail"})
    world.stack.opa.kill()
    try:
        assert "there is a MetadataPolicy, but no decision" in world.refused(configmap("c", shop))
        assert labels(world, configmap("c", elsewhere)) == {}
        assert noted(world, pod("p", elsewhere)) == {}  # as it came, rather than not at all
        world.stack.api.delete(POLICIES, "p", shop)
        await eventually(lambda: _makes(world, configmap("c", shop)), expected=True)
    finally:
        world.stack.opa.start()
    await eventually(lambda: noted(world, pod("p", elsewhere)).get(QOS), "BestEffort", 60)


async def test_what_would_lock_everybody_out_is_never_asked_about(world: World, shop: str) -> None:
    """Nobody answers, and in the namespace a policy rejects everything."""
    held = configmap("held", shop, finalizers=["example.com/mine"])
    world.create(held)
    world.apply(policy("p", shop, {"policyPredicate": {}, "policyAction": {"reject": True}}))
    await eventually(
        lambda: _makes(world, configmap("c", shop), "--dry-run=server"), expected=False
    )
    await eventually(world.failure_policies, {"Fail"})
    world.register(port=free_port())
    try:
        await eventually(
            lambda: "failed calling webhook" in world.refused(configmap("c", shop)), expected=True
        )
        for manifest in _left_alone(shop):
            world.create(manifest)
        world.create(configmap("c", "kube-system"), "--dry-run=server")
        world.stack.kubectl("auth", "can-i", "get", "pods", f"--namespace={shop}")
        world.stack.api.create_namespace(f"{shop}-other")
        world.stack.api.delete("configmaps", "held", shop)
        world.stack.api.merge("configmaps", "held", {"metadata": {"finalizers": None}}, shop)
        with pytest.raises(ToolError, match="not found"):
            _stored(world, "configmap", "held", shop)
        world.stack.api.delete(POLICIES, "p", shop)
    finally:
        world.register()


def _left_alone(namespace: str) -> list[dict[str, Any]]:
    metadata = {"name": "x", "namespace": namespace}
    event = {
        "reason": "A",
        "type": "Normal",
        "eventTime": "2026-11-21T00:00:00.000000Z",
        "action": "A",
        "reportingController": "example.com/a",
        "reportingInstance": "a",
        "regarding": {"kind": "ConfigMap", "namespace": namespace, "name": "held"},
    }
    attributes = {"namespace": namespace, "verb": "get", "resource": "pods"}
    access = {"user": "bob", "resourceAttributes": attributes}
    return [
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata},
        {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata} | event,
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": namespace},
            "spec": access,
        },
    ]


@pytest.mark.slow  # unit/admission/test_route_systems.py
async def test_subresources_are_not_in_the_way(world: World, shop: str) -> None:
    world.create(pod("bound", shop))
    world.apply(policy("p", shop, {"policyPredicate": {}, "policyAction": {"reject": True}}))
    await eventually(
        lambda: _makes(world, configmap("c", shop), "--dry-run=server"), expected=False
    )
    world.stack.api.merge("pod", "bound", {"status": {"message": "seen"}}, shop, "status")
    assert _stored(world, "pod", "bound", shop)["status"]["message"] == "seen"


@pytest.mark.parametrize("kind", quickly(1, ["pod", "service"]))
async def test_a_status_write_of_a_forbidden_label_is_rejected(
    world: World, shop: str, kind: str
) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    metadata = {"name": "web", "namespace": shop}
    world.create(pod("web", shop) if kind == "pod" else {**service, "metadata": metadata})
    world.apply(policy("p", shop, forbid("secret"), default("tier", "front")))
    forbidden = configmap("c", shop, labels={"secret": "1"})
    await eventually(lambda: _makes(world, forbidden, "--dry-run=server"), expected=False)
    change = partial(world.stack.api.merge, kind, "web", namespace=shop, subresource="status")
    with pytest.raises(ToolError, match='rejects objects with label "secret"'):
        change({"metadata": {"labels": {"secret": "1"}}})
    change({"metadata": {"labels": {"mine": "1"}}})
    labelled = _stored(world, kind, "web", shop)["metadata"]["labels"]
    assert (labelled["mine"], labelled["tier"]) == ("1", "front")
    assert "secret" not in labelled


@pytest.mark.slow  # unit/admission/test_route_systems.py
async def test_a_status_write_does_not_change_the_quality_of_service(
    world: World, shop: str
) -> None:
    world.create(pod("web", shop))
    change = {"metadata": {"annotations": {QOS: "Guaranteed"}}, "spec": {"containers": []}}
    world.stack.api.merge("pod", "web", change, shop, "status")
    assert _stored(world, "pod", "web", shop)["metadata"]["annotations"][QOS] == "BestEffort"


@pytest.mark.slow  # metadata_test.rego has both answers
async def test_an_edit_while_an_object_is_deleted_is_judged_and_its_finalizer_is_not(
    world: World, shop: str
) -> None:
    finalizer = "example.com/mine"
    world.create(configmap("held", shop, finalizers=[finalizer], labels={"secret": "1"}))
    world.apply(policy("p", shop, forbid("secret")))
    forbidden = configmap("c", shop, labels={"secret": "1"})
    await eventually(lambda: _makes(world, forbidden, "--dry-run=server"), expected=False)
    world.stack.api.delete("configmap", "held", shop)
    for change in ({"labels": {"team": "a"}}, {"annotations": {"team": "a"}}):
        with pytest.raises(ToolError, match='rejects objects with label "secret"'):
            world.stack.api.merge("configmap", "held", {"metadata": change}, shop)
    world.stack.api.merge("configmap", "held", {"metadata": {"finalizers": None}}, shop)
    with pytest.raises(ToolError, match="not found"):
        _stored(world, "configmap", "held", shop)
