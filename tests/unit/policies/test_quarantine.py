"""Which versions of policies are not tried again, and how that outlives a replicator."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.errors import Refused
from kube_sync.kube.policymaps import CONFIGMAPS
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause
from kube_sync.policies.bundle import digest
from kube_sync.policies.marker import Marker, State
from kube_sync.policies.quarantine import Quarantine, quarantined
from kube_sync.policies.set_compiler import Versions
from tests.unit.policies.test_last_good import Api

A, B, C = (ObjectKey("ns", name) for name in "abc")
GOOD: Versions = {A: {"ns/a/m": "package a"}}


def version(text: str) -> dict[str, str]:
    return {"ns/m": f"package {text}"}


@pytest.fixture
def api() -> Api:
    return Api()


def marker(api: Api, host: str = "pod-1") -> Marker:
    return Marker(api, "kube-sync", host)


def on_record(api: Api, host: str = "pod-1") -> Any:
    data = json.loads(api.held or b"{}").get("data", {})
    return json.loads(data[f"quarantine.{host}"]) if f"quarantine.{host}" in data else None


async def killed(api: Api, wanted: Versions) -> Quarantine:
    """Return what a replicator knew that was killed while it tried these."""
    quarantine = Quarantine(marker(api))
    await quarantine.begin(wanted, {})
    return quarantine


def codes(quarantine: Quarantine, wanted: Versions) -> dict[str, str]:
    found = {key.name: quarantine.objection(modules) for key, modules in wanted.items()}
    return {name: causes[0]["code"] for name, causes in found.items() if causes}


async def test_version_is_on_record_while_it_is_tried_and_no_longer(api: Api) -> None:
    quarantine = Quarantine(marker(api))
    wanted = {**GOOD, B: version("b")}
    await quarantine.begin(wanted, GOOD)
    assert on_record(api)["trying"] == {digest(version("b")): 1}
    assert await quarantine.ended() is None
    assert on_record(api) is None


async def test_version_that_is_good_or_got_an_answer_costs_no_request(api: Api) -> None:
    quarantine = Quarantine(marker(api))
    await quarantine.begin(GOOD, GOOD)
    await quarantine.ended()
    assert api.methods == ["GET"]
    wanted = {B: version("b")}
    await quarantine.begin(wanted, {})
    await quarantine.ended()
    asked = list(api.methods)
    await quarantine.begin(wanted, {})
    await quarantine.ended()
    assert api.methods == asked


async def test_replicator_that_was_ended_once_tries_again_and_forgets(api: Api) -> None:
    wanted = {B: version("b")}
    await killed(api, wanted)
    second = await killed(api, wanted)
    assert codes(second, wanted) == {}
    assert on_record(api)["trying"] == {digest(version("b")): 2}
    await second.ended()
    assert on_record(api) is None


async def test_replicator_that_was_ended_twice_does_not_try_that_version_again(api: Api) -> None:
    wanted = {A: version("a"), B: version("b")}
    await killed(api, {B: wanted[B]})
    await killed(api, {B: wanted[B]})
    with capture_logs() as logs:
        third = await killed(api, wanted)
    assert codes(third, wanted) == {"b": "not_tried"}
    (cause,) = third.objection(wanted[B])
    assert cause["message"].startswith("not tried again: the replicator ended 2 times while it")
    assert logs[0]["event"] == "policy_not_tried_again"
    assert quarantined({B: [cause], A: [{"code": "rego_parse_error"}]}) == 1
    await third.ended()
    fourth = await killed(api, wanted)
    assert codes(fourth, wanted) == {"b": "not_tried"}, "it outlives replicators"
    changed = {B: version("b2")}
    await fourth.begin(changed, {})
    assert codes(fourth, changed) == {}
    assert "refused" not in on_record(api), "nobody wants it any more"


async def test_several_that_were_tried_together_are_tried_one_by_one(api: Api) -> None:
    wanted = {A: version("a"), B: version("b"), C: version("c")}
    await killed(api, wanted)
    second = await killed(api, wanted)
    waiting = codes(second, wanted)
    assert list(waiting.values()) == ["waiting", "waiting"]
    await second.begin(wanted, {})
    assert codes(second, wanted) == waiting, "nor with another one of them in the same turn"
    (tried,) = {"a", "b", "c"} - waiting.keys()
    # Killed by the one that was tried: the others are not blamed for that.
    third = Quarantine(marker(api))
    await third.begin(wanted, {})
    assert (
        "replicator ended 2 times" in third.objection(wanted[ObjectKey("ns", tried)])[0]["message"]
    )
    turns = 1
    while await third.ended() is not None:
        turns += 1
        await third.begin(wanted, {})
    assert codes(third, wanted) == {tried: "not_tried"}
    assert turns == 2


async def test_replicators_do_not_write_over_each_other(api: Api) -> None:
    await killed(api, {A: version("a")})
    other = Quarantine(marker(api, "pod-2"))
    await other.begin({B: version("b")}, {})
    await other.ended()
    assert on_record(api)["trying"] == {digest(version("a")): 1}
    third = Quarantine(marker(api, "pod-3"))
    await third.begin({A: version("a")}, {})
    assert codes(third, {A: version("a")}) == {}, "the end of another pod is no evidence"


async def test_what_another_replicator_refuses_is_refused_and_old_keys_go(api: Api) -> None:
    old = State({"x": 1}, {digest(version("a")): "quarantined: OPA ended 3 times"}, 1)
    new = State({"y": 1}, {}, int(time.time()))
    await marker(api, "old").write(old)
    data = json.loads(api.held or b"")
    data["data"]["quarantine.old"] = json.dumps({"refused": old.refused, "written": 1})
    api.held = json.dumps(data).encode()
    await marker(api, "new").write(new)
    quarantine = Quarantine(marker(api))
    wanted = {A: version("a"), B: version("b")}
    await quarantine.begin(wanted, {})
    assert codes(quarantine, wanted) == {"a": "quarantined"}
    assert on_record(api, "old") is None
    assert on_record(api, "new") is not None
    assert on_record(api)["refused"] == old.refused


async def test_api_server_that_refuses_delays_nothing_and_is_said_once(api: Api) -> None:
    api.failure = Refused("403")
    with capture_logs() as logs:
        quarantine = Quarantine(marker(api))
        for text in "xy":
            await quarantine.begin({A: version(text)}, {})
            await quarantine.ended()
    assert [said["event"] for said in logs] == ["policy_trials_not_marked"]


async def test_api_server_that_does_not_answer_is_waited_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube_sync.policies.marker._SECONDS", 0.01)

    class Silent(Api):
        async def request(self, *_: Any, **__: Any) -> bytes:
            await asyncio.Event().wait()
            return b""

    quarantine = Quarantine(marker(Silent()))
    with capture_logs() as logs:
        await quarantine.begin({A: version("a")}, {})
    assert logs[0]["error"] == "late"


async def test_record_that_cannot_be_read_delays_nothing(api: Api) -> None:
    api.held = json.dumps({"data": {"quarantine.pod-1": "no JSON", "other": "x"}}).encode()
    quarantine = Quarantine(marker(api))
    await quarantine.begin({A: version("a")}, {})
    assert codes(quarantine, {A: version("a")}) == {}
    assert CONFIGMAPS.resource == "configmaps"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_version_that_was_too_expensive_is_not_compiled_again_for_ten_minutes() -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    wanted = {A: version("a"), B: version("b")}
    cause: Cause = {"code": "too_expensive", "message": "too expensive to compile (1 MiB)"}
    failures = {A: [cause], B: [{"code": "rego_parse_error"}]}
    assert quarantine.judge(failures, wanted)
    assert not quarantine.judge(failures, wanted)
    assert quarantine.objection(wanted[A]) == (cause,)
    assert quarantine.objection(wanted[B]) == ()
    assert quarantine.objection(version("a2")) == ()
    clock.now = 600.0
    assert quarantine.objection(wanted[A]) == ()


EXPENSIVE: Cause = {"code": "too_expensive", "message": "too expensive to compile (1 MiB)"}


async def turn(quarantine: Quarantine, wanted: Versions, *dear: ObjectKey) -> dict[str, str]:
    """Try what may be tried, some of which are too expensive; return why others are not."""
    await quarantine.begin(wanted, {})
    before = codes(quarantine, wanted)
    failures = {key: [EXPENSIVE] for key in dear if key.name not in before}
    quarantine.judge(failures, wanted)
    return before


async def test_policy_that_was_too_expensive_is_tried_after_all_others_and_later_each_time() -> (
    None
):
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    waits: list[float | None] = []
    for number in range(1, 5):
        wanted = {A: version(f"a{number}"), B: version(f"b{number}")}
        late = await turn(quarantine, wanted, A)
        assert late == ({} if number == 1 else {"a": "waiting"})
        while (wait := await quarantine.ended()) is not None:
            waits.append(wait)
            clock.now += wait
            late = await turn(quarantine, wanted, A)
        assert late in ({}, {"a": "waiting"})
        assert codes(quarantine, wanted) == {"a": "too_expensive"}
    assert waits == [0.0, 0.0, 20.0, 0.0, 40.0]


async def test_several_that_were_too_expensive_are_tried_one_at_a_time() -> None:
    quarantine = Quarantine(clock=Clock())
    for number in range(2):
        wanted = {key: version(f"{key.name}{number}") for key in (A, B, C)}
        tried = [await turn(quarantine, wanted, *wanted)]
        while await quarantine.ended() is not None:
            tried.append(await turn(quarantine, wanted, *wanted))
        counts = [sum(code == "waiting" for code in late.values()) for late in tried]
        assert counts == ([0] if number == 0 else [2, 1, 0])


async def test_policy_that_was_too_expensive_an_hour_ago_is_tried_with_the_others() -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    await turn(quarantine, {A: version("a1")}, A)
    await quarantine.ended()
    clock.now = 3600.0
    assert await turn(quarantine, {A: version("a2"), B: version("b")}) == {}


async def test_those_that_were_put_off_come_after_what_is_new_and_fewer_at_once(api: Api) -> None:
    quarantine = Quarantine(marker(api), clock=Clock())
    many = {ObjectKey("ns", f"n{n}"): version(f"n{n}") for n in range(8)}
    await quarantine.begin(many, {})
    quarantine.put_off(many, many)
    await quarantine.begin(many, {})
    assert len(codes(quarantine, many)) == 8, "nothing more in this turn"
    assert await quarantine.ended() == 0.0
    assert on_record(api) is None
    with_new = many | {A: version("a")}
    counts: list[int] = []
    while True:
        await quarantine.begin(with_new, {})
        counts.append(len(codes(quarantine, with_new)))
        if await quarantine.ended() is None:
            break
    assert counts == [8, 4, 0]


async def revisions(quarantine: Quarantine, *names: str) -> None:
    for name in names:
        quarantine.offered(name, {A: version("a"), B: version(name)})


async def test_revision_that_opa_ends_in_three_times_gives_way_to_the_one_before(
    api: Api,
) -> None:
    quarantine = Quarantine(marker(api), clock=Clock())
    await revisions(quarantine, "one", "two")
    for _ in range(2):
        await quarantine.opa_ended()
        assert quarantine.restored({B: version("two")}) == {B: version("two")}
        await revisions(quarantine, "two")
    with capture_logs() as logs:
        await quarantine.opa_ended()
    assert [said["event"] for said in logs] == ["policy_quarantined"]
    good = quarantine.restored({A: version("a"), B: version("two")})
    assert good == {A: version("a"), B: version("one")}
    wanted = {A: version("a"), B: version("two")}
    await quarantine.begin(wanted, good)
    assert codes(quarantine, wanted) == {"b": "quarantined"}
    (cause,) = quarantine.objection(version("two"))
    assert cause["message"].startswith("OPA ended 3 times while this version was in force (digest ")
    again = Quarantine(marker(api))
    await again.begin(wanted, good)
    assert codes(again, wanted) == {"b": "quarantined"}, "it outlives the replicator"


async def test_policy_that_was_not_there_before_goes() -> None:
    quarantine = Quarantine(clock=Clock())
    quarantine.offered("one", {})
    for _ in range(3):
        quarantine.offered("two", {A: version("a")})
        await quarantine.opa_ended()
    assert quarantine.restored({A: version("a")}) == {}


@pytest.mark.parametrize(
    ("seconds", "ends"), [(3601.0, 3), (0.0, 2)], ids=["stood for an hour", "ended twice"]
)
async def test_opa_that_ends_for_another_reason_leaves_policies_in_force(
    seconds: float, ends: int
) -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    quarantine.offered("one", {A: version("a")})
    for _ in range(ends):
        quarantine.offered("two", {A: version("b")})
        clock.now += seconds
        await quarantine.opa_ended()
        await quarantine.opa_ended()  # while it was loaded, before it got any policy
    assert codes(quarantine, {A: version("b")}) == {}


async def test_revision_that_stood_for_long_is_not_at_fault() -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    quarantine.offered("one", {A: version("a")})
    quarantine.offered("two", {A: version("b")})
    clock.now = 3601.0
    for _ in range(3):
        quarantine.offered("two", {A: version("b")})
        await quarantine.opa_ended()
    assert codes(quarantine, {A: version("b")}) == {}


async def test_first_revision_has_none_to_give_way_to() -> None:
    quarantine = Quarantine(clock=Clock())
    for _ in range(4):
        quarantine.offered("one", {A: version("a")})
        await quarantine.opa_ended()
    assert codes(quarantine, {A: version("a")}) == {}


EVEN, ODD = {A: version("a"), B: version("b")}, {A: version("a"), B: version("b2")}


async def ends(quarantine: Quarantine, *sets: Versions, times: int = 3) -> Versions:
    """Have OPA end so often with each of these, and return what the last time puts back."""
    for versions in sets:
        for _ in range(times):
            quarantine.offered(digest(together(versions)), versions)
            await quarantine.opa_ended()
    return quarantine.restored(sets[-1])


def unexplained() -> float:
    return REGISTRY.get_sample_value("kube_sync_opa_ends_unexplained_total") or 0.0


def together(versions: Versions) -> dict[str, str]:
    return {f"{key}/{i}": source for key, found in versions.items() for i, source in found.items()}


async def test_edit_that_opa_ends_without_as_well_is_released_and_says_so(api: Api) -> None:
    clock = Clock()
    quarantine = Quarantine(marker(api), clock=clock)
    quarantine.offered("old", EVEN)
    clock.now = 7200.0  # what has stood for hours begins to end OPA, and somebody edits B
    before = unexplained()
    assert await ends(quarantine, ODD) == EVEN
    await quarantine.begin(ODD, EVEN)
    assert codes(quarantine, ODD) == {"b": "quarantined"}
    with capture_logs() as logs:
        await ends(quarantine, EVEN)
    assert [said["event"] for said in logs] == ["policy_released", "opa_ends_unexplained"]
    await quarantine.begin(ODD, EVEN)
    assert codes(quarantine, ODD) == {}
    (doubt,) = quarantine.doubts(ODD[B])
    assert doubt["message"].startswith("OPA went on ending while this version was taken back")
    assert quarantine.doubts(ODD[A]) == ()
    await ends(quarantine, ODD, times=9)
    assert codes(quarantine, ODD) == {}, "as long as the rest stands, it is not blamed again"
    assert unexplained() == before + 10
    assert on_record(api) is None or "refused" not in on_record(api)


async def test_release_outlives_a_replicator_that_ends_in_between(api: Api) -> None:
    quarantine = Quarantine(marker(api))
    await quarantine.begin(EVEN, EVEN)
    quarantine.offered("old", EVEN)
    await ends(quarantine, ODD)
    again = Quarantine(marker(api))
    await again.begin(ODD, EVEN)
    assert codes(again, ODD) == {"b": "quarantined"}
    await ends(again, EVEN)
    assert codes(again, ODD) == {}


async def test_edit_that_ended_opa_long_ago_is_not_released_for_another_reason() -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    quarantine.offered("old", EVEN)
    await ends(quarantine, ODD)
    quarantine.offered("old", EVEN)
    clock.now = 3601.0  # it stood without that version, which proves the blame
    await quarantine.opa_ended()
    await ends(quarantine, EVEN)
    assert codes(quarantine, ODD) == {"b": "quarantined"}


async def test_older_of_two_edits_is_found_at_fault_and_the_newer_is_released() -> None:
    quarantine = Quarantine(clock=Clock())
    old = {A: version("a"), B: version("b"), C: version("c")}
    bad, newer = old | {B: version("b2")}, old | {B: version("b2"), C: version("c2")}
    for revision in (old, bad):
        quarantine.offered(digest(together(revision)), revision)
    assert await ends(quarantine, newer) == bad
    assert codes(quarantine, newer) == {"c": "quarantined"}
    assert await ends(quarantine, bad) == old
    assert codes(quarantine, newer) == {"b": "quarantined"}


async def test_two_edits_that_both_end_opa_are_both_refused_in_the_end() -> None:
    quarantine = Quarantine(clock=Clock())
    old = {A: version("a"), B: version("b"), C: version("c")}
    wanted = old | {B: version("b2"), C: version("c2")}
    quarantine.offered("old", old)
    quarantine.offered("one", old | {B: wanted[B]})
    rounds = 0
    while (found := codes(quarantine, wanted)) != {"b": "quarantined", "c": "quarantined"}:
        rounds += 1
        in_force = {key: old[key] if key.name in found else wanted[key] for key in old}
        await ends(quarantine, in_force)
    assert rounds == 4
    await ends(quarantine, old, times=2)
    assert codes(quarantine, wanted) == found


async def test_whoever_edits_while_opa_ends_for_another_reason_is_blamed_once_that_is_gone() -> (
    None
):
    quarantine = Quarantine(clock=Clock())
    quarantine.offered("old", EVEN)
    await ends(quarantine, ODD, EVEN, ODD)
    mended = ODD | {A: version("a2")}
    await quarantine.begin(mended, ODD)
    await ends(quarantine, mended, times=2)
    assert codes(quarantine, mended) == {}
    await ends(quarantine, mended, times=1)
    assert codes(quarantine, mended) != {}


@pytest.mark.parametrize("minutes", [15, 55])
async def test_slow_killer_is_quarantined_whatever_else_is_edited_meanwhile(minutes: int) -> None:
    clock = Clock()
    quarantine = Quarantine(clock=clock)
    quarantine.offered("old", EVEN)
    clock.now = 7200.0
    for turn in range(3):
        quarantine.offered(f"{turn}", ODD | {A: version(f"a{turn}")})
        clock.now += minutes * 60.0
        await quarantine.opa_ended()
    assert codes(quarantine, ODD) == {"b": "quarantined"}
    assert codes(quarantine, {A: version("a2")}) == {}


async def test_count_of_ends_and_what_to_go_back_to_outlive_the_replicator(api: Api) -> None:
    first = Quarantine(marker(api))
    await first.begin(ODD, EVEN)
    await first.ended()
    first.offered("old", EVEN)
    asked = len(api.methods)
    first.offered("new", ODD)
    assert len(api.methods) == asked, "it is written where OPA ends"
    await ends(first, ODD, times=2)
    again = Quarantine(marker(api))
    await again.begin(ODD, ODD)
    assert await ends(again, ODD, times=1) == EVEN
    assert codes(again, ODD) == {"b": "quarantined"}


async def test_count_of_an_hour_ago_is_forgotten(api: Api) -> None:
    first = Quarantine(marker(api))
    first.offered("old", EVEN)
    await ends(first, ODD, times=2)
    held = json.loads(api.held or b"")
    state = json.loads(held["data"]["quarantine.pod-1"])
    held["data"]["quarantine.pod-1"] = json.dumps(state | {"ended": state["ended"] - 3700})
    api.held = json.dumps(held).encode()
    again = Quarantine(marker(api))
    await again.begin(ODD, ODD)
    await ends(again, ODD, times=1)
    assert codes(again, ODD) == {}


async def test_version_before_that_does_not_fit_on_record_leaves_room_for_all_others(
    api: Api,
) -> None:
    first, large = Quarantine(marker(api)), {"ns/m": os.urandom(30_000).hex()}
    first.offered("old", EVEN | {B: large})
    await ends(first, ODD | {A: version("a2")}, times=2)
    assert len(on_record(api)["before"]) < 32_000
    again, wanted = Quarantine(marker(api)), ODD | {A: version("a2")}
    await again.begin(wanted, wanted)
    await ends(again, wanted, times=1)
    assert codes(again, wanted) == {"a": "quarantined"}, "of B nobody knows what to go back to"
