"""Default policies, rights and conditions, by a replicator with exactly its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.manifests import build
from tests.integration.builtin_world import World, policy
from tests.integration.test_pair import ROOT
from tests.parts import quickly
from tools.servers.errors import ToolError
from tools.servers.http import request
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

KIND = "schedulingpolicies"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
STATUS = "schedulingpolicies/status"


BOOTSTRAP = "scheduling bootstrap"


async def restart(world: World) -> None:
    """Start anew, and wait until all is there that should be."""
    world.stop()
    world.start()
    await world.ready(BOOTSTRAP)


def accepted(world: World, name: str) -> str | None:
    """Return whether a policy is accepted as it is now, None: it is not known yet."""
    return world.current(KIND, name).get("Accepted")


DEFAULTS = ("clusterroles", "clusterrolebindings", "rolebindings", KIND)


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("scheduling")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        stack.apply(ROOT / "manifests/scheduling-rbac")
        world = World(stack, folder / "replicate", ("scheduling",))
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
async def world(module_world: World) -> Any:
    """All of it in place."""
    if module_world.replicator is None:
        module_world.start()
        await module_world.ready(BOOTSTRAP, "is manifests/crds installed?")
        module_world.stack.install_kinds(ROOT / "manifests/crds")
    await module_world.ready(BOOTSTRAP)
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
        await eventually(partial(accepted, world, name), "True")
    managers = world.found(KIND, "restricted")["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers if m.get("subresource")] == [
        ("kube-sync-scheduling", "Apply")
    ]


@pytest.mark.slow  # test_metadatapolicy_conditions.py
async def test_policy_that_is_misspelt_says_where_until_it_is_mended(world: World) -> None:
    world.apply(
        policy("SchedulingPolicy", "misspelt", {"allowed": {"nodeSelektors": {"disk": ["ssd"]}}})
    )
    await eventually(partial(accepted, world, "misspelt"), "False")
    assert "nodeSelektors" in world.conditions(KIND, "misspelt")["Accepted"]["message"]
    world.apply(
        policy("SchedulingPolicy", "misspelt", {"allowed": {"nodeSelectors": {"disk": ["ssd"]}}})
    )
    await eventually(partial(accepted, world, "misspelt"), "True")


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_second_start_writes_nothing(world: World) -> None:
    for name in ("restricted", "privileged"):
        await eventually(partial(accepted, world, name), "True")
    last, written = ("patch", STATUS, "privileged"), partial(world.writes, *DEFAULTS, STATUS)
    before = await eventually(written, lambda found: last in found)
    await restart(world)
    world.apply(policy("SchedulingPolicy", "news", {"allowed": {}}))
    await eventually(partial(accepted, world, "news"), "True")
    await eventually(written, [*before, ("patch", STATUS, "news")])


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
    await restart(world)
    (subject,) = world.found("clusterrolebinding", "sp:restricted")["subjects"]
    assert subject["name"] == "system:authenticated"
    names = [r["resourceNames"] for r in world.found("clusterrole", "sp:restricted")["rules"]]
    assert names == [["mine"], ["restricted"]]
    allowed = world.found(KIND, "restricted")["spec"]["allowed"]
    assert allowed["schedulerNames"] == ["mine", "default-scheduler"]


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_binding_of_another_role_is_made_anew(world: World) -> None:
    name, where = "sp:kube-system-privileged", "kube-system"
    found = world.found("rolebinding", name, where)
    world.stack.api.delete("rolebindings", name, where)
    metadata = {key: found["metadata"][key] for key in ("name", "namespace", "annotations")}
    role = found["roleRef"] | {"name": "sp:restricted"}
    world.apply({**found, "metadata": metadata, "roleRef": role})
    await restart(world)
    assert world.found("rolebinding", name, where)["roleRef"]["name"] == "sp:privileged"


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py
async def test_what_says_so_is_left_alone(world: World) -> None:
    world.stack.api.annotate(KIND, "privileged", {AUTOUPDATE: "false"})
    path = world.stack.api.path(KIND, "privileged")
    change = [{"op": "replace", "path": "/spec", "value": {}}]
    world.stack.api.ask("PATCH", path, change, "application/json-patch+json")
    try:
        await restart(world)
        assert world.found(KIND, "privileged")["spec"] == {}
    finally:
        world.stack.api.annotate(KIND, "privileged", {AUTOUPDATE: "true"})
    await restart(world)
    assert "affinities" in world.found(KIND, "privileged")["spec"]["allowed"]


@pytest.mark.slow  # unit/policykinds/test_condition_writer.py
async def test_conditions_are_written_by_who_holds_the_lease(world: World) -> None:
    def holder() -> bool:
        spec = world.found("lease", "kube-sync-conditions", "kube-sync")["spec"]
        return bool(spec.get("holderIdentity"))

    await eventually(holder, expected=True)


@pytest.mark.slow  # unit/admission/scheduling/test_bootstrap.py compares them
async def test_manifests_applied_by_hand_change_nothing(world: World) -> None:
    for kind, name in (("clusterrole", "sp:privileged"), (KIND, "privileged")):
        before = world.found(kind, name)
        for manifest in build("scheduling"):
            world.stack.api.apply(manifest, force=True)
        after = world.found(kind, name)
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
    role = world.found("clusterrole", "kube-sync-replicator-scheduling-defaults")
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
