"""What OPA holds of a canary, and who is told of it when; by the bench of the PolicyReconciler."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kube_sync.decisions.canary import Canary
from kube_sync.errors import Retriable
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policynames import object_key
from kube_sync.kube.staging import SHARE
from kube_sync.opa.client import OpaClient
from kube_sync.opa.entry import ENTRY_MODULE
from kube_sync.opa.scratch import Modules
from kube_sync.opa.sides import Side
from kube_sync.policies.bundle import digest
from kube_sync.policies.placementpolicy_status import Outcomes, Told
from kube_sync.policies.staging import stages
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.differences import KINDS
from tests.fakes.compiler import FakeCompiler, reading
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa, puts
from tests.unit.async_tools import until
from tests.unit.policies.test_reconciler import (
    BROKEN,
    NAMESPACE,
    OK,
    Bench,
    Growing,
    error_of,
    policy_writes,
)

SIDE = Side(f"{NAMESPACE}/p", "0.1")
LANE = f"kube_sync_stage/canary/{NAMESPACE}__p-candidate__a.rego"


class World(Bench):
    """The bench, with a policy in force and a canary that stands for it."""

    def begin(self, source: str = "package a\nx := 2\n", name: str = "p-candidate") -> None:
        self.put("p", **{"a.rego": "package a\nx := 1\n"})
        self.stage(source, name)

    def stage(
        self, source: str, name: str = "p-candidate", status: str | None = None, **terms: str
    ) -> None:
        self.stages[name] = "canary"
        said: dict[str, str] = {
            f"kube-sync.io/{n.replace('_', '-')}": text for n, text in terms.items()
        }
        self.terms[name] = said or {SHARE: "0.1"}
        self.put(name, status, **{"a.rego": source})

    def said(self, name: str = "p-candidate") -> Any:
        return json.loads(self.status[name] or "null")

    async def count(self, objects: int = 100, **found: int) -> None:
        """Tell what the lane would change, as who counts does: of what is counted now."""
        counting = self.counting[-1]
        assert counting is not None
        self.idle.clear()
        counts: dict[str, int] = {**dict.fromkeys(map(str, KINDS), 0), **found}
        self.loader.count_canary(Counted(objects, counts, 0, counting.of))
        await self.until_idle()

    @property
    def sides(self) -> list[object]:
        """What was told that decides, as sides."""
        return [c.side if isinstance(c, Canary) else c for c in self.canaries]

    def restart(self) -> None:
        """Let another process take over from here, with the same OPA and API server."""
        self.loader = self.new_loader()
        self.applied = asyncio.Event()
        self.idle.clear()
        self.canaries.clear()
        self.counting.clear()


@pytest.fixture
def world(opa: FakeOpa, client: OpaClient) -> World:
    return World(opa, client)


async def test_canary_is_counted_before_anything_is_decided_by_it(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.until_idle()
        assert set(world.lanes) == {LANE, "kube_sync_stage/canary/batch"}
        assert world.canaries == []
        (counting,) = world.counting
        assert counting is not None
        assert counting.side == SIDE
        assert world.said()["effect"] is None
        await world.count(moves=3)
        assert ENTRY_MODULE in world.lanes
        assert "kube_sync_stage" in world.lanes[ENTRY_MODULE]
        assert world.sides == [SIDE]
        assert world.said()["effect"] == {"share": "0.1", "namespaces": []}
        assert world.said()["moves"] == 3
        # By the name and in the words that it would have in force.
        (canary,) = world.canaries
        assert isinstance(canary, Canary)
        assert canary.modules == {f"{NAMESPACE}/p-candidate/a.rego": "package a\nx := 2\n"}
        assert canary.policy == digest(canary.modules)
        # What is in force is what it was, for who is told of it.
        assert world.steps == ["changing", "changed"]


async def test_unchanged_canary_writes_nothing(world: World, opa: FakeOpa) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        seen, statuses = len(opa.http.requests), len(world.statuses)
        told = len(world.canaries), len(world.counting)
        for _ in range(3):
            world.wake()
            await world.until_idle()
        assert opa.http.requests[seen:] == []
        assert len(world.statuses) == statuses
        assert (len(world.canaries), len(world.counting)) == told


async def test_canary_past_a_limit_is_taken_out_and_says_why(world: World, opa: FakeOpa) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        seen = len(opa.http.requests)
        await world.count(nowhere=1)
        assert world.lanes == {}
        assert world.sides == [SIDE, None]
        assert world.counting[-1] is None
        assert world.said()["status"] == "halted"
        assert world.said()["halted"]["why"] == ["1 would be nowhere, at most 0 may"]
        # The entry first: nobody is led to a lane of which a part is gone.
        gone = [r.path for r in opa.http.requests[seen:] if r.method == "DELETE"]
        assert gone[0].endswith(ENTRY_MODULE)
        assert len(gone) == 3
        assert world.modules == {"p/a.rego": "package a\nx := 1\n"}


async def test_halted_canary_stays_out_after_a_restart(world: World, opa: FakeOpa) -> None:
    world.begin()
    async with world.applied_once():
        await world.count(failed=1)
        assert world.said()["status"] == "halted"
    world.restart()
    seen = len(opa.http.requests)
    async with world.applied_once():
        await world.until_idle()
        assert (world.lanes, world.canaries, world.counting) == ({}, [], [])
        writes = [r.path for r in opa.http.requests[seen:] if policy_writes(r)]
        assert not any("kube_sync_stage" in path for path in writes)


@pytest.mark.parametrize("restart", [False, True])
async def test_halt_outlives_that_it_could_decide_nothing_for_a_while(
    world: World, *, restart: bool
) -> None:
    world.begin()
    async with world.applied_once():
        await world.count(failed=1)
        halted = world.said()
        world.delete("p")
        await world.until_idle()
        assert world.said() == halted, "where nothing is in force"
    if restart:
        world.restart()
    async with world.applied_once():
        world.put("p", **{"a.rego": "package a\nx := 1\n"})
        await world.until_idle()
        assert (world.said()["status"], world.lanes) == ("halted", {})


async def test_halt_outlives_that_an_older_one_is_the_canary(world: World) -> None:
    world.begin(name="z")
    async with world.applied_once():
        await world.count(failed=1)
        halted = world.said("z")
        world.born["a"] = "2026-11-20T00:00:00Z"
        world.stage("package b\n", "a")
        await world.until_idle()
        assert world.said("z") == halted
        assert "waits" not in str(world.status["a"])
        world.delete("a")
        await world.until_idle()
        assert world.said("z") == halted
        assert world.lanes == {}


async def test_canary_that_decided_decides_before_anything_is_told_after_a_restart(
    world: World, opa: FakeOpa
) -> None:
    """Its objects would go back for a moment, and come again."""
    world.begin()
    async with world.applied_once():
        await world.count()
    world.restart()
    seen = len(opa.http.requests)
    async with world.running():
        await world.applied.wait()
        assert world.sides == [SIDE]
        deleted = [r.path for r in opa.http.requests[seen:] if r.method == "DELETE"]
        assert deleted == []
        assert world.said()["effect"] == {"share": "0.1", "namespaces": []}


async def test_edit_of_what_is_in_force_leaves_a_canary_in_effect(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.put("other", **{"a.rego": "package b"})
        await world.until_idle()
        assert world.modules["other/a.rego"] == "package b"
        # It was never without one; what it reads may be another thing from then on.
        assert world.sides == [SIDE, "changing", SIDE]
        assert f"kube_sync_stage/canary/{NAMESPACE}__other__a.rego" in world.lanes
        # What was counted beside the old set is of no use, and is counted again.
        assert [counting is None for counting in world.counting] == [False, True, False]
        await world.count(moves=50)
        assert world.said()["status"] == "halted"


async def test_count_beside_another_set_in_force_halts_nothing(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        before = world.counting[-1]
        assert before is not None
        world.put("p", OK, **{"a.rego": "package a\nx := 3\n"})
        await world.until_idle()
        world.idle.clear()
        failing = Counted(100, {**dict.fromkeys(map(str, KINDS), 0), "failed": 100}, 0, before.of)
        world.loader.count_canary(failing)
        await world.until_idle()
        assert world.sides[-1] == SIDE
        assert world.said()["status"] == "ok"


async def test_edit_of_a_canary_is_counted_first(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.stage("package a\nx := 3\n", status=world.status["p-candidate"])
        await world.until_idle()
        assert world.sides == [SIDE, None]
        assert ENTRY_MODULE not in world.lanes
        await world.count()
        assert world.sides == [SIDE, None, SIDE]


async def test_larger_share_is_counted_while_the_smaller_one_decides(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.stage("package a\nx := 2\n", status=world.status["p-candidate"], canary_share="0.2")
        await world.until_idle()
        larger = Side(f"{NAMESPACE}/p", "0.2")
        assert world.sides == [SIDE]
        assert world.counting[-1] is not None
        assert world.counting[-1].side == larger
        await world.count()
        assert world.sides == [SIDE, larger]


async def test_canary_that_is_withdrawn_leaves_nothing_in_opa(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.delete("p-candidate")
        await world.until_idle()
        assert (world.lanes, world.sides) == ({}, [SIDE, None])
        assert world.counting[-1] is None


async def test_canary_that_is_promoted_goes_once_it_is_in_force(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.put("p", OK, **{"a.rego": "package a\nx := 2\n"})
        world.stages["p-candidate"] = "candidate"
        world.put("p-candidate", **{"a.rego": "package a\nx := 2\n"})
        await world.until_idle()
        assert world.modules == {"p/a.rego": "package a\nx := 2\n"}
        assert (world.lanes, world.sides[-1]) == ({}, None)


async def test_canary_and_shadow_are_lanes_of_their_own(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
        world.stages["q"] = "shadow"
        world.put("q", **{"a.rego": "package q"})
        await world.until_idle()
        assert world.sides == [SIDE]
        assert f"kube_sync_stage/shadow/{NAMESPACE}__q__a.rego" in world.lanes
        assert f"kube_sync_stage/canary/{NAMESPACE}__q__a.rego" not in world.lanes
        assert "together_with" not in world.said("q")
        world.delete("q")
        await world.until_idle()
        assert world.sides == [SIDE]
        assert all("/canary/" in i or i == ENTRY_MODULE for i in world.lanes)


async def test_second_canary_says_what_it_waits_for(world: World) -> None:
    world.begin()
    async with world.applied_once():
        await world.until_idle()
        world.stage("package z", "z")
        await world.until_idle()
        assert "waits for ConfigMap policies/p-candidate" in error_of(world, "z")["message"]
        assert not any("__z__" in i for i in world.lanes)


@pytest.mark.parametrize(
    ("source", "why"),
    [(BROKEN, "unexpected identifier"), ("package system.main\n", "reserved")],
)
async def test_canary_at_fault_touches_nothing_and_says_why(
    world: World, source: str, why: str
) -> None:
    world.begin(source)
    async with world.applied_once():
        await world.until_idle()
        assert (world.lanes, world.canaries) == ({}, [])
        assert why in json.dumps(error_of(world, "p-candidate"))
        assert "policies" not in world.readiness.reasons


async def test_without_anything_in_force_there_is_no_canary(world: World) -> None:
    world.stage("package a\nx := 2\n")
    async with world.applied_once():
        await world.until_idle()
        assert (world.lanes, world.counting) == ({}, [])
        assert "nothing is in force" in error_of(world, "p-candidate")["message"]


async def test_where_the_webhook_asks_elsewhere_there_is_no_canary(world: World) -> None:
    """One object would have two answers."""
    world.everywhere = False
    world.loader = world.new_loader()
    world.begin()
    async with world.applied_once():
        await world.until_idle()
        assert (world.lanes, world.counting) == ({}, [])
        assert "admission.engine" in error_of(world, "p-candidate")["message"]


async def test_canary_that_opa_does_not_take_is_taken_out_again(world: World, opa: FakeOpa) -> None:
    opa.http.fault(puts("/v1/policies/kube_sync_stage"), answer(401, b"no"), times=99)
    world.begin()
    async with world.applied_once():
        await world.until_idle()
        assert (world.lanes, world.canaries, world.counting) == ({}, [], [])
        assert error_of(world, "p-candidate")["code"] == "unauthorized"
        assert world.modules == {"p/a.rego": "package a\nx := 1\n"}


async def test_data_that_a_canary_reads_is_there_before_it_decides_after_a_restart(
    world: World, opa: FakeOpa
) -> None:
    world.data = data = Growing()
    data.grown = True
    world.compiler.trees = True
    world.put("p", **{"a.rego": reading("input.a", package="p")})
    world.stage(reading("input.b", package="p"))
    async with world.applied_once():
        await world.until_idle()
        await world.count()
        assert world.sides == [SIDE]
    data.grown = False
    opa.policies.clear()
    world.restart()
    async with world.running():
        await until(lambda: "canary" in world.readiness.reasons.get("policies", ""))
        await world.ask_for_a_while()
        assert (world.modules, world.lanes, world.applied.is_set()) == ({}, {}, False)
        data.grown = True
        world.wake()
        await world.applied.wait()
        assert world.sides == [SIDE]


class Speechless(FakeCompiler):
    """One that gives no answer to who parses, for a while."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        if self.times:
            self.times -= 1
            msg = "no answer"
            raise Retriable(msg)
        return await super().parsed(modules)


