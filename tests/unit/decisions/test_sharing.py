from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.decisions import sharing
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.records import DecisionRecord
from kube_sync.errors import Retriable
from tests.fakes.fleet import Fleet, Policy, key, reads
from tests.memory import remembered


def _a(body: dict[str, Any], cluster: Any, _all: Any) -> str:
    return f"{body.get('a')} in {cluster}"


def _b(body: dict[str, Any], cluster: Any, _all: Any) -> str:
    return f"{body.get('b')} in {cluster}"


def _twins(body: dict[str, Any], _cluster: Any, everything: Any) -> str:
    return str(sum(other.get("a") == body.get("a") for other in everything.values()))


BY_A = Policy(_a, reads(("a",)))
BY_B = Policy(_b, reads(("b",)))
TWINS = Policy(_twins, reads(("a",), targets=True, clusters=False))
SIX = {f"n{i}": {"a": i % 3, "b": i} for i in range(6)}


def _metric(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"kube_sync_decision_{name}", {"resource": "replicasets"})


async def test_change_of_data_evaluates_each_class_once_for_all_its_objects() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.change_cluster(1)
        await fleet.settle()
        assert len(fleet.evaluated) == 3
        assert len(fleet.asked) == 1
        assert fleet.told == fleet.right
        assert _metric("classes") == 3
        assert _metric("unshared") == 0


async def test_first_sweep_evaluates_each_class_once() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        assert fleet.told == fleet.right
        fleet.put("new", a=0)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == []
        assert fleet.told == fleet.right


async def test_object_that_changes_within_its_class_costs_nothing() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n1", a=1, b=77)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == []
        assert fleet.told == fleet.right


async def test_object_that_joins_a_known_class_costs_nothing() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n1", a=2)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == []
        assert fleet.told == fleet.right


async def test_classes_that_are_gone_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each object is of a class of its own there are as many as there ever were objects."""
    monkeypatch.setattr(sharing, "_SPARE", 3)
    fleet = Fleet(BY_B, **SIX)
    async with fleet.running():
        for number in range(60):
            fleet.put("n1", b=100 + number)
            fleet.write()
            await fleet.settle()
        assert fleet.told == fleet.right
        assert 0 < len(remembered(fleet.tracker, Outcome)) <= 2 * 6 + 3 + 1


async def test_object_of_a_new_class_is_evaluated_alone() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n1", a=9)
        fleet.write()
        await fleet.settle()
        assert fleet.asked == [["n1"]]
        assert fleet.told == fleet.right


async def test_object_that_came_back_under_its_name_is_told_by_its_own_uid() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n1", uid="another", a=1)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == []
        assert fleet.told["n1"][0] == "another"


async def test_deleted_object_is_forgotten_without_an_evaluation() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        decided = {"outcome": "decided"}
        before = REGISTRY.get_sample_value("kube_sync_decision_evaluations_total", decided)
        fleet.delete("n1")
        fleet.write()
        await fleet.settle()
        assert "n1" not in fleet.told
        assert REGISTRY.get_sample_value("kube_sync_decision_evaluations_total", decided) == before


async def test_change_of_policy_with_classes_not_known_yet_asks_for_each_object() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.change_policy(BY_B)
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert fleet.told == fleet.right


async def test_change_of_policy_waits_for_the_classes_that_are_being_learnt() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(Policy(_a, reads(("a",), ("c",))))
        fleet.end_policy()
        fleet.mirror.learning = True
        fleet.tracker.wake()
        fleet.put("n1", a=1, c=1)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == ["n1"]  # what changes does not wait
        fleet.learn()
        fleet.mirror.learning = False
        fleet.tracker.wake()
        await fleet.settle()
        assert len(fleet.evaluated) == 1 + 3
        assert fleet.told == fleet.right


async def test_waiting_for_classes_puts_no_later_sweep_off() -> None:
    """A sweep for no data's sake waits ten times as long as the last one took."""
    fleet = Fleet(TWINS, **SIX)
    async with fleet.running():
        fleet.mirror.learning = True
        fleet.change_policy(TWINS)
        await fleet.settle()
        fleet.clock += 60.0
        fleet.mirror.learning = False
        fleet.tracker.wake()
        await fleet.settle()
        fleet.put("n1", a=2)
        fleet.write()
        await fleet.settle()
        fleet.clock += 2.1
        fleet.tracker.wake()
        await fleet.settle()
        assert fleet.told == fleet.right


async def test_sweep_waits_until_it_is_known_what_new_policies_read() -> None:
    """It would ask for each object alone, and keep OPA from taking the policies."""
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(BY_A)
        fleet.change_cluster(1)
        fleet.put("n1", a=7)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == ["n1"]  # what changes does not wait
        fleet.end_policy()
        await fleet.settle()
        assert len(fleet.evaluated) == 1 + 4
        assert fleet.told == fleet.right


