"""Who may schedule how, on a real API server: what it does to pods before and after it asks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.scheduling_world import (
    GLOBAL_DEFAULT,
    POLICIES,
    ROOT,
    World,
    pod,
    scheduling_world,
    service_account,
)
from tools.servers.errors import ToolError
from tools.servers.running import Launcher, free_port

CONTROLLER = "--as=system:serviceaccount:kube-system:replicaset-controller"
GPU = {"nodeSelector": {"gpu": "yes"}}
INJECTED = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with scheduling_world(launcher, tmp_path_factory.mktemp("scheduling")) as world:
        yield world


@pytest.fixture(scope="module")
def ready(module_world: World) -> World:
    """The kind is there after all the rest: it is found when it comes."""
    module_world.stack.install_kinds(ROOT / "manifests/crds")
    module_world.register()
    return module_world


@pytest.fixture
async def world(ready: World) -> World:
    """With the policies that every cluster begins with, and these alone."""
    ready.register()
    for found in ready.stack.api.get(POLICIES)["items"]:
        if (name := found["metadata"]["name"]) not in ("restricted", "privileged"):
            ready.stack.api.delete(POLICIES, name)
    ready.defaults()
    await eventually(ready.failure_policies, {"Fail"})
    await eventually(lambda: _refuses(ready), expected=True)
    return ready


@pytest.fixture
def namespace(ready: World) -> str:
    """A namespace whose service account has no rights of its own."""
    name = f"shop-{secrets.token_hex(4)}"
    ready.stack.api.create_namespace(name)
    ready.stack.api.create(service_account("default", name))
    return name


def _admits(world: World, manifest: dict[str, Any], *options: str) -> bool:
    try:
        world.create(manifest, "--dry-run=server", *options)
    except ToolError:
        return False
    return True


def _refuses(world: World) -> bool:
    """OPA has the rules and the policies: what `restricted` refuses is refused, by its name."""
    try:
        world.create(pod("probe", "default", **GPU), "--dry-run=server")
    except ToolError as error:
        return "restricted" in str(error)
    return False


async def test_before_the_kind_is_there_nobody_is_in_the_way(module_world: World) -> None:
    kinds = module_world.stack.api.get("customresourcedefinitions")["items"]
    names = [kind["metadata"]["name"] for kind in kinds]
    assert POLICIES not in names, "this test comes first: those after it install the kind"
    for service in ("replicate", "admit"):
        assert "is its CRD there?" in module_world.conditions(service)
    module_world.register()
    await eventually(module_world.failure_policies, {"Ignore"})
    module_world.stack.api.create(service_account("default", "default"))
    assert _admits(module_world, pod("any", "default", **GPU))


async def test_a_pod_that_asks_for_nothing_gets_by_with_restricted(
    world: World, namespace: str
) -> None:
    """The API server itself has put in a scheduler name and two tolerations by then."""
    spec = world.create(pod("plain", namespace))["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert {t["key"] for t in spec["tolerations"]} == INJECTED


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (GPU, "nodeSelector"),
        ({"schedulerName": "mine"}, "schedulerName"),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations"),
        ({"priorityClassName": "system-cluster-critical"}, "priorityClassName"),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "zone", "labelSelector": {}}
                        ]
                    }
                }
            },
            "affinity",
        ),
    ],
)
async def test_a_pod_that_asks_for_more_is_refused_with_the_field(
    world: World, namespace: str, spec: dict[str, Any], field: str
) -> None:
    message = world.refused(pod("more", namespace, **spec))
    assert field in message
    assert "restricted" in message


async def test_pods_of_a_controller_are_judged_by_their_service_account(
    world: World, namespace: str
) -> None:
    """Neither what the controller may use counts, nor what a cluster's administrator may."""
    world.policy("gpu", {"allowed": {"schedulerNames": [], "nodeSelectors": {"gpu": ["yes"]}}})
    assert "restricted" in world.refused(pod("made", namespace, **GPU), CONTROLLER)
    assert "restricted" in world.refused(pod("own", namespace, **GPU))
    world.may_use(namespace, "default", "gpu")
    await eventually(
        lambda: _admits(world, pod("made", namespace, **GPU), CONTROLLER), expected=True
    )
    stored = world.create(pod("made", namespace, **GPU), CONTROLLER)
    assert stored["spec"]["serviceAccountName"] == "default"


async def test_a_default_priority_class_comes_with_its_own_priority(
    world: World, namespace: str
) -> None:
    """The API server had set the priority of no class; kept, it would refuse the pod."""
    world.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "gold"},
            "value": 1000,
            "preemptionPolicy": "Never",
        }
    )
    world.policy(
        "gold",
        {
            "required": {"priorityClasseNames": ["gold"]},
            "allowed": {"schedulerNames": []},
            "default": {"priorityClasseName": "gold"},
        },
    )
    world.may_use(namespace, "default", "gold")

    def granted() -> Any:
        made = world.create(pod("paid", namespace), "--dry-run=server")["spec"]
        return [made.get(k) for k in ("priorityClassName", "priority", "preemptionPolicy")]

    await eventually(granted, ["gold", 1000, "Never"])


