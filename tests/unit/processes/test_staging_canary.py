"""`kube-sync stage NAME canary`, and what comes after it, over a fake API server."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.cli.stage import declare, requested
from kube_sync.config import Kubernetes, Policies, Settings
from kube_sync.errors import Terminal
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.policymaps import STATUS
from kube_sync.policies.bundle import digest
from kube_sync.policies.staging.promotion import Limits, Request, Step
from kube_sync.processes.staging import run_stage
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key

OLD, NEW = {"a.rego": "package a"}, {"a.rego": "package a # new"}
NAME = "p-candidate"


class World:
    def __init__(self, api: FakeApiServer, kubeconfig: str) -> None:
        self.api = api
        self.settings = Settings(
            kubernetes=Kubernetes(kubeconfig=kubeconfig),
            policies=Policies(namespaces=("policies",)),
        )
        self.put("p", OLD)

    def put(self, name: str, data: dict[str, str], stage: str = "active", **says: Any) -> None:
        modules = {f"policies/{name}/{k}": v for k, v in data.items()}
        counted = {"status": "ok", "stage": stage, "objects": 10, "modules": digest(modules)}
        metadata = {
            "labels": {"kube-sync.io/stage": stage},
            "annotations": {STATUS: json.dumps({**counted, **says})},
        }
        self.api.put(CONFIGMAPS, key(name, "policies"), metadata=metadata, data=data)

    async def do(self, step: Step, name: str = NAME, **more: Any) -> str:
        return await run_stage(self.settings, Request(name, step, **more))

    def put_object(
        self, name: str, rego: str, stage: str, *, label: str | None = None, **says: Any
    ) -> None:
        modules = {f"policies/{name}.PlacementPolicy/a.rego": rego}
        staged = {"stage": stage, "objects": 10, "modules": digest(modules), **says}
        compiled = {"type": "Compiled", "status": "True", "observedGeneration": 1}
        self.api.put(
            PLACEMENT_POLICIES,
            key(name, "policies"),
            metadata={
                "generation": 1,
                "labels": {} if label is None else {"kube-sync.io/stage": label},
            },
            spec={"modules": [{"name": "a.rego", "rego": rego}], "stage": stage},
            status={"conditions": [compiled], "staged": staged},
        )

    async def object(self, step: Step, **more: Any) -> str:
        return await self.do(step, "o-candidate", kind="placementpolicy", **more)

    def rego(self, name: str) -> Any:
        found = self.api.get(PLACEMENT_POLICIES, key(name, "policies"))
        return found["spec"]["modules"][0]["rego"]

    def data(self, name: str) -> Any:
        return self.api.get(CONFIGMAPS, key(name, "policies"))["data"]

    def stage(self, name: str = NAME) -> Any:
        metadata = self.api.get(CONFIGMAPS, key(name, "policies"))["metadata"]
        return metadata["labels"]["kube-sync.io/stage"]

    @property
    def terms(self) -> dict[str, str]:
        metadata = self.api.get(CONFIGMAPS, key(NAME, "policies"))["metadata"]
        own = "kube-sync.io/"
        return {n[len(own) :]: t for n, t in metadata["annotations"].items() if n.startswith(own)}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        yield World(api, str(api.kubeconfig(tmp_path / "kubeconfig", None)))


async def test_canary_has_its_terms_on_it(world: World) -> None:
    world.put(NAME, NEW, "shadow")
    said = await world.do("canary", share="0.1")
    assert said == f"policies/{NAME} is canary of 10 % of all objects, once these are counted"
    assert (world.stage(), world.terms) == ("canary", {"canary-share": "0.1"})
    limits = Limits(2, 0.0)
    said = await world.do("canary", share="0.125", namespaces="b,a", limits=limits)
    assert "12.5 % of all objects and all in a, b" in said
    assert world.terms == {
        "canary-share": "0.125",
        "canary-namespaces": "b,a",
        "max-breaks": "2",
        "max-moves": "0",
    }


async def test_what_is_not_said_of_the_side_stays_and_usual_limits_are_said_by_none(
    world: World,
) -> None:
    world.put(NAME, NEW, "shadow")
    await world.do("canary", share="0.1", limits=Limits(2, 0.25))
    assert world.terms["max-moves"] == "0.25"
    await world.do("canary")
    assert world.terms == {"canary-share": "0.1"}
    said = await world.do("canary", namespaces="shop")
    assert said.startswith(f"policies/{NAME} is canary of all in shop,")
    assert world.terms == {"canary-namespaces": "shop"}


@pytest.mark.parametrize("terms", [{}, {"share": "2"}, {"namespaces": "A b"}])
async def test_terms_that_cannot_be_read_make_no_canary(world: World, terms: Any) -> None:
    world.put(NAME, NEW, "shadow")
    with pytest.raises(Terminal, match="--share"):
        await world.do("canary", **terms)
    assert (world.stage(), world.terms) == ("shadow", {})


async def test_what_is_in_force_is_made_a_canary_only_by_force(world: World) -> None:
    with pytest.raises(Terminal, match="out of force"):
        await world.do("canary", "p", share="0.1")
    assert world.stage("p") == "active"
    await world.do("canary", "p", share="0.1", force=True)
    assert world.stage("p") == "canary"


async def test_placementpolicy_has_its_terms_on_it_and_is_taken_back(world: World) -> None:
    world.put_object("o-candidate", "package a # new", "shadow", label="shadow")
    said = await world.object("canary", share="0.1", namespaces="shop", limits=Limits(2))
    assert said == (
        "PlacementPolicy policies/o-candidate is canary of 10 % of all objects and all in shop,"
        " once these are counted"
    )
    found = world.api.get(PLACEMENT_POLICIES, key("o-candidate", "policies"))
    assert found["spec"]["stage"] == "canary"
    assert found["metadata"]["labels"] == {}  # it would say another stage than the field
    assert found["metadata"]["annotations"] == {
        "kube-sync.io/canary-share": "0.1",
        "kube-sync.io/canary-namespaces": "shop",
        "kube-sync.io/max-breaks": "2",
    }
    said = await world.object("revert")
    assert "decides on nothing: it is candidate, it was canary" in said
    found = world.api.get(PLACEMENT_POLICIES, key("o-candidate", "policies"))
    assert found["spec"]["stage"] == "candidate"


async def test_placementpolicy_on_terms_that_cannot_be_read_is_made_no_canary(world: World) -> None:
    world.put_object("o-candidate", "package a # new", "shadow")
    with pytest.raises(Terminal, match="--share"):
        await world.object("canary", share="2")
    found = world.api.get(PLACEMENT_POLICIES, key("o-candidate", "policies"))
    assert found["spec"]["stage"] == "shadow"


async def test_placementpolicy_is_promoted_by_what_it_counted_as_a_canary(world: World) -> None:
    world.put_object("o", "package a", "active")
    halted = {"why": ["1 would be failed, at most 0 may"], "counts": {}}
    world.put_object("o-candidate", "package a # new", "canary", halted=halted)
    with pytest.raises(Terminal, match="halted as a canary: 1 would be failed"):
        await world.object("active")
    assert world.rego("o") == "package a"
    world.put_object("o-candidate", "package a # new", "canary", effect={"share": "0.1"})
    await world.object("active")
    assert world.rego("o") == "package a # new"
    await world.object("revert")
    assert world.rego("o") == "package a"


async def test_canary_is_promoted_by_what_it_counted(world: World) -> None:
    world.put(NAME, NEW, "canary", effect={"share": "0.1"}, moves=1)
    await world.do("active")
    assert (world.data("p"), world.stage()) == (NEW, "candidate")
    await world.do("revert")
    assert world.data("p") == OLD


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ({"status": "halted", "halted": {"why": ["1 would be failed"]}}, "1 would be failed"),
        ({"moves": 2}, "2 of 10 would move"),
        ({"objects": None}, "nothing is counted"),
    ],
)
async def test_canary_that_was_halted_or_not_counted_is_not_promoted(
    world: World, says: Any, why: str
) -> None:
    world.put(NAME, NEW, "canary", **says)
    with pytest.raises(Terminal, match=why):
        await world.do("active")
    assert (world.data("p"), world.stage()) == (OLD, "canary")


async def test_canary_is_taken_back_though_something_was_promoted_before(world: World) -> None:
    world.put(NAME, {"a.rego": "package a # first"}, "shadow")
    await world.do("active")
    world.put(NAME, NEW, "canary")
    said = await world.do("revert")
    assert said == f"policies/{NAME} decides on nothing: it is candidate, it was canary"
    assert (world.data("p"), world.stage()) == ({"a.rego": "package a # first"}, "candidate")
    await world.do("revert")
    assert world.data("p") == OLD


def test_command_line_says_who_a_canary_decides_on() -> None:
    parser = argparse.ArgumentParser()
    declare(parser)
    line = ["p", "canary", "--share", "0.1", "--namespaces", "a,b", "--max-moves", "0.5"]
    found = requested(parser.parse_args(line))
    assert (found.step, found.share, found.namespaces) == ("canary", "0.1", "a,b")
    assert found.limits == Limits(0, 0.5)
