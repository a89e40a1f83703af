"""Rego v0, alone and beside v1, through every use of the pinned OPA; and the placement document's
own policy text, from a labelled ConfigMap of a real API server into a real OPA.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.regoversion import NAME, in_version
from tests.eventually import eventually
from tests.integration.test_policies import World
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

# The design document of placement policies, "Handling conflicts", as it is printed there.
DOCUMENT = """package io.k8s.federation.admission

errors["requested replica-set-preferences includes invalid clusters"] {
  invalid_clusters = developer_clusters - policy_defined_clusters
  invalid_clusters != set()
}

annotations["replica-set-preferences"] = value {
  value = developer_clusters & policy_defined_clusters
}

# Not shown here:
#
# policy_defined_clusters[...] { ... }
# developer_clusters[...] { ... }
"""
INVALID = "requested replica-set-preferences includes invalid clusters"
# What is not shown there, in Rego v1: one package in both versions.
NOT_SHOWN = """package io.k8s.federation.admission

policy_defined_clusters contains name if some name in {"east", "west"}

developer_clusters contains name if some name in input.requested
"""
SET = {"ns/old/a.rego": in_version(DOCUMENT, 0), "ns/new/b.rego": NOT_SHOWN}
DECISION = "data.io.k8s.federation.admission"


@pytest.fixture
def scratch(launcher: Launcher) -> ScratchOpa:
    assert launcher.form  # which has the program prepared
    return ScratchOpa(str(ensure_binary("opa")))


async def test_modules_of_both_versions_compile_are_shown_and_decide_as_one_set(
    scratch: ScratchOpa,
) -> None:
    assert await scratch.check(SET) == []
    assert (await scratch.compiled(SET)).keys() == SET.keys()
    assert (await scratch.parsed(SET)).keys() == SET.keys()
    assert (await scratch.inspect(SET)).keys() == SET.keys()
    found = await scratch.evaluated(SET, {}, {"requested": ["east", "mars"]}, DECISION)
    assert (found["errors"], found["annotations"]) == (
        [INVALID],
        {"replica-set-preferences": ["east"]},
    )


async def test_opa_that_serves_both_versions_takes_data_beside_them(scratch: ScratchOpa) -> None:
    async with scratch.serving(SET, b'{"kubernetes": {"clusters": {}}}') as opa:
        await opa.put_data(("kubernetes", "nodes"), b'{"n": 1}')
        held = await opa.get_data(("kubernetes",))
        assert json.loads(held or b"") == {"clusters": {}, "nodes": {"n": 1}}
        asked = b'{"input": {"requested": ["mars"]}}'
        found = await opa.explain(DECISION.removeprefix("data.").replace(".", "/"), asked, 2**20, 5)
        assert json.loads(bytes(found.result))["errors"] == [INVALID]
        # The rows are those that the author wrote.
        assert any("ns/old/a.rego:3 " in line and "Exit" in line for line in found.explanation)


async def test_errors_of_both_versions_are_told_together_with_the_way_out(
    scratch: ScratchOpa,
) -> None:
    modules = {
        "ns/p/unlabelled.rego": DOCUMENT,
        "ns/p/labelled.rego": in_version("package a\n\np contains 1 if true\n", 0),
        "ns/p/old.rego": in_version("package b\n\np[x] { x = }\n", 0),
        "ns/p/new.rego": "package c\n\np if }\n",
    }
    causes = await scratch.check(modules)
    rows = {(c["location"]["file"], c["location"]["row"]) for c in causes}
    assert {("ns/p/unlabelled.rego", 3), ("ns/p/labelled.rego", 3)} <= rows
    assert {("ns/p/old.rego", 3), ("ns/p/new.rego", 3)} <= rows
    said = {c["location"]["file"]: c["message"] for c in reversed(causes)}
    assert f'label its ConfigMap {NAME}: "0"' in said["ns/p/unlabelled.rego"]
    assert "opa fmt --write --rego-v1" in said["ns/p/unlabelled.rego"]
    assert "is Rego v1: state 1 there" in said["ns/p/labelled.rego"]
    assert "Rego" not in said["ns/p/old.rego"] + said["ns/p/new.rego"]


async def test_compile_errors_of_a_set_of_both_versions_name_module_and_row(
    scratch: ScratchOpa,
) -> None:
    modules = {**SET, "ns/p/x": in_version("package x\n\np { missing(1) }\n", 0)}
    (cause,) = await scratch.check(modules)
    assert cause["location"] | {"col": 0} == {"file": "ns/p/x", "row": 3, "col": 0}
    with pytest.raises(Retriable, match="missing"):
        await scratch.evaluated(modules, {}, {}, DECISION)


def labelled(
    world: World, name: str, version: str | None, stage: str = "active", **modules: str
) -> None:
    labels = {"kube-sync.io/stage": stage} | ({} if version is None else {NAME: version})
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": world.namespace, "labels": labels},
        "data": {f"{key}.rego": source for key, source in modules.items()},
    }
    world.stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))


def decision(world: World, *requested: str) -> Any:
    """Return what the OPA that serves decides of an object that asks for these clusters."""
    return world.asked_with("io/k8s/federation/admission", {"requested": list(requested)})


async def test_document_s_own_policy_text_loads_with_the_label_and_decides_as_it_says(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    world = World(stack, opa, namespace, tmp_path)
    labelled(world, "helpers", None, m=NOT_SHOWN)
    labelled(world, "document", None, m=DOCUMENT)
    with world.replicating():
        await eventually(world.ok("document"), "error")
        first = world.status("document")["error"]["errors"][0]
        assert first["location"]["row"] == 3
        assert NAME in first["message"]
        assert "opa fmt --write --rego-v1" in first["message"]
        await eventually(world.ok("helpers"), "ok")  # it is delayed by nobody
        labelled(world, "document", "0", m=DOCUMENT)
        await eventually(world.ok("document"), "ok")
        found = decision(world, "east", "mars")
        assert found["errors"] == [INVALID]
        assert found["annotations"] == {"replica-set-preferences": ["east"]}
        assert decision(world, "east")["errors"] == []
        # Beside it, in a lane of its own.
        other = DOCUMENT.replace(INVALID, "shadowed")
        labelled(world, "document-candidate", "0", "shadow", m=other)
        await eventually(world.ok("document-candidate"), "ok")
        lane = world.data(
            "kube_sync_stage/shadow/io/k8s/federation/admission/policy_defined_clusters"
        )
        assert lane == ["east", "west"]
        # An edit that is at fault leaves the last good version, which is v0, in force.
        labelled(world, "document", "0", m=DOCUMENT + "p { missing(1) }\n")
        await eventually(world.ok("document"), "error")
        assert decision(world, "mars")["errors"] == [INVALID]
        labelled(world, "document", "v0", m=DOCUMENT)
        await eventually(
            lambda: world.status("document")["error"]["message"],
            f'label {NAME}: \'v0\' is no version of Rego ("0" or "1")',
        )
    # And so does the record of last good versions that a new replicator begins with.
    with world.replicating():
        assert decision(world, "mars")["errors"] == [INVALID]
