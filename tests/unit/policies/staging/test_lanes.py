"""Lanes of staged policies, with a compiler and a parser that read text."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.bundle import digest
from kube_sync.policies.guard import Guard
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.staging.lane_builder import Beside, LaneMaker, Staged
from kube_sync.policies.staging.lanes import Counted, Lanes, status_of
from tests.fakes.compiler import FakeCompiler

PLACE, LIB = ObjectKey("p", "place"), ObjectKey("p", "lib")
IN_FORCE = {
    PLACE: {"p/place/a.rego": "package main\nx := data.lib.y\n"},
    LIB: {"p/lib/a.rego": "package lib\ny := data.kubernetes.clusters\n"},
}
GENERATED = {"kube_sync/replicator/batch": "package kube_sync.batch"}
ROOT = "kube_sync_stage.shadow"
BATCH = {"kube_sync_stage/shadow/batch": "package kube_sync_stage.batch.shadow"}


def beside(**changes: Any) -> Beside:
    guard = Guard([("kubernetes", "clusters")])
    return Beside(
        **{"versions": IN_FORCE, "static": {}, "opaque": False, "guard": guard, **changes}
    )


def staged(
    source: str, name: str = "place-candidate", stage: str = "shadow", born: str = "2", **more: Any
) -> PolicyMap:
    key = ObjectKey("p", name)
    place = ObjectKey("p", name.removesuffix("-candidate"))
    modules = {f"{key}/a.rego": source}
    return PolicyMap(key, "1", modules, None, born, stage, more.get("stands_for", place))


def maker(compiler: FakeCompiler | None = None) -> LaneMaker:
    return LaneMaker(
        compiler or FakeCompiler(), GENERATED, lambda lane: f"package kube_sync_stage.batch.{lane}"
    )


async def made(*policies: PolicyMap, **changes: Any) -> Staged:
    return await maker().make(policies, beside(**changes))


def reasons(found: Staged) -> dict[str, list[tuple[str, Any, str]]]:
    """Return code, place and message of what is wrong, by the staged one's name."""

    def told(cause: Mapping[str, Any]) -> tuple[str, Any, str]:
        location = cause.get("location") or {}
        place = f"{location['file']}:{location.get('row', '')}" if location else ""
        return cause["code"], place, cause["message"]

    return {key.name: list(map(told, causes)) for key, causes in found.failures.items()}


LIB_MOVED = f"package {ROOT}.lib\ny := data.kubernetes.clusters\n"


async def test_lane_is_the_set_in_force_with_what_is_staged_in_place() -> None:
    found = await made(staged("package main\nx := data.lib.z\n"))
    assert found.failures == {}
    assert found.modules == {
        "kube_sync_stage/shadow/p__place-candidate__a.rego": (
            f"package {ROOT}.main\nx := data.{ROOT}.lib.z\n"
        ),
        "kube_sync_stage/shadow/p__lib__a.rego": LIB_MOVED,
        **BATCH,
    }


async def test_what_stands_for_nothing_comes_beside_the_others() -> None:
    found = await made(staged("package more\n", "more"))
    assert {i.rpartition("/")[2] for i in found.modules} == {
        "p__place__a.rego",
        "p__lib__a.rego",
        "p__more__a.rego",
        "batch",
    }


async def test_reference_to_a_package_that_the_lane_lacks_does_not_lead_to_the_one_in_force() -> (
    None
):
    gone = staged("package other\n", "lib-candidate")
    found = await made(gone)
    moved = found.modules["kube_sync_stage/shadow/p__place__a.rego"]
    assert moved == f"package {ROOT}.main\nx := data.{ROOT}.lib.y\n"


async def test_faulty_one_is_left_out_and_says_why_while_others_are_staged() -> None:
    good, bad = staged("package main # new"), staged("package lib\ndoes not compile\n", "lib-v2")
    found = await made(good, bad, versions=IN_FORCE)
    assert reasons(found) == {
        "lib-v2": [("rego_parse_error", "p/lib-v2/a.rego:2", "unexpected identifier token")]
    }
    assert found.modules["kube_sync_stage/shadow/p__lib__a.rego"] == LIB_MOVED
    assert "kube_sync_stage/shadow/p__place-candidate__a.rego" in found.modules


async def test_one_that_what_is_in_force_cannot_do_without_is_left_out() -> None:
    needing = {
        PLACE: {"p/place/a.rego": "package main\n# needs: p/lib/a.rego\n"},
        LIB: IN_FORCE[LIB],
    }
    found = await made(staged("package lib", "lib-candidate"), versions=needing)
    assert found.modules == {}
    ((code, place, _),) = reasons(found)["lib-candidate"]
    assert (code, place) == ("rego_type_error", "p/place/a.rego:2")


