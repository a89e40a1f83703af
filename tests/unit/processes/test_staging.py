"""Promotion and what takes it back, over a fake API server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.cli import main
from kube_sync.cli.stage import named
from kube_sync.config import Kubernetes, Policies, Settings
from kube_sync.errors import SyncError, Terminal
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.policymaps import STATUS
from kube_sync.policies.bundle import digest
from kube_sync.policies.staging.neighbours import together
from kube_sync.policies.staging.promotion import Request, Step
from kube_sync.processes.staging import consider, run_stage
from kube_sync.regoversion import with_versions
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.http import answer

OLD = {"a.rego": "package a", "b.rego": "package b", "README": "words"}
NEW = {"a.rego": "package a # new", "c.rego": "package c"}


class World:
    def __init__(self, api: FakeApiServer, kubeconfig: str) -> None:
        self.api = api
        self.settings = Settings(
            kubernetes=Kubernetes(kubeconfig=kubeconfig),
            policies=Policies(namespaces=("policies",)),
        )

    def put(self, name: str, data: dict[str, str], stage: str | None = None, **says: Any) -> None:
        metadata: dict[str, Any] = {}
        if stage is not None:
            metadata["labels"] = {"kube-sync.io/stage": stage, "team": "x"}
            modules = {f"policies/{name}/{k}": v for k, v in data.items() if k.endswith(".rego")}
            counted = {"status": "ok", "stage": stage, "objects": 10, "modules": digest(modules)}
            metadata["annotations"] = {STATUS: json.dumps({**counted, **says})}
        self.api.put(CONFIGMAPS, key(name, "policies"), metadata=metadata, data=data)

    def put_object(
        self, name: str, data: dict[str, str], stage: str = "active", version: str | None = None
    ) -> None:
        modules = [{"name": module, "rego": source} for module, source in data.items()]
        own = f"policies/{name}.PlacementPolicy"
        counted = {"stage": stage, "objects": 10}
        stated = with_versions(data, None if version is None else int(version), 1)
        counted["modules"] = digest({f"{own}/{k}": v for k, v in stated.items()})
        compiled = {"type": "Compiled", "status": "True", "observedGeneration": 1}
        self.api.put(
            PLACEMENT_POLICIES,
            key(name, "policies"),
            metadata={"generation": 1, "labels": {"team": "x"}},
            spec={"modules": modules, "stage": stage}
            | ({} if version is None else {"regoVersion": version}),
            status={"conditions": [compiled], "staged": counted},
        )

    async def do(self, name: str, step: Step, *, force: bool = False) -> str:
        kind, _, name = named([name], None)
        return await run_stage(self.settings, Request(name, step, force=force, kind=kind))

    def object(self, name: str) -> Any:
        return self.api.get(PLACEMENT_POLICIES, key(name, "policies"))

    @property
    def objects(self) -> dict[str, tuple[str, list[str]]]:
        """Stage and texts of each PlacementPolicy."""
        return {
            found.name: (spec["stage"], [module["rego"] for module in spec["modules"]])
            for found in self.api.objects(PLACEMENT_POLICIES)
            for spec in [self.object(found.name)["spec"]]
        }

    def data(self, name: str) -> Any:
        return self.api.get(CONFIGMAPS, key(name, "policies"))["data"]

    def labels(self, name: str) -> Any:
        return self.api.get(CONFIGMAPS, key(name, "policies"))["metadata"].get("labels", {})

    @property
    def names(self) -> set[str]:
        return {found.name for found in self.api.objects(CONFIGMAPS)}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        yield World(api, str(api.kubeconfig(tmp_path / "kubeconfig", None)))


async def test_promoted_policy_takes_the_place_and_one_command_takes_it_back(world: World) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow")
    await world.do("p-candidate", "active")
    assert world.data("p") == NEW
    assert world.labels("p-candidate")["kube-sync.io/stage"] == "candidate"
    assert not any(name.endswith(".rego") for name in world.data("p-before"))
    await world.do("p-candidate", "revert")
    assert world.data("p") == OLD
    assert world.names == {"p", "p-candidate"}
    with pytest.raises(Terminal, match="nothing was promoted in place of policies/p"):
        await world.do("p-candidate", "revert")


async def test_promotion_is_considered_as_it_would_be_and_nothing_is_written(world: World) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow")
    request = Request("p-candidate", "active")
    found = await consider(world.settings, request)
    assert found is not None
    assert (str(found.policy), found.said) == (
        "policies/p-candidate",
        ("policies/p would say what policies/p-candidate says",),
    )
    assert (world.data("p"), world.names) == (OLD, {"p", "p-candidate"})
    await run_stage(world.settings, replace(request, seen=found.modules))
    assert world.data("p") == NEW
    assert await consider(world.settings, Request("p", "active")) is None


async def test_promotion_that_would_halt_is_not_asked_about(world: World) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow", nowhere=1)
    with pytest.raises(Terminal, match="1 would be nowhere"):
        await consider(world.settings, Request("p-candidate", "active"))


async def test_policy_that_was_edited_since_it_was_agreed_to_is_not_promoted(world: World) -> None:
    world.put_object("p", {"a.rego": "package a"})
    world.put_object("p-candidate", {"a.rego": "package a # new"}, "shadow")
    request = Request("p-candidate", "active", kind="placementpolicy")
    found = await consider(world.settings, request)
    assert found is not None
    assert str(found.policy) == "policies/p-candidate.PlacementPolicy"
    world.put_object("p-candidate", {"a.rego": "package a # newer"}, "shadow")
    with pytest.raises(Terminal, match="it was edited since you were asked"):
        await run_stage(world.settings, replace(request, seen=found.modules))
    assert world.objects["p"] == ("active", ["package a"])


@pytest.mark.parametrize("says", [{"decides_with": ["policies/q"]}, {}])
async def test_policy_beside_one_of_its_package_is_said_to_decide_with_it(
    world: World, says: dict[str, Any]
) -> None:
    world.put("p", NEW, "candidate", **says)
    expected = f"; {together(says.get('decides_with', ()))}".removesuffix("; ")
    assert await world.do("p", "shadow") == f"policies/p is shadow, it was candidate{expected}"
    world.put("p", NEW, "shadow", **says)
    found = await consider(world.settings, Request("p", "active"))
    assert found is not None
    assert found.said == (f"policies/p would be in force{expected}",)
    assert await world.do("p", "active") == f"policies/p is in force{expected}"


async def test_policy_that_was_new_is_gone_after_it_was_taken_back(world: World) -> None:
    world.put("p-candidate", NEW, "shadow")
    await world.do("p-candidate", "active")
    assert (world.data("p"), world.labels("p")) == (NEW, {"team": "x"})
    await world.do("p", "revert")
    assert world.names == {"p-candidate"}


async def test_what_is_not_in_force_is_no_place_to_promote_into(world: World) -> None:
    """It would be told that it is in force, and nothing would be."""
    world.put("p", OLD, "candidate")
    for texts in (NEW, OLD):
        world.put("p-candidate", texts, "shadow")
        with pytest.raises(
            Terminal, match=r"policies/p is candidate: .* `kube-sync stage p active`"
        ):
            await world.do("p-candidate", "active", force=True)
        assert world.data("p") == OLD
        assert world.labels("p-candidate")["kube-sync.io/stage"] == "shadow"
    await world.do("p", "active", force=True)
    await world.do("p-candidate", "active")
    assert world.labels("p")["kube-sync.io/stage"] == "active"


async def test_policy_under_its_own_name_is_promoted_where_it_is(world: World) -> None:
    world.put("p", NEW, "shadow")
    await world.do("p", "active")
    assert world.labels("p")["kube-sync.io/stage"] == "active"
    assert world.names == {"p"}


async def test_promotion_halts_and_nothing_is_written(world: World) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow", refused=1)
    with pytest.raises(Terminal, match="1 would be refused, at most 0 may"):
        await world.do("p-candidate", "active")
    assert (world.data("p"), world.names) == (OLD, {"p", "p-candidate"})
    await world.do("p-candidate", "active", force=True)
    assert world.data("p") == NEW


async def test_what_was_counted_before_the_last_edit_promotes_nothing(world: World) -> None:
    world.put("p-candidate", NEW, "shadow", modules="of an earlier version")
    with pytest.raises(Terminal, match="another version"):
        await world.do("p-candidate", "active")


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_promotion_that_broke_off_is_made_again_and_taken_back(
    world: World, writes: int
) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow")
    seen = 0

    def later(recorded: Any) -> bool:
        nonlocal seen
        if recorded.method != "PATCH":
            return False
        seen += 1
        return seen > writes

    world.api.http.fault(later, answer(403, b"{}"), times=1)
    with pytest.raises(SyncError):
        await world.do("p-candidate", "active")
    assert world.data("p") == (NEW if writes == 2 else OLD)
    await world.do("p-candidate", "active")
    assert world.data("p") == NEW
    await world.do("p-candidate", "revert")
    assert world.data("p") == OLD


async def test_edit_since_the_promotion_is_not_lost_unless_it_is_forced(world: World) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "shadow")
    await world.do("p-candidate", "active")
    world.put("p", {"a.rego": "package edited"})
    with pytest.raises(Terminal, match="was changed since"):
        await world.do("p", "revert")
    await world.do("p", "revert", force=True)
    assert world.data("p") == OLD


async def test_other_stages_are_labels_and_what_is_in_force_stays_unless_it_is_forced(
    world: World,
) -> None:
    world.put("p", OLD)
    world.put("p-candidate", NEW, "candidate")
    await world.do("p-candidate", "shadow")
    assert world.labels("p-candidate") == {"kube-sync.io/stage": "shadow", "team": "x"}
    with pytest.raises(Terminal, match="takes it out of force"):
        await world.do("p", "shadow")
    assert world.labels("p") == {}
    await world.do("p", "candidate", force=True)
    assert world.labels("p") == {"kube-sync.io/stage": "candidate"}


async def test_change_since_it_was_read_is_written_over_by_nobody(world: World) -> None:
    world.put("p-candidate", NEW, "candidate")
    conflict = answer(409, b'{"message": "changed", "reason": "Conflict"}')
    world.api.http.fault(patches(CONFIGMAPS), conflict, times=1)
    with pytest.raises(SyncError):
        await world.do("p-candidate", "shadow")
    assert world.labels("p-candidate")["kube-sync.io/stage"] == "candidate"
    sent = json.loads(world.api.http.requests[-1].body)
    assert sent["metadata"]["resourceVersion"]


async def test_placementpolicy_is_promoted_and_one_command_takes_it_back(world: World) -> None:
    world.put("p", {"a.rego": "package c"})
    world.put_object("p", {"b.rego": "package b", "a.rego": "package a"})
    world.put_object("p-candidate", {"a.rego": "package a # new"}, "shadow")
    said = await world.do("placementpolicy/p-candidate", "active")
    assert "`kube-sync stage placementpolicy/p revert`" in said
    assert world.objects == {
        "p": ("active", ["package a # new"]),
        "p-candidate": ("candidate", ["package a # new"]),
    }
    await world.do("PlacementPolicy/p", "revert")
    assert world.objects["p"] == ("active", ["package b", "package a"])
    # The ConfigMap of that name is another policy.
    assert (world.names, world.data("p")) == ({"p"}, {"a.rego": "package c"})
    with pytest.raises(Terminal, match="in place of PlacementPolicy policies/p"):
        await world.do("placementpolicy/p-candidate", "revert")


async def test_placementpolicy_that_was_new_is_gone_after_it_was_taken_back(world: World) -> None:
    world.put_object("p-candidate", {"a.rego": "package a"}, "shadow")
    await world.do("placementpolicy/p-candidate", "active")
    assert world.object("p")["spec"]["stage"] == "active"
    assert world.object("p")["metadata"]["labels"] == {"team": "x"}
    await world.do("placementpolicy/p-candidate", "revert")
    assert [*world.objects] == ["p-candidate"]


async def test_promotion_of_a_placementpolicy_halts_as_that_of_a_configmap(world: World) -> None:
    world.put_object("p", {"a.rego": "package a"})
    world.put_object("p-candidate", {"a.rego": "package b"}, "shadow")
    world.object("p-candidate")
    staged = world.object("p-candidate")
    staged["status"]["staged"]["nowhere"] = 2
    world.api.put(PLACEMENT_POLICIES, key("p-candidate", "policies"), **_whole(staged))
    with pytest.raises(Terminal, match="2 would be nowhere, at most 0 may"):
        await world.do("placementpolicy/p-candidate", "active")
    staged["metadata"]["generation"] = 2
    world.api.put(PLACEMENT_POLICIES, key("p-candidate", "policies"), **_whole(staged))
    with pytest.raises(Terminal, match="said nothing of it yet"):
        await world.do("placementpolicy/p-candidate", "active")
    assert (world.objects["p"], world.names) == (("active", ["package a"]), set())


async def test_stage_of_a_placementpolicy_is_its_field_and_no_label_says_another(
    world: World,
) -> None:
    world.put_object("p", {"a.rego": "package a"})
    with pytest.raises(Terminal, match="PlacementPolicy policies/p is in force"):
        await world.do("placementpolicy/p", "shadow")
    labelled = world.object("p")
    labelled["metadata"]["labels"] = {"kube-sync.io/stage": "candidate"}
    world.api.put(PLACEMENT_POLICIES, key("p", "policies"), **_whole(labelled))
    assert "it was candidate" in await world.do("placementpolicy/p", "shadow")
    found = world.object("p")
    assert (found["spec"]["stage"], found["metadata"]["labels"]) == ("shadow", {})


async def test_placementpolicy_of_another_shape_or_none_is_said(world: World) -> None:
    world.api.put(PLACEMENT_POLICIES, key("p", "policies"), spec={"modules": "package a"})
    with pytest.raises(Terminal, match="PlacementPolicy policies/p cannot be read"):
        await world.do("placementpolicy/p", "shadow")
    with pytest.raises(Terminal, match="there is no PlacementPolicy policies/q"):
        await world.do("placementpolicy/q", "shadow")


def _whole(found: Any) -> Any:
    return {part: found[part] for part in ("metadata", "spec", "status") if part in found}


@pytest.mark.parametrize("wrong", ["pod/p", "configmap/", ""])
def test_name_that_means_no_policy_is_refused(wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stage", wrong, "active"])
    assert ended.value.code == 64


async def test_configmap_that_is_not_there_is_said(world: World) -> None:
    with pytest.raises(Terminal, match="there is no ConfigMap policies/x"):
        await world.do("x", "shadow")


@pytest.mark.parametrize(
    "wrong", [["--max-moves", "2"], ["--max-moves", "x"], ["--max-breaks", "-1"]]
)
def test_limits_that_mean_nothing_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stage", "p", "active", *wrong])
    assert ended.value.code == 64


LABEL = "kube-sync.io/rego-version"


async def test_promoted_configmap_takes_its_version_of_rego_along_and_back(world: World) -> None:
    """Texts of Rego v0 below a label of v1, or below none, would not even parse."""
    world.put("p", OLD)
    labels = {LABEL: "0", "kube-sync.io/stage": "shadow"}
    where = key("p-candidate", "policies")
    world.api.put(CONFIGMAPS, where, metadata={"labels": labels}, data=NEW)
    await world.do("p-candidate", "active", force=True)
    assert world.labels("p")[LABEL] == "0"
    await world.do("p-candidate", "revert")
    assert (world.data("p"), LABEL in world.labels("p")) == (OLD, False)


async def test_promoted_object_takes_its_version_of_rego_along_and_back(world: World) -> None:
    texts = {name: text for name, text in NEW.items() if name.endswith(".rego")}
    world.put_object("p", texts, version="1")
    world.put_object("p-candidate", texts, "shadow", version="0")
    await world.do("placementpolicy/p-candidate", "active")
    assert world.object("p")["spec"]["regoVersion"] == "0"
    await world.do("placementpolicy/p-candidate", "revert")
    assert world.object("p")["spec"]["regoVersion"] == "1"
