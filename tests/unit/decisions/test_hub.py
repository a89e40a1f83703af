from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub, Subscription
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.unit.async_tools import PATIENCE

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
SENDING = StatusRecord(("the decisions are being sent",), "me")
RELEASED = StatusRecord((), "me")


def _target(name: str, resource: str = "replicasets") -> Target:
    return Target("apps", "v1", resource, name, "ns")


def _outcome(text: str, uid: str = "u") -> Outcome:
    return Outcome(uid, Decision({"place": text}))


def _hub(**decisions: str) -> DecisionHub:
    hub = DecisionHub("me")
    for name, text in decisions.items():
        hub.update(_target(name), _outcome(text), "load", "p1")
    return hub


async def _read(subscription: Subscription, limit: int = 100) -> list[Record]:
    return await subscription.read(limit, 0.0)


def _names(records: Iterable[Record]) -> list[str]:
    return [r.object.name for r in records if isinstance(r, DecisionRecord | DeletedRecord)]


async def test_a_new_reader_gets_everything_then_the_release_and_a_bookmark() -> None:
    hub = _hub(a="1", b="2")
    with hub.subscribe() as subscription:
        first, a, b, release, bookmark = await _read(subscription)
    assert (first, release, bookmark) == (SENDING, RELEASED, BookmarkRecord(2, "me"))
    assert [a, b] == list(hub.records.values())


async def test_an_empty_hub_says_so_at_once() -> None:
    with _hub().subscribe() as subscription:
        assert await _read(subscription) == [SENDING, RELEASED, BookmarkRecord(0, "me")]


async def test_a_reader_that_has_read_all_gets_changes_only() -> None:
    hub = _hub(a="1", b="2")
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.update(_target("b"), _outcome("3"), "data", "p1")
        change, bookmark = await _read(subscription)
    assert change == DecisionRecord(
        _target("b"),
        "u",
        Decision({"place": "3"}),
        3,
        "data",
        "p1",
        old=Decision({"place": "2"}),
    )
    assert bookmark == BookmarkRecord(3, "me")


async def test_news_wakes_a_waiting_reader() -> None:
    hub = _hub()
    with hub.subscribe() as subscription:
        await _read(subscription)
        reader = asyncio.create_task(subscription.read(100, 3600.0))
        await asyncio.sleep(0)
        hub.update(_target("a"), _outcome("1"), "object", "")
        async with asyncio.timeout(PATIENCE):
            assert _names(await reader) == ["a"]


async def test_without_news_a_bookmark_is_the_sign_of_life() -> None:
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        await _read(subscription)
        assert await _read(subscription) == [BookmarkRecord(1, "me")]


async def test_changes_of_one_resource_are_coalesced_to_the_latest() -> None:
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        await _read(subscription)
        for text in ("2", "3", "4"):
            hub.update(_target("a"), _outcome(text), "data", "")
        change, _ = await _read(subscription)
        assert isinstance(change, DecisionRecord)
        assert change.decision == Decision({"place": "4"})


async def test_a_coalesced_change_takes_its_turn_after_earlier_changes_of_others() -> None:
    hub = _hub()
    with hub.subscribe() as subscription:
        await _read(subscription)
        for name, text in (("a", "1"), ("b", "1"), ("a", "2")):
            hub.update(_target(name), _outcome(text), "data", "")
        assert _names(await _read(subscription)) == ["b", "a"]


async def test_a_resource_that_goes_before_it_was_read_is_told_as_deleted() -> None:
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        hub.delete(_target("a"))
        records = await _read(subscription)
    assert records[1] == DeletedRecord(_target("a"), 2)
    assert _names(records) == ["a"]


async def test_a_hold_is_told_before_decisions_that_came_earlier() -> None:
    hub = _hub()
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.update(_target("a"), _outcome("1"), "data", "")
        hub.hold("load", "OPA is being loaded")
        held, change, _ = await _read(subscription)
    assert held == StatusRecord(("OPA is being loaded",), "me")
    assert _names([change]) == ["a"]


