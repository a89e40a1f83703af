"""SchedulingPolicies and the pods of workloads, on a real API server: each kind, each policy.

There are no controllers and no nodes: pods are made as controllers make them, by their accounts, of
the templates that the API server has stored.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.scheduling_world import POLICIES, ROOT, World, pod, scheduling_world
from tests.integration.workload_pods import made_by, tie, workload
from tools.servers.errors import ToolError
from tools.servers.http import request
from tools.servers.running import Launcher

pytestmark = (
    pytest.mark.slow
)  # test_checks_agree.py has pods of each kind, test_scheduling_live.py refusals

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
ARCH, OS = "beta.kubernetes.io/arch", "beta.kubernetes.io/os"
POLICY_OF = {
    "by-node-selector": "restricted-multiarch-by-node-selector",
    "by-affinity": "restricted-multiarch-by-affinity",
}
WORKLOADS = ["Deployment", "Job", "DaemonSet"]
GPU = {"nodeSelector": {"gpu": "yes"}}


@pytest.fixture(scope="module")
def ready(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A DaemonSet is there before the policies: the defaults, and those of several architectures.

    What may be used besides `restricted` is as the namespace is called.
    """
    with scheduling_world(launcher, tmp_path_factory.mktemp("workloads")) as found:
        found.stack.install_kinds(ROOT / "manifests/crds")
        found.register()
        for namespace in ("plain", *POLICY_OF):
            found.stack.kubectl("create", "namespace", namespace)
            found.stack.kubectl("create", "serviceaccount", "default", f"--namespace={namespace}")
        found.create(workload("DaemonSet", "early", "plain", **GPU))
        found.stack.apply(ROOT / "manifests/scheduling-options")
        for namespace, policy in POLICY_OF.items():
            found.may_use(namespace, "default", policy)
        found.defaults()
        asyncio.run(_settled(found))
        yield found


async def _settled(world: World) -> None:
    """OPA has all of it: each namespace refuses what its policies do."""
    await eventually(world.failure_policies, {"Fail"})
    for namespace in ("plain", *POLICY_OF):
        refused = partial(_refusal, world, pod("x", namespace, **GPU))
        await eventually(refused, partial(_names, POLICY_OF.get(namespace, "restricted")))


def _names(policy: str, refusal: str) -> bool:
    return policy in refusal


def _sent(world: World, manifest: Any, user: str = "", *, kept: bool = False) -> tuple[int, Any]:
    """Create it, as another user where one is named; return the status and the answer.

    Without kubectl, of which each call costs more than all that is tried here.
    """
    version, namespace = manifest["apiVersion"], manifest["metadata"]["namespace"]
    root = "/api" if version == "v1" else "/apis"
    collection = f"{manifest['kind'].lower()}s{'' if kept else '?dryRun=All'}"
    answer = request(
        "POST",
        f"{world.stack.apiserver_url}{root}/{version}/namespaces/{namespace}/{collection}",
        ca_file=world.stack.apiserver_ca_file,
        token=world.stack.kube_tokens["admin"],
        body=json.dumps(manifest),
        more={"Impersonate-User": user} if user else None,
    )
    return answer.status, json.loads(answer.body)


def _created(world: World, manifest: Any, user: str = "", *, kept: bool = False) -> Any:
    status, found = _sent(world, manifest, user, kept=kept)
    assert status == 201, found
    return found


def _refusal(world: World, manifest: Any, user: str = "") -> str:
    """Return why it is refused, empty if it is not."""
    status, found = _sent(world, manifest, user)
    return "" if status == 201 else str(found["message"])


def _node_terms(spec: Any) -> Any:
    hard = spec.get("affinity", {}).get("nodeAffinity", {}).get(HARD, {})
    return hard.get("nodeSelectorTerms", [])


def _in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


def _on(*expressions: dict[str, Any]) -> dict[str, Any]:
    half = {"nodeSelectorTerms": [{"matchExpressions": [*expressions]}]}
    return {"affinity": {"nodeAffinity": {HARD: half}}}