@pytest.mark.parametrize(("times", "sides"), [(2, [SIDE]), (99, [])])
async def test_lane_that_cannot_be_made_at_the_start_is_waited_for_but_not_for_ever(
    world: World, times: int, sides: list[object]
) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
    world.compiler = Speechless(times)
    world.restart()
    async with world.running():
        await world.applied.wait()
        assert world.sides == sides
        assert world.modules == {"p/a.rego": "package a\nx := 1\n"}


async def test_lane_that_there_was_no_answer_for_is_made_although_nothing_happens(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that decides would go on by what was in force before."""
    monkeypatch.setattr(stages, "_AGAIN_SECONDS", 0.01)
    world.canary_compiler = compiler = Speechless(0)
    world.restart()
    world.begin()
    async with world.applied_once():
        await world.count()
        compiler.times = 2
        world.put("p", **{"a.rego": "package a\nx := 3\n"})
        await until(lambda: world.counting[-1] is None)
        await until(lambda: world.counting[-1] is not None)
        assert world.sides[-1] == SIDE


async def test_canary_comes_back_with_an_opa_that_lost_all(world: World, opa: FakeOpa) -> None:
    world.begin()
    async with world.applied_once():
        await world.count()
    opa.policies.clear()
    world.applied = asyncio.Event()
    async with world.running():
        await world.applied.wait()
        assert world.sides == [SIDE, SIDE]
        assert ENTRY_MODULE in world.lanes


OBJECT_SIDE = Side(f"{NAMESPACE}/p.PlacementPolicy", "0.1")


class Objects(World):
    """The same with PlacementPolicies, whose statuses are written as they are told."""

    def __init__(self, opa: FakeOpa, client: OpaClient) -> None:
        self.outcomes = Outcomes(self._want)
        self.specs: dict[str, tuple[Any, dict[str, str]]] = {}
        self.wants: list[Any] = []
        super().__init__(opa, client)

    def begin(self, source: str = "package a\nx := 2\n", name: str = "p-candidate") -> None:
        self.put_object("p", **{"a.rego": "package a\nx := 1\n"})
        self.stage(source, name)

    def stage(
        self, source: str, name: str = "p-candidate", status: Any = None, **terms: str
    ) -> None:
        self.put_staged(name, [{"name": "a.rego", "rego": source}], "canary", status, **terms)

    def put_staged(
        self, name: str, modules: Any, stage: str, status: Any = None, **terms: str
    ) -> None:
        spec = {"modules": modules, "stage": stage}
        said = {f"kube-sync.io/{n.replace('_', '-')}": text for n, text in terms.items()}
        self.specs[name] = spec, said or {SHARE: "0.1"}
        self.put_spec(name, spec, status, **self.specs[name][1])

    def _tell(self, told: Told) -> None:
        found = [*told]
        super()._tell(found)
        self.outcomes.tell(found)

    def _want(self, policy: PlacementPolicy, status: Any) -> None:
        self.wants.append(status)
        name = object_key(policy.key).name
        spec, terms = self.specs.get(name, ({"modules": [*_modules(policy)]}, {}))
        self.put_spec(name, spec, status, **terms)

    def found(self, name: str = "p-candidate") -> PlacementPolicy:
        policies: list[PlacementPolicy] = [*self.objects, *self.objects.staged]
        return next(one for one in policies if object_key(one.key).name == name)

    def said(self, name: str = "p-candidate") -> Any:
        return self.found(name).staged

    def condition(self, kind: str, name: str = "p-candidate") -> tuple[str, str, str]:
        one = next(one for one in self.found(name).conditions if one["type"] == kind)
        return one["status"], one["reason"], one["message"]

    def restart(self) -> None:
        super().restart()
        self.outcomes = Outcomes(self._want)


def _modules(policy: PlacementPolicy) -> Any:
    for policy_id, source in policy.modules.items():
        yield {"name": policy_id.rpartition("/")[2], "rego": source}


@pytest.fixture
def objects(opa: FakeOpa, client: OpaClient) -> Objects:
    return Objects(opa, client)


async def test_placementpolicy_is_a_canary_as_a_configmap_is_and_says_so(objects: Objects) -> None:
    objects.begin()
    async with objects.applied_once():
        await objects.until_idle()
        assert objects.canaries == []
        assert "effect" not in objects.said()
        assert objects.condition("Compiled")[0] == "True"
        assert objects.condition("Active")[:2] == ("False", "NotCounted")
        await objects.count(moves=3)
        assert objects.sides == [OBJECT_SIDE]
        assert objects.said() == {
            "stage": "canary",
            "standsFor": "PlacementPolicy policies/p",
            "modules": digest(objects.found().modules),
            "effect": {"share": "0.1", "namespaces": []},
            "limits": {"breaks": 0, "moves": 0.1},
            "objects": 100,
            **dict.fromkeys(map(str, KINDS), 0),
            "moves": 3,
        }
        assert objects.condition("Active") == (
            "False",
            "Canary",
            "it decides on 10 % of all objects, and what is in force on the others",
        )
        assert objects.condition("Active", "p")[0] == "True"
        wants = len(objects.wants)
        for _ in range(3):
            objects.wake()
            await objects.until_idle()
        assert len(objects.wants) == wants


async def test_placementpolicy_that_decided_decides_from_the_outset_after_a_restart(
    objects: Objects,
) -> None:
    objects.begin()
    async with objects.applied_once():
        await objects.count()
    wants = len(objects.wants)
    objects.restart()
    async with objects.running():
        await objects.applied.wait()
        assert objects.sides == [OBJECT_SIDE]
        await objects.until_idle()
        # What was counted is not known any more, and it decides all the same.
        assert objects.said()["effect"] == {"share": "0.1", "namespaces": []}
        assert objects.condition("Active")[1] == "Canary"
        assert len(objects.wants) == wants + 1


async def test_placementpolicy_past_a_limit_is_taken_out_and_stays_out_after_a_restart(
    objects: Objects,
) -> None:
    objects.begin()
    async with objects.applied_once():
        await objects.count()
        await objects.count(nowhere=1)
        assert (objects.lanes, objects.sides) == ({}, [OBJECT_SIDE, None])
    objects.restart()
    async with objects.applied_once():
        await objects.until_idle()
        assert (objects.lanes, objects.canaries, objects.counting) == ({}, [], [])
        why = "1 would be nowhere, at most 0 may"
        assert objects.said()["halted"]["why"] == [why]
        assert "effect" not in objects.said()
        assert objects.condition("Active") == ("False", "Halted", f"it was taken out: {why}")
        objects.stage("package a\nx := 3\n", status={"staged": objects.said()})  # mended
        await objects.until_idle()
        await objects.count()
        assert objects.sides == [OBJECT_SIDE]
        assert "halted" not in objects.said()


async def test_placementpolicy_on_terms_that_cannot_be_read_says_so(objects: Objects) -> None:
    objects.begin()
    objects.stage("package a\nx := 2\n", canary_share="2")
    async with objects.applied_once():
        await objects.until_idle()
        assert (objects.lanes, objects.counting) == ({}, [])
        status, reason, message = objects.condition("Compiled")
        assert (status, reason) == ("False", "NotStaged")
        assert "it is no canary: '2' is no share" in message
        objects.stage("package a\nx := 2\n", canary_share="0.2")
        await objects.until_idle()
        await objects.count()
        assert objects.sides == [Side(OBJECT_SIDE.stands_for, "0.2")]


async def test_there_is_one_canary_of_both_kinds_and_it_is_the_oldest(objects: Objects) -> None:
    objects.begin()
    async with objects.applied_once():
        await objects.until_idle()
        World.stage(objects, "package a\nx := 3\n", "q")
        await objects.until_idle()
        assert (
            "waits for PlacementPolicy policies/p-candidate," in error_of(objects, "q")["message"]
        )
        assert not any("__q__" in i for i in objects.lanes)
        objects.put_staged("p-candidate", [{"name": "a.rego", "rego": "package a"}], "candidate")
        await objects.until_idle()
        assert any("__q__" in i for i in objects.lanes)
        objects.born.pop("p-candidate/")
        objects.stage("package a\nx := 2\n")
        await objects.until_idle()
        assert "waits for ConfigMap policies/q," in objects.condition("Compiled")[2]
        assert not any("__p-candidate" in i for i in objects.lanes)


async def test_nobody_waits_for_a_canary_that_cannot_be_read(objects: Objects) -> None:
    objects.put_staged("broken", "package a", "canary")
    objects.begin()
    async with objects.applied_once():
        await objects.count()
        assert objects.sides == [OBJECT_SIDE]
        assert objects.condition("Compiled", "broken")[:2] == ("False", "Unreadable")
