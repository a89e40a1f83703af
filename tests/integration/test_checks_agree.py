"""What `check` says beside what a cluster does: one table (tests/cases/checks.yaml) for both.

`check` is asked twice, with the policies in files and with those of the cluster. There are no
controllers here, so what they create is written here as Kubernetes 1.36 creates it.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
import yaml

from kube_sync.config import CONFIG_ENV, fields
from kube_sync.observability import logs
from tests.commandline import kube_sync
from tests.eventually import eventually
from tests.integration.scheduling_world import GLOBAL_DEFAULT, ROOT, World, cluster_of, running
from tests.parts import quickly
from tests.scheduling.patching import patched
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.http import get
from tools.servers.running import Launcher

Json = dict[str, Any]

CASES: dict[str, list[Json]] = yaml.safe_load(
    (ROOT / "tests/cases/checks.yaml").read_text(encoding="utf-8")
)
_VARIABLES = frozenset(field.variable for field in fields())
GROUP = "policy.kube-sync.io/v1alpha1"
RBAC = "rbac.authorization.k8s.io"
PRIVILEGED = "of-metadata"
QOS = "scheduler.alpha.kubernetes.io/qos"
# Labels and annotations that the API server puts on Namespaces, Jobs and DaemonSets.
OF_THE_SERVER = (
    "kubernetes.io/",
    "batch.kubernetes.io/",
    "controller-uid",
    "job-name",
    "deprecated.",
)
ALIKE = ("schedulerName", "priorityClassName", "nodeSelector", "affinity", "tolerations")


@dataclass(frozen=True)
class Done:
    """What the API server answered: the object as it would be stored, or why it is refused."""

    sent: Json
    stored: Json | None
    refusal: str = ""


def namespace_of(system: str, case: Json) -> str:
    own: str | None = case["object"].get("metadata", {}).get("namespace")
    return own or f"{system[0]}-{case['name']}"


def placed(system: str, case: Json, whole: Json) -> Json:
    own = {"name": case["name"], "namespace": namespace_of(system, case)}
    metadata = {**own, **whole.get("metadata", {})}
    if whole["kind"] == "Namespace":
        del metadata["namespace"]
    return {**whole, "metadata": metadata}


def policies_of(system: str, case: Json) -> list[Json]:
    """Return the policies of a case, and the right of its service account to use them."""
    namespace = namespace_of(system, case)
    if system == "metadata":
        return [
            {"apiVersion": GROUP, "kind": "MetadataPolicy", "spec": {"rules": rules}}
            | {"metadata": {"name": name, "namespace": namespace}}
            for name, rules in case["policies"].items()
        ]
    named = {f"{case['name']}-{name}": spec for name, spec in case["policies"].items()}
    found: list[Json] = [
        {"apiVersion": GROUP, "kind": "SchedulingPolicy", "metadata": {"name": name}, "spec": spec}
        for name, spec in named.items()
    ]
    return [*found, *right_to_use(namespace, *named)]


def right_to_use(namespace: str, *policies: str) -> Iterator[Json]:
    """Let the service account of a namespace use these policies."""
    rule = {
        "apiGroups": ["policy.kube-sync.io"],
        "resources": ["schedulingpolicies"],
        "verbs": ["use"],
        "resourceNames": [*policies] or ["nothing"],
    }
    role = {"apiGroup": RBAC, "kind": "Role", "name": "users"}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "users", "namespace": namespace}}
    yield {**head, "kind": "Role", "rules": [rule]}
    yield {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [account]}


def everything() -> Iterator[Json]:
    """Return all that the cases need: namespaces and accounts, then policies and rights."""
    cases = [(system, case) for system, found in CASES.items() for case in found]
    for name in sorted({namespace_of(*case) for case in cases} - {"kube-system"}):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        metadata = {"name": "default", "namespace": name}
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    for name, default in ((GLOBAL_DEFAULT, True), ("gold", False)):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 7,
            "globalDefault": default,
        }
    for system, case in cases:
        if "old" in case:
            yield placed(system, case, case["old"])
        yield from policies_of(system, case)
    allowed: Json = {"schedulerNames": [], "priorityClasseNames": []}
    metadata = {"name": PRIVILEGED}
    policy = {"apiVersion": GROUP, "kind": "SchedulingPolicy", "metadata": metadata}
    yield {**policy, "spec": {"allowed": allowed}}
    for case in CASES["metadata"]:  # whose pods the other webhook is asked about too
        yield from right_to_use(namespace_of("metadata", case), PRIVILEGED)


@pytest.fixture(scope="module")
def cluster(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("checks")
    with cluster_of(launcher, folder, "scheduling", "metadata") as world:
        world.stack.install_kinds(ROOT / "manifests/crds")
        for manifest in everything():
            world.apply(manifest)
        yield world


@pytest.fixture(scope="module")
def world(cluster: World, request: pytest.FixtureRequest) -> Iterator[World]:
    """Both systems, with quality of service or without."""
    sections: dict[str, dict[str, object]] = {
        "scheduling": {"global_default_priority_class": GLOBAL_DEFAULT},
        "metadata": {"qos": request.param},
    }
    with running(cluster, sections):
        (cluster.folder / "check.yaml").write_text(yaml.safe_dump(sections), encoding="utf-8")
        for system in sections:
            replace(cluster, system=system).register()
        yield cluster
        for system in sections:
            replace(cluster, system=system).unregister()


@pytest.fixture
async def ready(world: World) -> World:
    """OPA has all policies and rights, and the webhook knows that there are some."""
    await eventually(lambda: _held(world), _expected())
    for system in ("scheduling", "metadata"):
        await eventually(replace(world, system=system).failure_policies, {"Fail"})
    wanted = yaml.safe_load((world.folder / "check.yaml").read_text(encoding="utf-8"))
    # Without a policy, a pod whose class is not told in time is admitted as it came.
    await eventually(lambda: _is_annotated(world), wanted["metadata"]["qos"])
    return world


def _is_annotated(world: World) -> bool:
    (plain,) = [case for case in CASES["metadata"] if case["name"] == "pod-without-policies"]
    made = world.create(placed("metadata", plain, plain["object"]), "--dry-run=server")
    return QOS in made["metadata"].get("annotations", {})


def _expected() -> dict[str, int]:
    found = [one["kind"] for one in everything()]
    roles = {one["metadata"]["namespace"] for one in everything() if one["kind"] == "Role"}
    policies = {kind: found.count(kind) for kind in ("SchedulingPolicy", "MetadataPolicy")}
    return {**policies, "Role": len(roles)}


def _held(world: World) -> dict[str, int]:
    token = world.stack.opa_token_files["replicator"].read_text(encoding="utf-8")
    url = f"{world.stack.opa_url}/v1/data/kubernetes"
    data = json.loads(get(url, ca_file=world.stack.opa_ca_file, token=token).body)["result"]
    users = [roles for roles in data.get("roles", {}).values() if "users" in roles]
    return {
        "SchedulingPolicy": len(data.get("schedulingpolicies", {})),
        "MetadataPolicy": sum(map(len, data.get("metadatapolicies", {}).values())),
        "Role": len(users),
    }


@dataclass(frozen=True)
class Answers:
    """What `check` says of all cases of a system, asked about many at once."""

    world: World
    system: str

    def of_the_cluster(self) -> list[Json]:
        """Return the entries about all objects, by the policies of the cluster."""
        updated = [case for case in self.cases if "old" in case]
        created = [case for case in self.cases if "old" not in case]
        return [
            *self._said(*self._file("objects", created)),
            *(self._said(*self._file("objects", updated), *self._old(updated)) if updated else ()),
        ]

    def of_files(self) -> list[Json]:
        """Return the same by the policies in files."""
        file = self.world.folder / f"{self.system}-policies.yaml"
        policies = [one for case in self.cases for one in policies_of(self.system, case)]
        file.write_text(yaml.safe_dump_all(policies), encoding="utf-8")
        created = [case for case in self.cases if "old" not in case]
        return self._said(*self._file("objects", created), "--policies", str(file))

    @property
    def cases(self) -> list[Json]:
        """Its cases."""
        return CASES[self.system]

    def _old(self, cases: list[Json]) -> tuple[str, str]:
        return "--old", self._file("old", cases)[1]

    def _file(self, what: str, cases: list[Json]) -> tuple[str, str]:
        field = "old" if what == "old" else "object"
        file = self.world.folder / f"{self.system}-{what}.yaml"
        objects = [placed(self.system, case, case[field]) for case in cases]
        file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        return "-f", str(file)

    def _said(self, *arguments: str) -> list[Json]:
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _VARIABLES},
            CONFIG_ENV: str(self.world.folder / "check.yaml"),
            "KUBE_SYNC_OPA_BINARY": str(ensure_binary("opa")),
            "KUBE_SYNC_KUBERNETES_KUBECONFIG": str(self.world.stack.kubeconfigs["admin"]),
        }
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(logs, "configure_logs"),
        ):
            ended = kube_sync(self.system, "check", "-o", "json", *arguments)
        assert (ended.returncode, ended.stderr) == (1, "")  # some are denied
        found = json.loads(ended.stdout)
        entries: list[Json] = found["pods" if self.system == "scheduling" else "objects"]
        return entries


@pytest.fixture(scope="module")
def answers(world: World) -> Callable[[str], dict[str, list[Json]]]:
    """Return what `check` says about the cases of a system, by their names."""

    @cache
    def of(system: str) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = {}
        asked = Answers(world, system)
        entries = asked.of_the_cluster()
        for entry in entries:
            found.setdefault(entry["name"], []).append(entry)
        in_files = asked.of_files()
        assert in_files == entries[: len(in_files)]
        return found

    return of


def created(world: World, whole: Json, user: str = "") -> Done:
    options = ["--dry-run=server", "--validate=ignore"]
    options += [f"--as=system:serviceaccount:kube-system:{user}"] if user else []
    try:
        return Done(whole, world.create(whole, *options))
    except ToolError as error:
        return Done(whole, None, str(error))


def replaced(world: World, whole: Json) -> Done:
    metadata = whole["metadata"]
    try:
        path = world.stack.api.path(whole["kind"], metadata["name"], metadata.get("namespace", ""))
        version = world.stack.api.ask("GET", path)["metadata"]["resourceVersion"]
        sent = {**whole, "metadata": {"resourceVersion": version, **metadata}}
        stored = world.stack.api.ask("PUT", path, sent, strict=True, query={"dryRun": "All"})
        return Done(whole, stored)
    except ToolError as error:
        return Done(whole, None, str(error))


CONTROLLERS = {
    "Deployment": "replicaset-controller",
    "StatefulSet": "statefulset-controller",
    "DaemonSet": "daemon-set-controller",
    "Job": "job-controller",
    "CronJob": "job-controller",
}


def created_by_controllers(world: World, whole: Json) -> Iterator[Done]:
    """Create what the controllers create for a workload: what is between, and a pod."""
    kind = whole["kind"]
    if kind not in CONTROLLERS:
        return
    namespace = whole["metadata"]["namespace"]
    spec = copy.deepcopy(whole["spec"])
    if kind == "CronJob":
        job = {"apiVersion": "batch/v1", "kind": "Job", **spec["jobTemplate"]}
        yield created(world, _named(job, namespace, whole), "cronjob-controller")
        spec = spec["jobTemplate"]["spec"]
    if kind == "Deployment":
        yield created(world, _replica_set(whole), "deployment-controller")
    pod = {"apiVersion": "v1", "kind": "Pod", **spec["template"]}
    if kind == "DaemonSet":
        pod["spec"] = _on_a_node(pod["spec"])
    yield created(world, _named(pod, namespace, whole), CONTROLLERS[kind])


def _named(whole: Json, namespace: str, owner: Json) -> Json:
    reference = {n: owner[n] for n in ("apiVersion", "kind")} | {"name": "it", "uid": "u"}
    own = {"name": "it-xyz", "namespace": namespace}
    return {
        **whole,
        "metadata": {
            **whole.get("metadata", {}),
            **own,
            "ownerReferences": [reference | {"controller": True}],
        },
    }


def _replica_set(deployment: Json) -> Json:
    template = copy.deepcopy(deployment["spec"]["template"])
    template["metadata"]["labels"]["pod-template-hash"] = "5f4d"
    selector = {"matchLabels": template["metadata"]["labels"]}
    whole = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "labels": template["metadata"]["labels"],
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {"replicas": 1, "selector": selector, "template": template},
    }
    return _named(whole, deployment["metadata"]["namespace"], deployment)


def _on_a_node(spec: Json) -> Json:
    """Return the pod of a DaemonSet: one term for its node, no other, and seven tolerations."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    added = {
        "NoExecute": ["not-ready", "unreachable"],
        "NoSchedule": ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"],
    }
    if spec.get("hostNetwork"):
        added["NoSchedule"].append("network-unavailable")
    spec["tolerations"] = spec.get("tolerations", []) + [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for effect, names in added.items()
        for name in names
    ]
    return spec