DEFAULT_SELECTOR = {ARCH: "amd64", OS: "Linux"}
DEFAULT_TERMS = [
    {"matchExpressions": [_in(ARCH, "amd64")]},
    {"matchExpressions": [_in(OS, "Linux")]},
]
# What a pod says, and the node selector and terms that it runs with.
CHOSEN: list[tuple[str, dict[str, Any], dict[str, str], Any]] = [
    ("plain", {}, {}, []),
    ("by-node-selector", {}, DEFAULT_SELECTOR, []),
    (
        "by-node-selector",
        {"nodeSelector": {ARCH: "arm64"}},
        {ARCH: "arm64", OS: "Linux"},
        [],
    ),
    ("by-affinity", {}, {}, DEFAULT_TERMS),
    (
        "by-affinity",
        _on(_in(ARCH, "arm64")),
        {},
        [{"matchExpressions": [_in(ARCH, "arm64"), _in(OS, "Linux")]}],
    ),
]


@pytest.mark.parametrize("kind", ["Pod", *WORKLOADS])
@pytest.mark.parametrize(("namespace", "spec", "selector", "terms"), CHOSEN)
async def test_what_the_policies_allow_runs_where_they_say(
    ready: World, kind: str, namespace: str, spec: Any, selector: Any, terms: Any
) -> None:
    if kind == "Pod":
        made = _created(ready, pod("bare", namespace, **spec))["spec"]
        assert (made.get("nodeSelector", {}), _node_terms(made)) == (selector, terms)
        return
    name = f"{kind.lower()}-{CHOSEN.index((namespace, spec, selector, terms))}"
    stored = _created(ready, workload(kind, name, namespace, **spec), kept=True)
    made = _created(ready, *made_by(stored, "node-1"))["spec"]
    template = stored["spec"]["template"]["spec"]
    assert made.get("nodeSelector", {}) == selector
    if kind == "DaemonSet":
        # The controller goes by the template; its pods are tied to the nodes that it finds.
        assert (template.get("nodeSelector", {}), _node_terms(template)) == (selector, terms)
        assert _node_terms(made) == [{"matchFields": [tie("node-1")]}]
    else:
        assert template.get("nodeSelector") == spec.get("nodeSelector")
        assert _node_terms(made) == terms


@pytest.mark.parametrize("kind", ["Pod", *WORKLOADS])
@pytest.mark.parametrize(
    ("namespace", "spec", "field"),
    [
        ("plain", GPU, "spec.nodeSelector[gpu]"),
        ("plain", _on(_in(ARCH, "arm64")), "matchExpressions[0]"),
        ("plain", {"nodeName": "master-1"}, "spec.nodeName"),
        ("by-node-selector", {"nodeSelector": {ARCH: "s390x"}}, f"spec.nodeSelector[{ARCH}]"),
        ("by-affinity", _on(_in(ARCH, "s390x")), "not every term has the required"),
    ],
)
async def test_what_they_do_not_allow_is_refused_with_the_field(
    ready: World, kind: str, namespace: str, spec: Any, field: str
) -> None:
    """A DaemonSet when it is written; what makes other pods, when it makes them."""
    if kind == "Pod":
        assert field in _refusal(ready, pod("bare", namespace, **spec))
        return
    written = workload(kind, "refused", namespace, **spec)
    if kind == "DaemonSet":
        message = _refusal(ready, written)
        assert field in message
        assert "spec.template.spec." in message
        return
    stored = _created(ready, written)
    assert field in _refusal(ready, *made_by(stored, "node-1"))