async def test_a_release_waits_for_decisions_that_do_not_fit() -> None:
    hub = _hub()
    hub.hold("load", "loading")
    with hub.subscribe() as subscription:
        await _read(subscription)
        for name in "abc":
            hub.update(_target(name), _outcome("1"), "data", "")
        hub.release("load")
        first, second = await _read(subscription, 2), await _read(subscription, 2)
    assert _names(first) == ["a", "b"]
    assert not any(isinstance(r, StatusRecord) for r in first)
    assert (_names(second), second[1:]) == (["c"], [RELEASED, BookmarkRecord(3, "me")])


async def test_a_new_reader_of_a_held_hub_is_told_the_reasons_in_order_of_their_names() -> None:
    hub = _hub(a="1")
    hub.hold("b", "second")
    hub.hold("a", "first")
    with hub.subscribe() as subscription:
        records = await _read(subscription)
    assert records[0] == StatusRecord(("first", "second"), "me")
    assert records[-1] == BookmarkRecord(1, "me")
    assert RELEASED not in records


async def test_one_of_two_holds_that_ends_leaves_the_other_in_force() -> None:
    hub = _hub()
    hub.hold("a", "first")
    hub.hold("b", "second")
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.release("a")
        assert await _read(subscription) == [StatusRecord(("second",), "me")]


@pytest.mark.parametrize("again", ["hold", "release", "update", "delete"])
async def test_what_is_known_already_is_no_news(again: str) -> None:
    hub = _hub(a="1")
    hub.hold("load", "loading")
    with hub.subscribe() as subscription:
        await _read(subscription)
        match again:
            case "hold":
                hub.hold("load", "loading")
            case "release":
                hub.release("other")
            case "update":
                hub.update(_target("a"), _outcome("1"), "policy", "p2")
            case "delete":
                hub.delete(_target("b"))
        assert not subscription._news.is_set()
        assert await _read(subscription) == [BookmarkRecord(1, "me")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_outcome("1"), _outcome("1", uid="other")),
        (_outcome("1"), Outcome("u")),
        (_outcome("1"), Outcome("", failure="conflict")),
        (Outcome("", failure="conflict"), Outcome("", failure="timeout")),
        (Outcome("", failure="conflict"), Outcome("")),
        (Outcome("", failure="conflict"), _outcome("1")),
    ],
)
async def test_any_other_outcome_is_news(before: Outcome, after: Outcome) -> None:
    hub = DecisionHub("me")
    hub.update(_target("a"), before, "load", "")
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.update(_target("a"), after, "data", "")
        record = (await _read(subscription))[0]
    assert isinstance(record, DecisionRecord)
    assert (record.uid, record.decision, record.failure, record.seq) == (
        after.uid,
        after.decision,
        after.failure,
        2,
    )


async def test_undefined_is_not_kept_and_no_news_the_second_time() -> None:
    hub = _hub(a="1")
    hub.update(_target("a"), Outcome("u"), "policy", "")
    hub.update(_target("a"), Outcome("u"), "policy", "")
    hub.update(_target("b"), Outcome("u"), "policy", "")
    assert (hub.records, hub.seq) == ({}, 2)


async def test_a_resource_made_anew_under_the_same_name_has_no_old_decision() -> None:
    hub = _hub(a="1")
    hub.update(_target("a"), _outcome("2", uid="other"), "object", "")
    assert hub.records[_target("a")].old is None


async def test_retain_forgets_what_is_gone_of_that_collection_only() -> None:
    hub = _hub(a="1", b="2")
    hub.update(_target("c", "daemonsets"), _outcome("3"), "load", "")
    hub.retain(REPLICASETS, {ObjectKey("ns", "b")})
    assert {target.name for target in hub.records} == {"b", "c"}


async def test_subscribers_are_counted_and_forgotten() -> None:
    hub = _hub()
    with hub.subscribe(), hub.subscribe():
        assert REGISTRY.get_sample_value("kube_sync_decision_subscribers") == 2
    assert REGISTRY.get_sample_value("kube_sync_decision_subscribers") == 0
    assert not hub._subscriptions