def done(world: World, system: str, case: Json) -> list[Done]:
    """Do it, in dry run: the object, and what controllers create once it is there."""
    whole = placed(system, case, case["object"])
    first = replaced(world, whole) if "old" in case else created(world, whole)
    if first.stored is not None and whole["kind"] == "DaemonSet":
        # Its template may have got defaults.
        template = {"spec": first.stored["spec"]["template"]["spec"]}
        whole = {
            **whole,
            "spec": {**whole["spec"], "template": {**whole["spec"]["template"], **template}},
        }
    return [first, *created_by_controllers(world, whole)]


def refusal_of(found: list[Done]) -> str:
    return next((one.refusal for one in found if one.stored is None), "")


@pytest.mark.parametrize("world", [False], indirect=True, scope="module", ids=["without-qos"])
@pytest.mark.parametrize("case", quickly(15, CASES["scheduling"]), ids=lambda case: case["name"])
def test_scheduling_check_says_what_the_cluster_does(
    ready: World, answers: Callable[[str], dict[str, list[Json]]], case: Json
) -> None:
    (entry,) = answers("scheduling")[case["name"]]
    found = done(ready, "scheduling", case)
    refusal = refusal_of(found)
    if "allowed" in case:
        assert (not refusal) == case["allowed"], refusal
    assert entry["allowed"] == (not refusal), refusal
    if refusal:
        assert case.get("says", "") in refusal
        # The node of a pod of a DaemonSet is not known beforehand.
        reasons = [reason.replace("any-node", "node-1") for reason in entry["reasons"]]
        assert [reason for reason in reasons if reason not in refusal] == []
    else:
        compare_pods(found[-1], entry["patch"])


