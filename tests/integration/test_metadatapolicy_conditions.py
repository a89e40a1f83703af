"""Conditions of MetadataPolicies on the real API server, by a replicator with exactly its roles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.builtin_world import World, policy
from tests.integration.test_pair import ROOT
from tests.parts import quickly
from tools.servers.errors import ToolError
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

KIND = "metadatapolicies"
STATUS = f"{KIND}/status"
BAD = {"labelSelector": {"matchLabels": {"tier": "bad"}}}


def apply(world: World, namespace: str, name: str, *rules: dict[str, Any]) -> None:
    """Apply a policy with these rules."""
    world.apply(policy("MetadataPolicy", name, {"rules": [*rules]}, namespace))


def said(world: World, namespace: str, name: str) -> tuple[str | None, str | None]:
    """Return whether it is accepted, and whether something was found, of this generation."""
    found = world.current(KIND, name, namespace)
    return found.get("Accepted"), found.get("Findings")


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
        world = World(stack, folder / "replicate", ("metadata",))
        world.start()
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
async def world(module_world: World) -> Any:
    await module_world.ready("metadata conditions")
    return module_world


@pytest.fixture
def shop(world: World, request: pytest.FixtureRequest) -> str:
    """A namespace of its own."""
    name = f"ns-{abs(hash(request.node.name)) % 10**9}"
    world.stack.api.create_namespace(name)
    return name


async def test_plain_policy_is_accepted_by_a_manager_of_its_own(world: World, shop: str) -> None:
    apply(world, shop, "fine", setting("gold"))
    await eventually(partial(said, world, shop, "fine"), ("True", "False"))
    managers = world.found(KIND, "fine", shop)["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers if m.get("subresource")] == [
        ("kube-sync-metadata", "Apply")
    ]


async def test_rule_that_applies_to_nothing_is_named_until_it_is_mended(
    world: World, shop: str
) -> None:
    apply(world, shop, "it", rejecting({"labelSelektor": {}}))
    await eventually(partial(said, world, shop, "it"), ("False", "False"))
    accepted = world.conditions(KIND, "it", shop)["Accepted"]
    assert accepted["reason"] == "Invalid"
    assert accepted["message"].startswith("spec.rules[0].policyPredicate.labelSelektor: ")
    apply(world, shop, "it", rejecting(BAD))
    await eventually(partial(said, world, shop, "it"), ("True", "False"))


@pytest.mark.slow  # unit/policykinds/test_condition_writer.py
async def test_policy_in_an_exempt_namespace_says_so_instead_of_accepted(world: World) -> None:
    apply(world, "kube-system", "exempt", setting("gold"))
    await eventually(partial(said, world, "kube-system", "exempt"), ("False", "False"))
    accepted = world.conditions(KIND, "exempt", "kube-system")["Accepted"]
    assert accepted["reason"] == "NamespaceExempt"
    assert accepted["message"].startswith("the namespace kube-system is exempt: ")
    world.stack.api.delete(KIND, "exempt", "kube-system")


@pytest.mark.slow  # the Rego of findings has its own tests
async def test_rule_that_can_never_match_is_found(world: World, shop: str) -> None:
    contradiction = [
        {"key": "a", "operator": "Exists"},
        {"key": "a", "operator": "DoesNotExist"},
    ]
    apply(world, shop, "never", rejecting({"labelSelector": {"matchExpressions": contradiction}}))
    await eventually(partial(said, world, shop, "never"), ("True", "True"))
    message = world.conditions(KIND, "never", shop)["Findings"]["message"]
    assert message == "spec.rules[0]: NeverMatches: no object can match"


async def test_policy_that_comes_and_goes_changes_what_is_found_in_another(
    world: World, shop: str
) -> None:
    apply(world, shop, "a", setting("gold"))
    await eventually(partial(said, world, shop, "a"), ("True", "False"))
    apply(world, shop, "b", setting("silver"))
    for name in ("a", "b"):
        await eventually(partial(said, world, shop, name), ("True", "True"))
        assert "ConflictingValues" in world.conditions(KIND, name, shop)["Findings"]["message"]
    apply(world, shop, "b", setting("gold"))
    for name in ("a", "b"):
        await eventually(partial(said, world, shop, name), ("True", "False"))
    apply(world, shop, "b", rejecting({"labelSelector": {"matchLabels": {"tier": "gold"}}}))
    await eventually(partial(said, world, shop, "a"), ("True", "True"))
    assert "DefaultRejected" in world.conditions(KIND, "a", shop)["Findings"]["message"]
    world.stack.api.delete(KIND, "b", shop)
    await eventually(partial(said, world, shop, "a"), ("True", "False"))


async def test_other_namespaces_do_not_count(world: World, shop: str) -> None:
    apply(world, "default", "a", setting("gold"))
    apply(world, shop, "a", setting("silver"))
    for namespace in ("default", shop):
        await eventually(partial(said, world, namespace, "a"), ("True", "False"))


@pytest.mark.slow  # two of them are, above
async def test_all_policies_of_a_namespace_that_come_at_once_are_judged(
    world: World, shop: str
) -> None:
    names = [f"p-{number}" for number in range(20)]
    for name in names:
        apply(world, shop, name, setting(name))
    for name in names:
        await eventually(partial(said, world, shop, name), ("True", "True"))
    for name in names:
        lines = world.conditions(KIND, name, shop)["Findings"]["message"].splitlines()
        assert len(lines) == len(names) - 1


async def test_second_start_writes_nothing(world: World, shop: str) -> None:
    first, second = (("patch", STATUS, f"{shop}/{name}") for name in ("it", "news"))
    written = partial(world.writes, STATUS)
    apply(world, shop, "it", setting("gold"))
    await eventually(partial(said, world, shop, "it"), ("True", "False"))
    before = await eventually(written, lambda found: first in found)
    world.stop()
    world.start()
    await world.ready("metadata conditions")
    apply(world, shop, "news", setting("gold"))
    await eventually(partial(said, world, shop, "news"), ("True", "False"))
    await eventually(written, [*before, second])


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
