"""The worked cases of SchedulingPolicy that can exist in a live cluster, through its API server.

Left out are those of another `merge_option` than the cluster's. The API server puts in the name of
the default scheduler before anybody is asked, and tolerations of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.scheduling_world import ROOT, World, scheduling_world, service_account
from tools.servers.http import get
from tools.servers.running import Launcher

pytestmark = pytest.mark.slow  # tests/scheduling asks OPA itself about the same cases

_FILE = ROOT / "tests/cases/policy_cases.json"
_KINDS = {
    "clusterRoles": "clusterroles",
    "roles": "roles",
    "roleBindings": "rolebindings",
    "clusterRoleBindings": "clusterrolebindings",
}
_INJECTED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _cases() -> list[Any]:
    found = json.loads(_FILE.read_text(encoding="utf-8"))
    return [case for case in found if case["system"] == "scheduling" and case["merge_option"] == 1]


CASES = _cases()


@pytest.fixture(scope="module")
def world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All that the cases name is there: namespaces, service accounts, priority classes."""
    with scheduling_world(launcher, tmp_path_factory.mktemp("cases")) as found:
        found.stack.install_kinds(ROOT / "manifests/crds")
        for name in sorted(_named(CASES, "priorityClass")):
            if not name.startswith("system-"):
                found.apply(
                    {
                        "apiVersion": "scheduling.k8s.io/v1",
                        "kind": "PriorityClass",
                        "metadata": {"name": name},
                        "value": 1,
                    }
                )
        found.stack.api.create_namespace("team-a")
        for account in ("builder", "default"):
            found.stack.api.create(service_account(account, "team-a"))
        found.policy("nobodys", {})
        found.register()
        yield found


def _named(value: Any, key: str) -> set[str]:
    """Return all names below keys that begin so, whatever they are spelt like."""
    if isinstance(value, list):
        return {name for member in value for name in _named(member, key)}
    if not isinstance(value, dict):
        return set()
    found = {name for member in value.values() for name in _named(member, key)}
    for name, member in value.items():
        if name.startswith((key, "priorityClasse")) and isinstance(member, str | list):
            found |= {member} if isinstance(member, str) else set(member)
    return found


def _held(world: World) -> dict[str, Any]:
    """Return what OPA holds of the policies, and of the rights that are the case's own."""
    token = world.stack.opa_token_files["replicator"].read_text(encoding="utf-8")
    url = f"{world.stack.opa_url}/v1/data/kubernetes"
    answer = get(url, ca_file=world.stack.opa_ca_file, token=token)
    data = json.loads(answer.body)["result"]
    return {kind: data.get(kind, {}) for kind in (*_KINDS.values(), "schedulingpolicies")}


def _is_held(world: World, case: Any) -> bool:
    held = _held(world)
    specs = {name: found.get("spec") for name, found in held["schedulingpolicies"].items()}
    if specs != {p["metadata"]["name"]: p["spec"] for p in case["policies"]} | {"nobodys": {}}:
        return False
    return all(
        _at(held[_KINDS[kind]], manifest["metadata"]) is not None
        for kind, manifests in (case["rbac"] or {}).items()
        for manifest in manifests
    )


def _at(held: dict[str, Any], metadata: dict[str, str]) -> Any:
    inside = held.get(metadata["namespace"], {}) if "namespace" in metadata else held
    return inside.get(metadata["name"])


def _follow(document: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        document = document[part.replace("~1", "/").replace("~0", "~")]
    return document


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_a_case_comes_out_the_same(world: World, case: Any) -> None:
    manifests = [m for found in (case["rbac"] or {}).values() for m in found]
    everything = [*manifests, *case["policies"]]
    for manifest in everything:
        world.stack.api.apply(manifest, strict=False)
    try:
        await eventually(world.failure_policies, {"Fail"})
        await eventually(lambda: _is_held(world, case), expected=True)
        if case["expected"]["allowed"]:
            _compare(case, world.create(case["object"], "--dry-run=server"))
        else:
            message = world.refused(case["object"], "--dry-run=server")
            for part in case["expected"].get("reasons_contain", ()):
                assert part in message
    finally:
        for manifest in everything:
            world.stack.api.remove(manifest)
        await eventually(lambda: set(_held(world)["schedulingpolicies"]), {"nobodys"})


def _compare(case: Any, stored: Any) -> None:
    expected, spec = case["expected"], stored["spec"]
    own = [t for t in spec.get("tolerations", ()) if t.get("key") not in _INJECTED]
    asked = case["object"]["spec"]
    for pointer, value in expected.get("mutated", {}).items():
        assert _follow(stored, pointer) == value
    for pointer, value in expected.get("mutated_unordered", {}).items():
        assert pointer == "/spec/tolerations"
        assert sorted(own, key=str) == sorted(value, key=str)
    if expected.get("unmutated"):
        assert spec.get("nodeSelector") == asked.get("nodeSelector")
        assert spec.get("affinity") == asked.get("affinity")
        assert len(own) == len(asked.get("tolerations", ()))