async def test_sweep_that_new_policies_overtake_does_not_end_object_by_object() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.held_back = True
        fleet.change_cluster(1)
        await fleet.settle()
        assert len(fleet.evaluated) == 3
        fleet.begin_policy(BY_A)
        fleet.held_back = False
        fleet.go_on(fleet.evaluating)
        await fleet.settle()
        assert len(fleet.evaluated) == 3
        fleet.end_policy()
        await fleet.settle()
        assert len(fleet.evaluated) == 3 + 3
        assert fleet.told == fleet.right


async def test_sweep_does_not_wait_for_policies_that_opa_never_takes() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(BY_A)
        fleet.change_cluster(1)
        await fleet.settle()
        assert fleet.evaluated == []
        fleet.clock += 60.1
        fleet.tracker.wake()
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert fleet.told == fleet.right


async def test_policies_that_change_again_and_again_put_no_sweep_off_for_ever() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(BY_A)
        fleet.change_cluster(1)
        for _ in range(7):
            fleet.clock += 10.0
            fleet.begin_policy(BY_A)
            fleet.tracker.wake()
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert fleet.told == fleet.right


async def test_sweep_that_waits_for_policies_comes_without_any_other_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube_sync.decisions.evaluation_queue._SWEEP_WAIT_SECONDS", 0.05)
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        began = time.monotonic()
        monkeypatch.setattr(
            Fleet, "clock", property(lambda _: time.monotonic() - began), raising=False
        )
        fleet.begin_policy(BY_A)
        fleet.change_cluster(1)
        async with asyncio.timeout(5):
            while fleet.told != fleet.right:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)


async def test_changing_policies_do_not_pass_for_objects_that_differ() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(BY_A)
        fleet.put("n1", a=7)
        fleet.write()
        await fleet.settle()
        assert _metric("unshared") == 0


async def test_change_of_policy_that_reads_the_same_evaluates_each_class_once() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.change_policy(Policy(lambda *given: "now " + _a(*given), BY_A.reads))
        await fleet.settle()
        assert len(fleet.evaluated) == 3
        assert fleet.told == fleet.right


async def test_data_that_is_not_read_asks_for_nothing() -> None:
    fleet = Fleet(Policy(lambda body, *_: str(body.get("a")), reads(("a",), clusters=False)), **SIX)
    async with fleet.running():
        fleet.change_cluster(1)
        await fleet.settle()
        assert fleet.evaluated == []


async def test_data_of_unknown_use_counts_as_read() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.tracker.written("data-configmaps", [key("x")])
        await fleet.settle()
        assert len(fleet.evaluated) == 3


async def test_changed_target_asks_for_no_other_where_targets_are_not_compared() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n1", a=9)
        fleet.write()
        await fleet.settle()
        fleet.clock += 1000
        fleet.tracker.wake()
        await fleet.settle()
        assert fleet.evaluated == ["n1"]


async def test_changed_target_asks_for_every_class_later_where_targets_are_compared() -> None:
    fleet = Fleet(TWINS, **SIX)
    async with fleet.running():
        fleet.put("n1", a=2)
        fleet.write()
        await fleet.settle()
        assert fleet.evaluated == ["n1"]
        fleet.clock += 2.1
        fleet.tracker.wake()
        await fleet.settle()
        # The class of n1 is known since; the two others are not.
        assert len(fleet.evaluated) == 3
        assert fleet.told == fleet.right


@pytest.mark.parametrize("paths", [((),), (("metadata", "name"),)])
async def test_objects_that_are_all_different_are_asked_for_one_by_one_and_it_is_said(
    paths: Any,
) -> None:
    fleet = Fleet(Policy(lambda body, *_: str(body["metadata"]["name"]), reads(*paths)), **SIX)
    async with fleet.running():
        fleet.change_cluster(1)
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert _metric("classes") == 6
        assert _metric("unshared") == 1


async def test_decision_that_changes_by_itself_is_asked_for_again_and_never_shared() -> None:
    fleet = Fleet(Policy(_a, reads(("a",), impure=("time.now_ns",))), **SIX)
    async with fleet.running():
        fleet.cluster = "another minute"
        fleet.clock += 29.0
        fleet.tracker.wake()
        await fleet.settle()
        assert fleet.evaluated == []
        fleet.clock += 1.1
        fleet.tracker.wake()
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert fleet.told == fleet.right
        assert _metric("unshared") == 1
        fleet.clock += 30.1
        fleet.tracker.wake()
        await fleet.settle()
        assert len(fleet.evaluated) == 12


async def test_policies_that_could_not_be_analysed_share_nothing() -> None:
    fleet = Fleet(Policy(_a, reads((), gave_up="unknown node")), **SIX)
    async with fleet.running():
        fleet.change_cluster(1)
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert _metric("unshared") == 1