async def test_one_whose_references_cannot_be_told_apart_is_refused_with_its_row() -> None:
    found = await made(staged("package main\n\nx := data\n"))
    assert found.modules == {}
    (first, second) = reasons(found)["place-candidate"]
    assert first[:2] == second[:2] == ("stage", "p/place-candidate/a.rego:3")


async def test_nothing_can_be_staged_beside_what_leads_everywhere() -> None:
    """It would see the lane, and its copy in the lane what is in force."""
    versions = {**IN_FORCE, LIB: {"p/lib/a.rego": "package lib\ny := data\n"}}
    found = await made(staged("package main"), staged("package b", "b"), versions=versions)
    assert found.modules == {}
    assert {causes[0][1] for causes in reasons(found).values()} == {"p/lib/a.rego:2"}
    assert len(found.failures) == 2
    # Also where the lane is without it.
    found = await made(staged("package lib", "lib-candidate"), versions=versions)
    assert reasons(found)["lib-candidate"][0][1] == "p/lib/a.rego:2"


async def test_lane_is_led_into_by_nobody() -> None:
    found = await made(staged(f"package main\nx := data.{ROOT}.main\n"))
    assert reasons(found)["place-candidate"][0][1] == "p/place-candidate/a.rego:2"


async def test_module_of_opas_own_that_reads_policies_keeps_lanes_out() -> None:
    own = {"static/own.rego": "package own\nx := data.lib.y\n"}
    found = await made(staged("package main"), static=own)
    assert found.modules == {}
    assert reasons(found)["place-candidate"][0][1] == "static/own.rego:2"
    harmless = {"static/own.rego": "package own\nx := data.kubernetes.clusters\n"}
    assert (await made(staged("package main"), static=harmless)).modules
    assert not (await made(staged("package main"), opaque=True)).modules


async def test_what_no_policy_may_say_is_said_of_a_staged_one_too() -> None:
    found = await made(staged("package system.main"))
    assert reasons(found)["place-candidate"][0] == (
        "forbidden",
        "p/place-candidate/a.rego:",
        "package system.main is reserved",
    )
    assert (await made(staged("package kube_sync_stage.shadow.main"))).failures


async def test_of_two_that_stand_for_one_the_older_is_staged() -> None:
    older = staged("package main # older", "one", born="1", stands_for=PLACE)
    younger = staged("package main # younger", "two", born="2", stands_for=PLACE)
    found = await made(younger, older)
    assert "kube_sync_stage/shadow/p__one__a.rego" in found.modules
    assert reasons(found) == {
        "two": [("stage", "", "ConfigMap p/one, which is older, stands for p/place too")]
    }


@pytest.mark.parametrize("stage", ["", "Active", "shadwo"])
async def test_stage_that_nobody_knows_stages_nothing_and_says_so(stage: str) -> None:
    found = await made(staged("package main", stage=stage))
    assert found.modules == {}
    ((code, _, message),) = reasons(found)["place-candidate"]
    assert code == "stage"
    assert message.startswith(f"nobody knows the stage {stage!r}")


class Failing(FakeCompiler):
    """A scratch OPA that gives no answer to who parses, while it is away."""

    away = True

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        if not self.away:
            return await super().parsed(modules)
        msg = "no answer"
        raise Retriable(msg)


class Refusing(FakeCompiler):
    """One that takes no lane beside what is in force."""

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        lane = any(i.startswith("kube_sync_stage/") for i in modules)
        return [{"code": "x", "message": "m"}] if lane else await super().check(modules, given)


async def test_lane_that_does_not_compile_beside_what_is_in_force_is_none() -> None:
    found = await maker(Refusing()).make([staged("package main")], beside())
    assert (found.modules, reasons(found)) == ({}, {"place-candidate": [("x", "", "m")]})


async def test_lanes_are_those_of_exactly_what_is_asked_for() -> None:
    lanes, policies = Lanes(maker()), [staged("package main")]
    assert lanes.made(policies, beside()) is None
    assert await lanes.make(policies, beside())
    known = lanes.made(policies, beside())
    assert known is not None
    assert known.modules
    assert not await lanes.make(policies, beside())
    assert lanes.made(policies, beside(versions={})) is None
    assert lanes.made([staged("package main # new")], beside()) is None
    assert lanes.made([], beside()) == Staged()


async def test_compiler_that_gives_no_answer_stages_nothing_and_raises_nothing() -> None:
    compiler = Failing()
    lanes, policies = Lanes(maker(compiler)), [staged("package main")]
    assert not await lanes.make(policies, beside())
    assert lanes.made(policies, beside()) is None
    assert lanes.untried, "nothing else may ever happen: it is to be tried again"
    compiler.away = False
    assert await lanes.make(policies, beside())
    assert not lanes.untried


