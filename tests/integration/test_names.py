"""Names of objects, form by form, in every command that takes one: against a real API server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.commandline import Finished, kube_sync
from tests.eventually import eventually
from tools.demo.components import UNBRAKED, Components, start_components
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, cluster, namespace, replica_set
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.slow  # tests/unit/cli/test_names.py proves each form without servers

POLICY = f"""package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{"clusters": {{"west": {{"weight": 1}}}}}} if {{
	input.kind == "ReplicaSet"
	data.kubernetes.clusters.{FLEET}.west
}}
"""
ONE = {
    "TYPE NAME": ("rs", "web", "-n", "shop"),
    "TYPE/NAME": ("rs/web", "-n", "shop"),
    "TYPE/NAMESPACE/NAME": ("replicasets/shop/web",),
    "NAMESPACE/NAME": ("shop/web",),
    "NAME": ("web", "-n", "shop"),
    "plural": ("replicasets", "web", "-n", "shop"),
    "singular": ("replicaset/web", "-n", "shop"),
    "kind": ("ReplicaSet/web", "-n", "shop"),
    "group": ("replicasets.apps/web", "-n", "shop"),
    "version and group": ("replicasets.v1.apps", "web", "-n", "shop"),
}
SEVERAL = {
    "TYPE NAME NAME": ("rs", "web", "api", "-n", "shop"),
    "TYPE/NAME TYPE/NAME": ("rs/web", "rs/api", "-n", "shop"),
    "NAMESPACE/NAME NAMESPACE/NAME": ("shop/web", "shop/api"),
}
TAKE_ONE = (("why",), ("history",), ("decisions",))
TAKE_SEVERAL = TAKE_ONE


@dataclass
class World:
    """A stack with all three services on it, and the configuration of a person."""

    stack: RunningStack
    components: Components
    config: Path

    def run(self, *arguments: str) -> Finished:
        return kube_sync(*arguments, "--config", str(self.config))

    def workload(self, name: str) -> None:
        found = replica_set(name)
        found["metadata"]["namespace"] = "shop"
        self.stack.api.apply(found, force=True)

    def placed(self, name: str) -> bool:
        found = self.stack.api.get("replicasets", name, "shop")["metadata"]
        return PREFERENCES in (found.get("annotations") or {})


@pytest.fixture(scope="module")
def world(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("names")
    with furnished_stack(launcher, folder / "stack") as stack:
        components = start_components(stack, folder / "components", {**UNBRAKED, "mode": "manual"})
        config = folder / "config.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
                    "opa": stack.opa_settings(),
                    "decisions": stack.endpoint.client(),
                    **components.client,
                }
            ),
            encoding="utf-8",
        )
        made = World(stack, components, config)
        try:
            _furnish(made)
            asyncio.run(eventually(lambda: made.run("decisions", "shop/web", "shop/api").stdout))
            yield made
        finally:
            components.stop()


def _furnish(world: World) -> None:
    stack = world.stack
    for name in (FLEET, "shop"):
        stack.api.apply(namespace(name), force=True)
    stack.api.apply(cluster("west", "europe-west1", "2"), force=True)
    for name in ("web", "api"):
        world.workload(name)
    metadata = {"name": "placement", "namespace": POLICIES}
    data = {"placement.rego": POLICY}
    stack.api.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, force=True
    )


@pytest.mark.parametrize("form", ONE)
@pytest.mark.parametrize("command", TAKE_ONE, ids=" ".join)
def test_command_takes_an_object_in_every_form(
    world: World, command: tuple[str, ...], form: str
) -> None:
    done = world.run(*command, *ONE[form])
    assert done.returncode == 0, done.stderr
    assert "web" in done.stdout
    assert "shop/api" not in done.stdout


@pytest.mark.parametrize("form", SEVERAL)
@pytest.mark.parametrize("command", TAKE_SEVERAL, ids=" ".join)
def test_command_takes_several_objects(world: World, command: tuple[str, ...], form: str) -> None:
    done = world.run(*command, *SEVERAL[form])
    assert done.returncode == 0, done.stderr
    assert "web" in done.stdout
    assert "api" in done.stdout


@pytest.mark.parametrize("form", ONE)
def test_why_not_takes_an_object_in_every_form_and_then_a_cluster(world: World, form: str) -> None:
    *names, last = ONE[form]
    options: list[str] = []
    if "-n" in names:
        options = ["-n", last]
        names = [one for one in names if one != "-n"]
    else:
        names.append(last)
    done = world.run("why-not", *names, "west", *options)
    assert done.returncode in (0, 3), done.stderr
    assert "web" in done.stdout + done.stderr
    assert "west" in done.stdout + done.stderr


@pytest.mark.parametrize("form", ONE)
async def test_apply_lets_an_object_through_by_every_form(world: World, form: str) -> None:
    name = f"web-{[*ONE].index(form)}"
    world.workload(name)

    def applied() -> bool:
        words = [re.sub(r"\bweb\b", name, word) for word in ONE[form]]
        return world.run("remediate", "apply", *words).returncode == 0

    await eventually(applied)
    await eventually(lambda: world.placed(name))
    assert not world.placed("web")


def test_what_decisions_prints_every_command_takes(world: World) -> None:
    printed = world.run("decisions", "-A", "-o", "name").stdout.split()
    assert {"replicasets.apps/shop/api", "replicasets.apps/shop/web"} <= {*printed}
    for command in TAKE_ONE:
        done = world.run(*command, *printed)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("command", TAKE_ONE, ids=" ".join)
@pytest.mark.parametrize("name", ["rs/missing", "widgets/web", "shop/missing"])
def test_object_that_is_not_there_is_named(
    world: World, command: tuple[str, ...], name: str
) -> None:
    options = () if name.startswith("shop") else ("-n", "shop")
    done = world.run(*command, name, *options)
    assert done.returncode != 0
    assert name.rpartition("/")[2] in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