async def _while_asked(change: Callable[[Fleet], object], *, late: bool) -> Fleet:
    """Change something while OPA decides, before it does or when its answer is on the way."""
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.held_back = True
        fleet.change_cluster(1)
        await fleet.settle()
        if late:
            fleet.go_on(fleet.evaluating)
            await fleet.settle()
        change(fleet)
        fleet.held_back = False
        fleet.go_on(fleet.evaluating)
        await fleet.settle()
        fleet.go_on(fleet.answering)
        await fleet.settle()
        assert fleet.told == fleet.right
    return fleet


@pytest.mark.parametrize("late", [False, True])
async def test_data_that_changes_while_opa_decides_is_asked_for_again(late: bool) -> None:  # noqa: FBT001
    fleet = await _while_asked(lambda fleet: fleet.change_cluster(2), late=late)
    assert len(fleet.evaluated) == 6


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["n0", "n3"])
async def test_object_that_changes_its_class_while_opa_decides_is_told_by_its_new_one(
    late: bool,  # noqa: FBT001
    name: str,
) -> None:
    def change(fleet: Fleet) -> None:
        fleet.put(name, a=1)
        fleet.write()

    await _while_asked(change, late=late)


async def test_object_that_left_the_class_while_opa_decided_is_never_told_by_it() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.held_back = True
        fleet.change_cluster(1)
        await fleet.settle()
        fleet.go_on(fleet.evaluating)
        await fleet.settle()
        fleet.put("n3", a=9)
        fleet.write()
        with fleet.hub.subscribe() as reader:
            await reader.read(100, 0.0)
            fleet.go_on(fleet.answering)
            await fleet.settle()  # the next question waits
            told = {
                r.object.name for r in await reader.read(100, 0.0) if isinstance(r, DecisionRecord)
            }
        assert "n0" in told
        assert "n3" not in told


async def test_representative_whose_write_is_answered_last_stands_for_nobody() -> None:
    """OPA decided on its new state, and nothing here knew of that yet."""
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.held_back = True
        fleet.change_cluster(1)
        await fleet.settle()
        fleet.put("n0", a=7)
        batch = fleet.begin()
        fleet.go_on(fleet.evaluating)
        await fleet.settle()
        fleet.held_back = False
        fleet.go_on(fleet.answering)
        await fleet.settle()
        assert fleet.told["n3"] == fleet.right["n3"]
        fleet.end(batch)
        await fleet.settle()
        assert fleet.told == fleet.right


async def test_representative_that_was_another_one_for_a_moment_stands_for_nobody() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.held_back = True
        fleet.change_cluster(1)
        await fleet.settle()
        fleet.put("n0", a=7)
        fleet.write()
        fleet.go_on(fleet.evaluating)
        await fleet.settle()
        fleet.put("n0", a=0)
        fleet.write()
        fleet.held_back = False
        fleet.go_on(fleet.answering)
        await fleet.settle()
        assert fleet.told == fleet.right


async def test_object_whose_write_is_under_way_stands_for_nobody() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.put("n0", a=7)
        batch = fleet.begin()
        fleet.change_cluster(1)
        await fleet.settle()
        assert {name: told for name, told in fleet.told.items() if name != "n0"} == {
            name: told for name, told in fleet.right.items() if name != "n0"
        }
        fleet.end(batch)
        await fleet.settle()
        assert fleet.told == fleet.right


async def test_representative_that_is_deleted_while_opa_decides_is_replaced_by_another() -> None:
    def change(fleet: Fleet) -> None:
        fleet.delete("n0")
        fleet.write()

    fleet = await _while_asked(change, late=False)
    assert "n3" in fleet.evaluated
    assert "n0" not in fleet.told


async def test_policy_that_goes_live_before_it_is_known_what_it_reads_is_not_shared() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.begin_policy(BY_B)
        fleet.change_cluster(1)
        fleet.clock += 60.1  # so long it waits to learn more
        await fleet.settle()
        assert len(fleet.evaluated) == 6
        assert fleet.told == fleet.right
        fleet.end_policy()
        await fleet.settle()
        assert fleet.told == fleet.right


async def test_failed_question_is_asked_again_for_all_it_was_about() -> None:
    fleet = Fleet(BY_A, **SIX)
    async with fleet.running():
        fleet.failures = [Retriable("503")]
        fleet.change_cluster(1)
        await fleet.settle()
        assert len(fleet.asked) == 2
        assert fleet.told == fleet.right


async def test_undefined_is_shared_as_well() -> None:
    fleet = Fleet(Policy(lambda _body, cluster, _: cluster or None, reads(("a",))), **SIX)
    async with fleet.running():
        fleet.change_cluster("c")
        await fleet.settle()
        assert len(fleet.told) == 6
        fleet.change_cluster(0)
        await fleet.settle()
        assert fleet.told == {}
        assert len(fleet.evaluated) == 6