async def test_what_waits_for_others_is_made_again_in_its_turn() -> None:
    quarantine, now = Quarantine(clock=lambda: 0.0), staged("package main")
    lane = LaneMaker(FakeCompiler(), GENERATED, lambda _: "package b", quarantine=quarantine)
    lanes = Lanes(lane)
    quarantine.put_off([now.key], {now.key: now.modules})
    assert await lanes.make([now], beside())
    assert not await lanes.make([now], beside()), "it waits still, which is no news"
    await quarantine.ended()
    assert await lanes.make([now], beside())
    assert (lanes.made([now], beside()) or Staged()).failures == {}


async def test_staged_version_that_is_too_expensive_is_held_against_nobody_else() -> None:
    class Dear(FakeCompiler):
        async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
            if any("greedy" in source for source in modules.values()):
                return [{"code": "too_expensive", "message": "too expensive to compile (1 s)"}]
            return await super().check(modules, given)

    quarantine, now = Quarantine(clock=lambda: 0.0), staged("package main # greedy")
    lane = LaneMaker(Dear(), GENERATED, lambda _: "package b", quarantine=quarantine)
    await Lanes(lane).make([now], beside())
    next_ones = {now.key: {"m": "package main"}, PLACE: {"m": "package place"}}
    await quarantine.begin(next_ones, {})
    assert [c["code"] for c in quarantine.objection(next_ones[now.key])] == ["waiting"]
    assert quarantine.objection(next_ones[PLACE]) == ()


def candidate(source: str, name: str = "place-candidate", born: str = "2") -> PolicyMap:
    return staged(source, name, "candidate", born)


async def test_candidates_compile_in_the_place_of_what_they_stand_for_and_are_no_lane() -> None:
    compiler = FakeCompiler()
    lanes = Lanes(maker(compiler), "candidate")
    one, two = candidate("package main\nx := data.lib.y\n"), candidate("package new", "new")
    assert await lanes.make([one, two], beside())
    found = lanes.made([one, two], beside())
    assert found is not None
    assert (found.modules, found.failures) == ({}, {})
    lib = {"p/lib/a.rego": IN_FORCE[LIB]["p/lib/a.rego"]}
    assert compiler.checked == [{**GENERATED, **lib, **one.modules, **two.modules}]
    assert compiler.parses == [], "nothing of them is moved"
    said = [json.loads(status) for _, status in lanes.statuses([one, two], beside())]
    assert [status["together_with"] for status in said] == [["p/new"], ["p/place-candidate"]]
    assert [*lanes.statuses([one], beside())] == [], "of that set nothing is known"


async def test_candidate_at_fault_is_told_alone() -> None:
    policies = [
        candidate("package main\ndoes not compile\n"),
        candidate("package kubernetes.clusters", "reserved"),
        candidate("package main", "place", born="3"),
        candidate("package fine", "fine"),
    ]
    lanes = Lanes(maker(), "candidate")
    await lanes.make(policies, beside())
    said = {p.key.name: json.loads(text) for p, text in lanes.statuses(policies, beside())}
    assert said["place-candidate"]["error"]["errors"][0]["location"]["row"] == 2
    assert said["reserved"]["error"]["code"] == "forbidden"
    late = "ConfigMap p/place-candidate, which is older, stands for p/place too"
    assert said["place"]["error"]["message"] == late
    assert said["fine"]["status"] == "ok"
    assert "together_with" not in said["fine"]
    plan = "kube-sync plan --staged --candidate p/fine"
    assert (said["fine"]["stage"], said["fine"]["plan"]) == ("candidate", plan)


async def test_candidate_beside_a_policy_of_its_package_says_that_both_would_decide() -> None:
    new = staged("package main", "new", "candidate", stands_for=None)
    instead = candidate("package main\nx := data.lib.y\n")
    lanes = Lanes(maker(), "candidate")
    await lanes.make([new, instead], beside())
    said = {p.key.name: json.loads(text) for p, text in lanes.statuses([new, instead], beside())}
    assert said["new"]["decides_with"] == ["p/place"]
    assert "decides_with" not in said["place-candidate"]


async def test_unchanged_modules_are_parsed_once() -> None:
    compiler = FakeCompiler()
    making = maker(compiler)
    await making.make([staged("package main")], beside())
    await making.make([staged("package main # new")], beside())
    assert [sorted(found.values()) for found in compiler.parses] == [
        sorted(["package main", *(s for m in IN_FORCE.values() for s in m.values())]),
        ["package main # new"],
    ]


def test_status_of_several_that_are_staged_names_the_others() -> None:
    one, two = staged("package one", "one"), staged("package two", "two")
    counted = Counted(7, {"moves": 1})
    said = json.loads(status_of(one, (), counted, [two]))
    assert (said["together_with"], said["objects"], said["moves"]) == (["p/two"], 7, 1)
    assert said["modules"] == digest(one.modules)
    assert "together_with" not in json.loads(status_of(one, (), counted, []))
