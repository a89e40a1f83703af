"""Default policies, rights and conditions, by a replicator with exactly its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.manifests import build
from tests.integration.test_pair import ROOT
from tests.parts import quickly
from tools.demo.components import start_service
from tools.servers.errors import ToolError
from tools.servers.http import get, request
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

KIND = "schedulingpolicies"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
STATUS = "schedulingpolicies/status"


@dataclass
class World:
    """A stack, and a replicator that can be started again, as for an upgrade."""

    stack: RunningStack
    folder: Path
    replicator: RunningServer | None = None

    def start(self) -> None:
        assert self.replicator is None
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["replicator"])},
            "opa": self.stack.opa_settings(),
            "decisions": self.stack.endpoint.server(),
            "builtin": ["scheduling"],
        }
        self.replicator = start_service("replicate", self.folder, configuration)

    def stop(self) -> None:
        if self.replicator is not None:
            self.replicator.stop()
            self.replicator = None

    async def restart(self) -> None:
        """Start anew, and wait until all is there that should be."""
        self.stop()
        self.start()
        await self.told("scheduling bootstrap", "ok")

    async def told(self, condition: str, what: str) -> None:
        def read() -> bool:
            assert self.replicator is not None
            page = get(self.replicator.url + "/readyz").body.decode()
            lines = [line for line in page.splitlines() if condition in line]
            return any(what in line for line in lines)

        await eventually(read, expected=True)

    def get(self, kind: str, name: str, namespace: str = "") -> Any:
        return self.stack.api.get(kind, name, namespace)

    def apply(self, document: dict[str, Any]) -> None:
        self.stack.api.apply(document)

    def policy(self, name: str, spec: dict[str, Any]) -> None:
        version = "policy.kube-sync.io/v1alpha1"
        metadata = {"name": name}
        document = {"apiVersion": version, "kind": "SchedulingPolicy", "metadata": metadata}
        self.stack.api.apply(document | {"spec": spec}, strict=False, force=True)

    def conditions(self, name: str) -> Any:
        found = self.get(KIND, name).get("status", {}).get("conditions", [])
        return {one["type"]: one for one in found}

    def accepted(self, name: str) -> tuple[str, int] | None:
        found = self.conditions(name).get("Accepted")
        return found and (found["status"], found["observedGeneration"])

    def writes(self, *resources: str) -> list[tuple[str, str, str]]:
        """Return verb, resource and name of its changes, the audit log being the witness."""
        assert self.stack.audit_log is not None
        entries = map(
            json.loads, self.stack.audit_log.read_bytes().rpartition(b"\n")[0].splitlines()
        )
        return [
            (entry["verb"], _resource(entry["objectRef"]), str(entry["objectRef"].get("name")))
            for entry in entries
            if entry["user"]["username"].endswith(":kube-sync-replicator")
            and entry["verb"] not in ("get", "list", "watch")
            and entry["responseStatus"]["code"] < 300
            and _resource(entry["objectRef"]) in resources
        ]


def _resource(reference: Any) -> str:
    below = reference.get("subresource")
    return str(reference["resource"]) + (f"/{below}" if below else "")


DEFAULTS = ("clusterroles", "clusterrolebindings", "rolebindings", KIND)


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("scheduling")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        stack.apply(ROOT / "manifests/scheduling-rbac")
        world = World(stack, folder / "replicate")
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
async def world(module_world: World) -> Any:
    """All of it in place."""
    if module_world.replicator is None:
        module_world.start()
        await module_world.told("scheduling bootstrap", "is manifests/crds installed?")
        module_world.stack.install_kinds(ROOT / "manifests/crds")
    await module_world.told("scheduling bootstrap", "ok")
    return module_world


async def test_rights_are_there_before_any_policy(world: World) -> None:
    created = [resource for verb, resource, _ in world.writes(*DEFAULTS) if verb == "create"]
    assert created == [
        "clusterroles",
        "clusterroles",
        "clusterrolebindings",
        "rolebindings",
        "schedulingpolicies",
        "schedulingpolicies",
    ]


async def test_kube_system_and_others_may_use_what_they_should(world: World) -> None:
    def may(account: str, policy: str) -> bool:
        namespace = account.partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{account}",
                "groups": [*groups, "system:authenticated"],
                "resourceAttributes": {
                    "verb": "use",
                    "group": "policy.kube-sync.io",
                    "resource": KIND,
                    "name": policy,
                    "namespace": namespace,
                },
            },
        }
        # As `kubectl auth can-i --as=… --as-group=…` asks.
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        allowed: bool = world.stack.api.ask("POST", path, review)["status"]["allowed"]
        return allowed

    assert may("kube-system:coredns", "privileged")
    assert may("kube-system:coredns", "restricted")
    assert may("default:default", "restricted")
    assert not may("default:default", "privileged")


async def test_accepted_policies_say_so(world: World) -> None:
    for name in ("restricted", "privileged"):
        await eventually(partial(world.accepted, name), ("True", 1))
    managers = world.get(KIND, "restricted")["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers if m.get("subresource")] == [
        ("kube-sync-scheduling", "Apply")
    ]


@pytest.mark.slow  # test_metadatapolicy_conditions.py
async def test_policy_that_is_misspelt_says_where_until_it_is_mended(world: World) -> None:
    world.policy("misspelt", {"allowed": {"nodeSelektors": {"disk": ["ssd"]}}})
    await eventually(lambda: world.accepted("misspelt"), ("False", 1))
    assert "nodeSelektors" in world.conditions("misspelt")["Accepted"]["message"]
    world.policy("misspelt", {"allowed": {"nodeSelectors": {"disk": ["ssd"]}}})
    await eventually(lambda: world.accepted("misspelt"), ("True", 2))


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_second_start_writes_nothing(world: World) -> None:
    for name in ("restricted", "privileged"):
        await eventually(partial(world.accepted, name), ("True", 1))
    before = world.writes(*DEFAULTS, STATUS)
    await world.restart()
    world.policy("news", {"allowed": {}})
    await eventually(lambda: world.accepted("news"), ("True", 1))
    assert world.writes(*DEFAULTS, STATUS) == [*before, ("patch", STATUS, "news")]


async def test_what_is_missing_comes_back_and_what_was_added_stays(world: World) -> None:
    world.stack.api.delete("clusterrolebindings", "sp:restricted")
    rule = {
        "apiGroups": ["policy.kube-sync.io"],
        "resources": [KIND],
        "resourceNames": ["mine"],
        "verbs": ["use"],
    }
    world.stack.api.merge("clusterroles", "sp:restricted", {"rules": [rule]})
    change = {"spec": {"allowed": {"schedulerNames": ["mine"]}}}
    world.stack.api.merge(KIND, "restricted", change)
    await world.restart()
    (subject,) = world.get("clusterrolebinding", "sp:restricted")["subjects"]
    assert subject["name"] == "system:authenticated"
    names = [r["resourceNames"] for r in world.get("clusterrole", "sp:restricted")["rules"]]
    assert names == [["mine"], ["restricted"]]
    allowed = world.get(KIND, "restricted")["spec"]["allowed"]
    assert allowed["schedulerNames"] == ["mine", "default-scheduler"]


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_binding_of_another_role_is_made_anew(world: World) -> None:
    name, where = "sp:kube-system-privileged", "kube-system"
    found = world.get("rolebinding", name, where)
    world.stack.api.delete("rolebindings", name, where)
    metadata = {key: found["metadata"][key] for key in ("name", "namespace", "annotations")}
    role = found["roleRef"] | {"name": "sp:restricted"}
    world.apply({**found, "metadata": metadata, "roleRef": role})
    await world.restart()
    assert world.get("rolebinding", name, where)["roleRef"]["name"] == "sp:privileged"


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_what_says_so_is_left_alone(world: World) -> None:
    world.stack.api.annotate(KIND, "privileged", {AUTOUPDATE: "false"})
    path = world.stack.api.path(KIND, "privileged")
    change = [{"op": "replace", "path": "/spec", "value": {}}]
    world.stack.api.ask("PATCH", path, change, "application/json-patch+json")
    try:
        await world.restart()
        assert world.get(KIND, "privileged")["spec"] == {}
    finally:
        world.stack.api.annotate(KIND, "privileged", {AUTOUPDATE: "true"})
    await world.restart()
    assert "affinities" in world.get(KIND, "privileged")["spec"]["allowed"]


@pytest.mark.slow  # unit/policykinds/test_condition_writer.py
async def test_conditions_are_written_by_who_holds_the_lease(world: World) -> None:
    def holder() -> bool:
        spec = world.get("lease", "kube-sync-conditions", "kube-sync")["spec"]
        return bool(spec.get("holderIdentity"))

    await eventually(holder, expected=True)


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py compares them
async def test_manifests_applied_by_hand_change_nothing(world: World) -> None:
    for kind, name in (("clusterrole", "sp:privileged"), (KIND, "privileged")):
        before = world.get(kind, name)
        for manifest in build("scheduling"):
            world.stack.api.apply(manifest, force=True)
        after = world.get(kind, name)
        assert after.get("rules") == before.get("rules")
        assert after.get("spec") == before.get("spec")


@pytest.mark.parametrize(
    ("arguments", "said"),
    quickly(
        2,
        [
            (
                ("create", "clusterrole", "x", "--verb=get", "--resource=secrets"),
                "attempting to grant",
            ),
            (
                ("create", "clusterrolebinding", "x", "--clusterrole=cluster-admin", "--user=me"),
                "attempting to grant",
            ),
            (("get", "clusterrole", "cluster-admin"), "forbidden"),
            (("delete", "clusterrole", "sp:restricted"), "forbidden"),
            (("delete", KIND, "restricted"), "forbidden"),
            (("label", KIND, "misspelt", "a=b"), "forbidden"),
            (("label", "clusterrolebinding", "cluster-admin", "a=b"), "forbidden"),
        ],
    ),
    ids=str,
)
async def test_role_is_for_the_default_objects_and_grants_what_it_holds(
    world: World, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        world.stack.kubectl(*arguments, role="replicator")


@pytest.mark.slow  # why the role is as it is
async def test_role_without_use_could_not_grant_it(world: World) -> None:
    """So it is needed; `escalate` or `bind` would do as well, and give far more."""
    role = world.get("clusterrole", "kube-sync-replicator-scheduling-defaults")
    rules = [rule for rule in role["rules"] if "use" not in rule["verbs"]]
    assert len(rules) == len(role["rules"]) - 1
    world.apply({**role, "metadata": {"name": "without-use"}, "rules": rules})
    binding = ("create", "clusterrolebinding", "without-use", "--clusterrole=without-use")
    world.stack.kubectl(*binding, "--user=probe")
    # Not `restricted`, which everybody may use.
    granting = {key: rules[0][key] for key in ("apiGroups", "resources")}
    document = {
        **role,
        "metadata": {"name": "sp:new"},
        "rules": [granting | {"resourceNames": ["privileged"], "verbs": ["use"]}],
    }
    text = json.dumps(document)
    with pytest.raises(ToolError, match="attempting to grant RBAC permissions not currently held"):
        world.stack.kubectl("create", "--as=probe", "-f", "-", stdin=text)


async def test_opa_has_the_rights_and_the_report(world: World) -> None:
    token = world.stack.opa_token_files["replicator"].read_text(encoding="utf-8")
    path = "/v1/data/kubernetes/clusterroles/sp:restricted/rules/0/verbs"
    answer = request(
        "GET", world.stack.opa_url + path, ca_file=world.stack.opa_ca_file, token=token
    )
    assert json.loads(answer.body) == {"result": ["use"]}
