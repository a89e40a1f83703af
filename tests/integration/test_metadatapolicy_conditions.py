"""Conditions of MetadataPolicies on the real API server, by a replicator with exactly its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_pair import ROOT
from tests.parts import quickly
from tools.demo.components import start_service
from tools.servers.errors import ToolError
from tools.servers.http import get
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import RunningStack, furnished_stack

KIND = "metadatapolicies"
BAD = {"labelSelector": {"matchLabels": {"tier": "bad"}}}


@dataclass
class World:
    """A stack, and a replicator that can be started again."""

    stack: RunningStack
    folder: Path
    replicator: RunningServer | None = None

    def start(self) -> None:
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["replicator"])},
            "opa": self.stack.opa_settings(),
            "decisions": self.stack.endpoint.server(),
            "builtin": ["metadata"],
        }
        self.replicator = start_service("replicate", self.folder, configuration)

    def stop(self) -> None:
        if self.replicator is not None:
            self.replicator.stop()
            self.replicator = None

    def policy(self, namespace: str, name: str, *rules: dict[str, Any]) -> None:
        document = {
            "apiVersion": "policy.kube-sync.io/v1alpha1",
            "kind": "MetadataPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"rules": list(rules)},
        }
        self.stack.api.apply(document, strict=False)

    def delete(self, namespace: str, name: str) -> None:
        self.stack.api.delete(KIND, name, namespace)

    def get(self, namespace: str, name: str) -> Any:
        return self.stack.api.get(KIND, name, namespace)

    def conditions(self, namespace: str, name: str) -> Any:
        found = self.get(namespace, name).get("status", {}).get("conditions", [])
        return {one["type"]: one for one in found}

    def said(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return whether it is accepted, and whether something was found, of this generation."""
        found = self.get(namespace, name)
        conditions = {one["type"]: one for one in found.get("status", {}).get("conditions", [])}
        if not conditions or any(
            one["observedGeneration"] != found["metadata"]["generation"]
            for one in conditions.values()
        ):
            return None
        return conditions["Accepted"]["status"], conditions["Findings"]["status"]

    async def told(self, condition: str, what: str) -> None:
        def read() -> bool:
            assert self.replicator is not None
            page = get(self.replicator.url + "/readyz").body.decode()
            return any(what in line for line in page.splitlines() if condition in line)

        await eventually(read, expected=True)


def setting(value: str) -> dict[str, Any]:
    return {"policyPredicate": {}, "policyAction": {"updatedLabels": {"tier": value}}}


def rejecting(predicate: dict[str, Any]) -> dict[str, Any]:
    return {"policyPredicate": predicate, "policyAction": {"reject": True}}


@pytest.fixture(scope="module")
def module_world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("metadata")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        stack.apply(ROOT / "manifests/metadata-rbac")
        stack.install_kinds(ROOT / "manifests/crds")
        world = World(stack, folder / "replicate")
        world.start()
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
async def world(module_world: World) -> Any:
    await module_world.told("metadata conditions", "ok")
    return module_world


@pytest.fixture
def shop(world: World, request: pytest.FixtureRequest) -> str:
    """A namespace of its own."""
    name = f"ns-{abs(hash(request.node.name)) % 10**9}"
    world.stack.api.create_namespace(name)
    return name


async def test_plain_policy_is_accepted_by_a_manager_of_its_own(world: World, shop: str) -> None:
    world.policy(shop, "fine", setting("gold"))
    await eventually(partial(world.said, shop, "fine"), ("True", "False"))
    managers = world.get(shop, "fine")["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers if m.get("subresource")] == [
        ("kube-sync-metadata", "Apply")
    ]


async def test_rule_that_applies_to_nothing_is_named_until_it_is_mended(
    world: World, shop: str
) -> None:
    world.policy(shop, "it", rejecting({"labelSelektor": {}}))
    await eventually(partial(world.said, shop, "it"), ("False", "False"))
    accepted = world.conditions(shop, "it")["Accepted"]
    assert accepted["reason"] == "Invalid"
    assert accepted["message"].startswith("spec.rules[0].policyPredicate.labelSelektor: ")
    world.policy(shop, "it", rejecting(BAD))
    await eventually(partial(world.said, shop, "it"), ("True", "False"))