@pytest.mark.parametrize("turns", range(5))
async def test_a_reader_that_is_cancelled_while_news_arrive_ends(turns: int) -> None:
    """asyncio.wait_for of Python 3.11 swallows such a cancellation."""
    hub = _hub()

    async def follow() -> None:
        while True:
            await subscription.read(100, 3600.0)

    with hub.subscribe() as subscription:
        reader = asyncio.create_task(follow())
        for _ in range(5):
            await asyncio.sleep(0)
        hub.update(_target("a"), _outcome("1"), "object", "")
        for _ in range(turns):
            await asyncio.sleep(0)
        reader.cancel()
        _, pending = await asyncio.wait([reader], timeout=PATIENCE)
        reader.cancel()
        assert not pending


class Reader:
    """Applies what it reads, as a remediator does, and checks what it was promised."""

    def __init__(self, hub: DecisionHub, subscription: Subscription) -> None:
        self.hub = hub
        self.subscription = subscription
        self.state: dict[Target, DecisionRecord] = {}
        self.held: tuple[str, ...] | None = None

    async def read(self, limit: int) -> list[Record]:
        records = await self.subscription.read(limit, 0.0)
        assert len(records) <= limit + 2
        if self.hub.held and self.hub.held != self.held:
            assert records[0] == StatusRecord(self.hub.held, "me"), "a hold is told first"
        for record in records:
            self._take(record)
        return records

    def _take(self, record: Record) -> None:
        assert isinstance(record, StatusRecord) or self.held is not None
        match record:
            case DecisionRecord():
                self.state[record.object] = record
            case DeletedRecord():
                self.state.pop(record.object, None)
            case StatusRecord():
                self.held = record.held
                if not record.held:
                    assert self.state == self.hub.records, "released before all was told"
            case BookmarkRecord():
                assert (self.state, record.seq) == (self.hub.records, self.hub.seq)

    async def drain(self, limit: int) -> None:
        while len(await self.read(limit)) > 1 or self.subscription._pending:
            pass


_NAMES = ["a", "b", "c", "d"]
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.sampled_from(_NAMES), st.sampled_from("123")),
        st.tuples(st.just("fail"), st.sampled_from(_NAMES), st.sampled_from("12")),
        st.tuples(st.just("delete"), st.sampled_from(_NAMES), st.just("")),
        st.tuples(st.just("hold"), st.sampled_from("xy"), st.sampled_from("12")),
        st.tuples(st.just("release"), st.sampled_from("xy"), st.just("")),
        st.tuples(st.just("read"), st.sampled_from("01"), st.sampled_from("1237")),
    ),
    max_size=40,
)


def _change(hub: DecisionHub, step: str, name: str, value: str) -> None:
    match step:
        case "update":
            hub.update(_target(name), _outcome(value), "data", "")
        case "fail":
            hub.update(_target(name), Outcome("", failure=value), "data", "")
        case "delete":
            hub.delete(_target(name))
        case "hold":
            hub.hold(name, value)
        case "release":
            hub.release(name)


async def _play(hub: DecisionHub, steps: list[tuple[str, str, str]], readers: list[Reader]) -> None:
    for step, name, value in steps:
        if step == "read" and readers:
            await readers[int(name)].read(int(value))
        _change(hub, step, name, value)
        for reader in readers:
            assert len(reader.subscription._pending) <= len(_NAMES), "memory has a bound"


@given(before=_steps, after=_steps, limit=st.integers(1, 5))
def test_any_interleaving_leaves_every_reader_equal_to_the_hub(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], limit: int
) -> None:
    async def whole() -> None:
        hub = DecisionHub("me")
        await _play(hub, before, [])
        with hub.subscribe() as one, hub.subscribe() as other:
            readers = [Reader(hub, one), Reader(hub, other)]
            await _play(hub, after, readers)
            for reader in readers:
                await reader.drain(limit)
                assert reader.state == hub.records
                assert reader.held == hub.held

    asyncio.run(whole())


def test_a_hold_that_stands_alone_takes_the_place_of_all_others() -> None:
    hub = DecisionHub("me")
    hub.hold("missing x", "x is missing")
    hub.hold_alone("load", "OPA is being loaded")
    assert list(hub.held) == ["OPA is being loaded"]
    hub.release("load")
    assert not hub.held