async def test_a_global_default_priority_class_is_nobodys_wish(
    world: World, namespace: str
) -> None:
    world.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": GLOBAL_DEFAULT},
            "value": 7,
            "globalDefault": True,
        }
    )
    try:
        await eventually(
            lambda: world.create(pod("any", namespace), "--dry-run=server")["spec"]["priority"], 7
        )
    finally:
        world.stack.api.delete("priorityclasses", GLOBAL_DEFAULT)


async def test_defaults_are_put_in_and_stay_what_they_are(world: World, namespace: str) -> None:
    world.policy(
        "arch",
        {
            "required": {"nodeSelectors": {"kubernetes.io/arch": ["amd64", "arm64"]}},
            "allowed": {"schedulerNames": []},
            "default": {
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [
                    {
                        "key": "spot",
                        "operator": "Equal",
                        "values": ["a", "b"],
                        "effect": "NoSchedule",
                    }
                ],
            },
        },
    )
    world.may_use(namespace, "default", "arch")
    await eventually(
        lambda: world.create(pod("x", namespace), "--dry-run=server")["spec"].get("nodeSelector"),
        {"kubernetes.io/arch": "amd64"},
    )
    spec = world.create(pod("given", namespace))["spec"]
    values = [t.get("value") for t in spec["tolerations"] if t["key"] == "spot"]
    assert values == ["a", "b"]
    assert "nodeSelector" in world.refused(
        pod("wrong", namespace, nodeSelector={"kubernetes.io/arch": "riscv64"})
    )


async def test_after_a_policy_changed_a_pod_may_still_change_but_not_its_scheduling(
    world: World, namespace: str
) -> None:
    world.policy("gpu", {"allowed": {"schedulerNames": [], "nodeSelectors": {"gpu": ["yes"]}}})
    world.may_use(namespace, "default", "gpu")
    await eventually(lambda: _admits(world, pod("old", namespace, **GPU)), expected=True)
    world.create(pod("old", namespace, **GPU))
    world.may_use(namespace, "default")
    await eventually(lambda: _admits(world, pod("new", namespace, **GPU)), expected=False)
    world.stack.api.label("pods", "old", namespace, team="a")
    more = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    with pytest.raises(ToolError, match="tolerations"):
        world.stack.api.merge("pods", "old", more, namespace)
    world.stack.api.delete("pods", "old", namespace)


async def test_subresources_are_not_in_the_way(world: World, namespace: str) -> None:
    """Ephemeral containers schedule nothing; the scheduler binds what was admitted before."""
    world.create(pod("bound", namespace))
    debugger = {"name": "debug", "image": "registry.example/debug"}
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    world.stack.api.merge("pods", "bound", patch, namespace, "ephemeralcontainers")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/bound/binding"
    world.create_as("system:kube-scheduler", path, binding)
    assert world.stack.api.get("pods", "bound", namespace)["spec"]["nodeName"] == "node-1"


async def test_a_dry_run_is_judged_and_leaves_no_event(world: World, namespace: str) -> None:
    assert "nodeSelector" in world.refused(pod("try", namespace, **GPU), "--dry-run=server")
    world.refused(pod("real", namespace, **GPU))

    def told() -> list[str]:
        return [
            event["reason"]
            for event in world.stack.api.get("events.events.k8s.io")["items"]
            if f"{namespace}/" in event.get("note", "")
        ]

    await eventually(told, ["SchedulingDenied"])


async def test_a_policy_that_is_not_valid_is_refused_by_its_field(world: World) -> None:
    spec = {"required": {"tolerations": [{"keys": ["a"]}], "colour": "blue"}}
    document = {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "wrong"},
        "spec": spec,
    }
    message = world.refused(document, "--validate=ignore")
    assert "spec.required.tolerations" in message
    assert "spec.required.colour" in message
    assert "denied the request" in message


async def test_kube_system_works_although_nobody_answers(world: World, namespace: str) -> None:
    world.create(pod("there", namespace))
    world.register(port=free_port())
    try:
        # The API server may ask the old port for a moment.
        await eventually(lambda: _admits(world, pod("web", namespace)), expected=False)
        assert "failed calling webhook" in world.refused(pod("web", namespace))
        assert _admits(world, pod("dns", "kube-system", **GPU))
        world.stack.api.label("pods", "there", namespace, team="a")
        mirror = pod("static", namespace)
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        assert "failed calling webhook" in world.refused(mirror)  # of anybody but a node
        world.stack.api.delete("pods", "there", namespace)
        world.stack.api.delete(POLICIES, "restricted")
    finally:
        world.register()


async def test_after_the_last_policy_everything_is_admitted(world: World, namespace: str) -> None:
    world.no_policies()
    await eventually(world.failure_policies, {"Ignore"})
    assert _admits(world, pod("any", namespace, **GPU))