@pytest.mark.slow  # unit/policykinds/test_condition_writer.py
async def test_policy_in_an_exempt_namespace_says_so_instead_of_accepted(world: World) -> None:
    world.policy("kube-system", "exempt", setting("gold"))
    await eventually(partial(world.said, "kube-system", "exempt"), ("False", "False"))
    accepted = world.conditions("kube-system", "exempt")["Accepted"]
    assert accepted["reason"] == "NamespaceExempt"
    assert accepted["message"].startswith("the namespace kube-system is exempt: ")
    world.delete("kube-system", "exempt")


@pytest.mark.slow  # the Rego of findings has its own tests
async def test_rule_that_can_never_match_is_found(world: World, shop: str) -> None:
    contradiction = [
        {"key": "a", "operator": "Exists"},
        {"key": "a", "operator": "DoesNotExist"},
    ]
    world.policy(shop, "never", rejecting({"labelSelector": {"matchExpressions": contradiction}}))
    await eventually(partial(world.said, shop, "never"), ("True", "True"))
    message = world.conditions(shop, "never")["Findings"]["message"]
    assert message == "spec.rules[0]: NeverMatches: no object can match"


async def test_policy_that_comes_and_goes_changes_what_is_found_in_another(
    world: World, shop: str
) -> None:
    world.policy(shop, "a", setting("gold"))
    await eventually(partial(world.said, shop, "a"), ("True", "False"))
    world.policy(shop, "b", setting("silver"))
    for name in ("a", "b"):
        await eventually(partial(world.said, shop, name), ("True", "True"))
        assert "ConflictingValues" in world.conditions(shop, name)["Findings"]["message"]
    world.policy(shop, "b", setting("gold"))
    for name in ("a", "b"):
        await eventually(partial(world.said, shop, name), ("True", "False"))
    world.policy(shop, "b", rejecting({"labelSelector": {"matchLabels": {"tier": "gold"}}}))
    await eventually(partial(world.said, shop, "a"), ("True", "True"))
    assert "DefaultRejected" in world.conditions(shop, "a")["Findings"]["message"]
    world.delete(shop, "b")
    await eventually(partial(world.said, shop, "a"), ("True", "False"))


async def test_other_namespaces_do_not_count(world: World, shop: str) -> None:
    world.policy("default", "a", setting("gold"))
    world.policy(shop, "a", setting("silver"))
    for namespace in ("default", shop):
        await eventually(partial(world.said, namespace, "a"), ("True", "False"))


@pytest.mark.slow  # two of them are, above
async def test_all_policies_of_a_namespace_that_come_at_once_are_judged(
    world: World, shop: str
) -> None:
    names = [f"p-{number}" for number in range(20)]
    for name in names:
        world.policy(shop, name, setting(name))
    for name in names:
        await eventually(partial(world.said, shop, name), ("True", "True"))
    for name in names:
        lines = world.conditions(shop, name)["Findings"]["message"].splitlines()
        assert len(lines) == len(names) - 1


async def test_second_start_writes_nothing(world: World, shop: str) -> None:
    def writes() -> list[str]:
        assert world.stack.audit_log is not None
        entries = map(
            json.loads, world.stack.audit_log.read_bytes().rpartition(b"\n")[0].splitlines()
        )
        return [
            f"{entry['objectRef']['namespace']}/{entry['objectRef']['name']}"
            for entry in entries
            if entry["user"]["username"].endswith(":kube-sync-replicator")
            and entry["verb"] == "patch"
            and entry["objectRef"].get("subresource") == "status"
        ]

    world.policy(shop, "it", setting("gold"))
    await eventually(partial(world.said, shop, "it"), ("True", "False"))
    before = writes()
    world.stop()
    world.start()
    await world.told("metadata conditions", "ok")
    world.policy(shop, "news", setting("gold"))
    await eventually(partial(world.said, shop, "news"), ("True", "False"))
    assert writes() == [*before, f"{shop}/news"]


@pytest.mark.parametrize(
    "arguments",
    quickly(
        2,
        [
            (("get", "metadatapolicies", "fine"),),
            (("delete", "metadatapolicies", "fine"),),
            (("label", "metadatapolicies", "fine", "a=b"),),
            (("get", "clusterroles"),),
            (("delete", "lease", "kube-sync-conditions", "--namespace=kube-sync"),),
        ],
    ),
    ids=str,
)
async def test_role_is_for_reading_policies_and_writing_their_status(
    world: World, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(ToolError, match="forbidden"):
        world.stack.kubectl(*arguments, role="replicator")
    world.stack.kubectl("get", "metadatapolicies", "--all-namespaces", role="replicator")