def compare_pods(made: Done, patch: list[Json]) -> None:
    """The pod is stored as it was sent, but for the changes and what the API server puts in."""
    assert made.stored is not None
    stored, sent = made.stored["spec"], made.sent["spec"]
    timed = [one for one in stored["tolerations"] if "tolerationSeconds" in one]
    filled = {"schedulerName": "default-scheduler", "priorityClassName": GLOBAL_DEFAULT, **sent}
    filled["tolerations"] = [*sent.get("tolerations", []), *timed]
    # The template of a DaemonSet has its defaults already; the priority follows the class.
    passed = ("/spec/template/", "/spec/priority/", "/spec/preemptionPolicy/")
    changes = [one for one in patch if not f"{one['path']}/".startswith(passed)]
    expected = patched({"spec": filled}, changes)["spec"]
    assert {name: stored.get(name) for name in ALIKE} == {
        name: expected.get(name) for name in ALIKE
    }


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(False, id="without-qos"),
        pytest.param(True, id="with-qos", marks=pytest.mark.slow),  # test_metadata_live.py has it
    ],
    indirect=True,
    scope="module",
)
@pytest.mark.parametrize("case", quickly(15, CASES["metadata"]), ids=lambda case: case["name"])
def test_metadata_check_says_what_the_cluster_does(
    ready: World, answers: Callable[[str], dict[str, list[Json]]], case: Json
) -> None:
    entries = answers("metadata")[placed("metadata", case, case["object"])["metadata"]["name"]]
    found = done(ready, "metadata", case)
    assert (not refusal_of(found)) == case["allowed"], refusal_of(found)
    assert case.get("says", "") in refusal_of(found)
    for entry, one in zip(entries, found, strict=True):
        assert entry["allowed"] == (one.stored is not None), one.refusal
        if one.stored is None:
            assert [reason for reason in entry["reasons"] if reason not in one.refusal] == []
        else:
            compare_metadata(one, entry["changes"])


def compare_metadata(made: Done, changes: list[Json]) -> None:
    """The object is stored as it was sent, with the changes; the rest is the API server's."""
    assert made.stored is not None
    for what in ("label", "annotation"):
        expected = dict(made.sent["metadata"].get(f"{what}s", {}))
        if made.sent["kind"] == "Job" and what == "label":
            expected = expected or made.sent["spec"]["template"]["metadata"]["labels"]
        expected |= {one["key"]: one["after"] for one in changes if one["what"] == what}
        stored = made.stored["metadata"].get(f"{what}s", {})
        own = [key for key in stored if key not in expected and key.startswith(OF_THE_SERVER)]
        assert {key: stored[key] for key in stored if key not in own} == expected