async def test_a_daemonset_from_before_the_policy_is_named_and_its_template_can_be_mended(
    ready: World,
) -> None:
    stored = json.loads(ready.stack.kubectl("get", "ds", "early", "-n=plain", "--output=json"))
    assert "spec.nodeSelector[gpu]" in _refusal(ready, *made_by(stored, "node-1"))
    _touch(ready)
    await eventually(lambda: _findings(ready), lambda found: "DaemonSet plain/early" in found)
    ready.stack.kubectl("annotate", "ds", "early", "-n=plain", "note=seen")
    gone = json.dumps([{"op": "remove", "path": "/spec/template/spec/nodeSelector"}])
    ready.stack.kubectl("patch", "ds", "early", "-n=plain", "--type=json", f"--patch={gone}")
    stored = json.loads(ready.stack.kubectl("get", "ds", "early", "-n=plain", "--output=json"))
    await eventually(lambda: _refusal(ready, *made_by(stored, "node-1")), "")
    bad = json.dumps({"spec": {"template": {"spec": GPU}}})
    with pytest.raises(ToolError, match=r"spec\.template\.spec\.nodeSelector"):
        ready.stack.kubectl("patch", "ds", "early", "-n=plain", f"--patch={bad}")


def _touch(world: World) -> None:
    """Have `restricted` judged now, and not only when all policies are looked at again."""
    value = secrets.token_hex(4)
    world.stack.kubectl("annotate", POLICIES, "restricted", f"touched={value}", "--overwrite")


def _findings(world: World, name: str = "restricted") -> str:
    found = json.loads(world.stack.kubectl("get", POLICIES, name, "--output=json"))
    conditions = found.get("status", {}).get("conditions", ())
    return "".join(one["message"] for one in conditions if one["type"] == "Findings")


async def test_a_default_scheduler_takes_the_place_of_the_one_that_is_filled_in(
    ready: World,
) -> None:
    """Beside `restricted`, which everybody may use and which allows the default scheduler."""
    ready.policy("green", {"default": {"schedulerName": "green"}})
    ready.stack.kubectl("create", "serviceaccount", "green", "--namespace=plain")
    ready.may_use("plain", "green", "green")

    def scheduler(**spec: Any) -> Any:
        made = pod("any", "plain", serviceAccountName="green", **spec)
        return _sent(ready, made)[1].get("spec", {}).get("schedulerName")

    await eventually(scheduler, "green")
    assert scheduler(schedulerName="green") == "green"
    said = 'a pod that asks for default-scheduler gets "green" as well'
    await eventually(lambda: _findings(ready, "green"), lambda found: said in found)
    assert _created(ready, pod("any", "plain"))["spec"]["schedulerName"] == "default-scheduler"


async def test_tolerations_of_plugins_need_no_permission_and_those_of_others_do(
    ready: World,
) -> None:
    wanted = {"requests": {"memory": "1Mi", "nvidia.com/gpu": "1"}}
    wanted["limits"] = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "registry.example/main", "resources": wanted}
    made = _created(ready, pod("gpu", "plain", containers=[container]))["spec"]
    keys = {one["key"] for one in made["tolerations"]}
    assert keys > {"nvidia.com/gpu", "node.kubernetes.io/memory-pressure"}
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert "spec.tolerations[" in _refusal(ready, pod("none", "plain", tolerations=[own]))


async def test_a_global_default_priority_class_is_noticed_and_named(ready: World) -> None:
    described = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 9}
    ready.apply(described | {"metadata": {"name": "usual"}, "globalDefault": True})

    def chosen() -> Any:  # nothing but a reason, until it is in OPA
        found = _sent(ready, pod("any", "plain"))[1]
        return found.get("spec", {}).get("priorityClassName")

    try:
        await eventually(chosen, "usual")
        _touch(ready)
        await eventually(lambda: _findings(ready), lambda found: "PriorityClass usual" in found)
    finally:
        ready.stack.kubectl("delete", "priorityclass", "usual")


async def test_whoever_may_name_a_node_may_be_allowed_to(ready: World) -> None:
    named = pod("named", "plain", serviceAccountName="namer", nodeName="edge-1")
    ready.stack.kubectl("create", "serviceaccount", "namer", "--namespace=plain")
    assert "spec.nodeName" in _refusal(ready, named)
    ready.policy("edge", {"allowed": {"nodeNames": ["edge-1"]}})
    ready.may_use("plain", "namer", "edge")
    await eventually(lambda: _refusal(ready, named), "")
