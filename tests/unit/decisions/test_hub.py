from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from kube_sync.decisions.changelog import Entry
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionRecord,
    DeletedRecord,
    Record,
    Source,
    StatusRecord,
    Target,
    decode,
)
from kube_sync.decisions.subscription import Subscription
from kube_sync.errors import Expired
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.memory import remembered
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
        hub.publish(_target(name).gvr, _target(name).key, _outcome(text), "load", "p1")
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
        hub.publish(_target("b").gvr, _target("b").key, _outcome("3"), "data", "p1")
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
        hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "object", "")
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
            hub.publish(_target("a").gvr, _target("a").key, _outcome(text), "data", "")
        change, _ = await _read(subscription)
        assert isinstance(change, DecisionRecord)
        assert change.decision == Decision({"place": "4"})


async def test_a_coalesced_change_takes_its_turn_after_earlier_changes_of_others() -> None:
    hub = _hub()
    with hub.subscribe() as subscription:
        await _read(subscription)
        for name, text in (("a", "1"), ("b", "1"), ("a", "2")):
            hub.publish(_target(name).gvr, _target(name).key, _outcome(text), "data", "")
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
        hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "data", "")
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
            hub.publish(_target(name).gvr, _target(name).key, _outcome("1"), "data", "")
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
        reader = asyncio.create_task(subscription.read(100, 3600.0))
        await asyncio.sleep(0)  # it waits now
        match again:
            case "hold":
                hub.hold("load", "loading")
            case "release":
                hub.release("other")
            case "update":
                hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "policy", "p2")
            case "delete":
                hub.delete(_target("b"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reader.done()
        reader.cancel()
        await asyncio.wait([reader])
        assert await _read(subscription) == [BookmarkRecord(1, "me")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_outcome("1"), _outcome("1", uid="other")),
        (_outcome("1"), Outcome("u")),
        (_outcome("1"), Outcome("other", failure="conflict")),
        (Outcome("", failure="conflict"), Outcome("", failure="timeout")),
        (Outcome("", failure="conflict"), Outcome("")),
        (Outcome("", failure="conflict"), _outcome("1")),
    ],
)
async def test_any_other_outcome_is_news(before: Outcome, after: Outcome) -> None:
    hub = DecisionHub("me")
    hub.publish(_target("a").gvr, _target("a").key, before, "load", "")
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.publish(_target("a").gvr, _target("a").key, after, "data", "")
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
    hub.publish(_target("a").gvr, _target("a").key, Outcome("u"), "policy", "")
    hub.publish(_target("a").gvr, _target("a").key, Outcome("u"), "policy", "")
    hub.publish(_target("b").gvr, _target("b").key, Outcome("u"), "policy", "")
    assert (hub.records, hub.seq) == ({}, 2)


async def test_a_resource_made_anew_under_the_same_name_has_no_old_decision() -> None:
    hub = _hub(a="1")
    hub.publish(_target("a").gvr, _target("a").key, _outcome("2", uid="other"), "object", "")
    assert hub.records[_target("a")].old is None


async def test_retain_forgets_what_is_gone_of_that_collection_only() -> None:
    hub = _hub(a="1", b="2")
    hub.publish(
        _target("c", "daemonsets").gvr, _target("c", "daemonsets").key, _outcome("3"), "load", ""
    )
    hub.retain(REPLICASETS, {ObjectKey("ns", "b")})
    assert {target.name for target in hub.records} == {"b", "c"}


async def test_no_bookmark_overtakes_what_comes_as_the_silence_ends() -> None:
    """It says that everything up to its number was sent: a reader would go on after it."""
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        await _read(subscription)
        reader = asyncio.create_task(subscription.read(100, 0.0))
        await asyncio.sleep(0)  # it waits now, and its time is over already
        hub.publish(_target("a").gvr, _target("a").key, _outcome("2"), "data", "p1")
        assert not reader.done()
        records = await reader
    assert _names(records) == ["a"]
    assert records[-1] == BookmarkRecord(2, "me")


async def test_subscribers_are_counted_and_forgotten() -> None:
    hub = _hub()
    with hub.subscribe(), hub.subscribe():
        assert REGISTRY.get_sample_value("kube_sync_decision_subscribers") == 2
    assert REGISTRY.get_sample_value("kube_sync_decision_subscribers") == 0
    assert remembered(hub, Subscription) == []


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
        hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "object", "")
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
        self.upto = -1  # the last bookmark

    async def read(self, limit: int) -> list[Record]:
        records = await self.subscription.read(limit, 0.0)
        assert len(records) <= limit + 3
        if self.hub.held and self.hub.held != self.held:
            assert records[0] == StatusRecord(self.hub.held, "me"), "a hold is told first"
        for record in records:
            self._take(record)
        return records

    def _take(self, record: Record) -> None:
        assert isinstance(record, StatusRecord) or self.held is not None
        match record:
            case DecisionRecord(decision=None, failure=None):
                self.state.pop(record.object, None)
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
                self.upto = record.seq

    async def drain(self, limit: int) -> None:
        while len(await self.read(limit)) > 1 or self.upto < self.hub.seq:
            pass


_NAMES = ["a", "b", "c", "d"]
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.sampled_from(_NAMES), st.sampled_from("123")),
        st.tuples(st.just("fail"), st.sampled_from(_NAMES), st.sampled_from("12")),
        st.tuples(st.just("undefine"), st.sampled_from(_NAMES), st.just("")),
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
            hub.publish(_target(name).gvr, _target(name).key, _outcome(value), "data", "")
        case "fail":
            hub.publish(
                _target(name).gvr, _target(name).key, Outcome("", failure=value), "data", ""
            )
        case "undefine":
            hub.publish(_target(name).gvr, _target(name).key, Outcome("u"), "data", "")
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
        ended = sum(
            hub.log.find_ended(_target(name).gvr, _target(name).key) is not None for name in _NAMES
        )
        known = len(hub.log) + ended
        assert known <= len(_NAMES), "memory has a bound"


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


async def test_a_failure_leaves_the_last_good_decision_standing() -> None:
    hub = _hub(a="1")
    hub.publish(
        _target("a").gvr, _target("a").key, Outcome("", failure="conflict"), "data", "p2", data=4
    )
    assert hub.records[_target("a")] == DecisionRecord(
        _target("a"),
        "u",
        Decision({"place": "1"}),
        2,
        "data",
        "p2",
        old=Decision({"place": "1"}),
        failure="conflict",
        data=4,
        last_good=True,
    )


async def test_the_last_good_decision_stands_through_one_failure_after_another() -> None:
    hub = _hub(a="1")
    for failure in ("conflict", "timeout"):
        hub.publish(_target("a").gvr, _target("a").key, Outcome("", failure=failure), "data", "")
    record = hub.records[_target("a")]
    assert (record.decision, record.failure, record.last_good) == (
        Decision({"place": "1"}),
        "timeout",
        True,
    )


async def test_a_decision_on_an_object_that_was_made_anew_does_not_stand_for_it() -> None:
    hub = _hub(a="1")
    hub.publish(
        _target("a").gvr, _target("a").key, Outcome("other", failure="conflict"), "object", ""
    )
    record = hub.records[_target("a")]
    assert (record.uid, record.decision, record.last_good) == ("other", None, False)


async def test_a_failure_ends_with_the_next_decision_even_where_it_is_the_last_good_one() -> None:
    hub = _hub(a="1")
    hub.publish(_target("a").gvr, _target("a").key, Outcome("", failure="conflict"), "data", "")
    hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "data", "")
    record = hub.records[_target("a")]
    assert (record.seq, record.failure, record.last_good) == (3, None, False)


async def test_a_record_says_what_caused_it_and_on_which_data() -> None:
    hub, source = DecisionHub("me"), Source("clusters", "fleet/c1", 2)
    hub.publish(
        _target("a").gvr,
        _target("a").key,
        _outcome("1"),
        "data",
        "p1",
        uid="own",
        data=7,
        source=source,
    )
    record = hub.records[_target("a")]
    assert (record.uid, record.data, record.source) == ("own", 7, source)


async def test_objects_that_are_decided_alike_share_what_is_said_of_them() -> None:
    hub, outcome = DecisionHub("me"), _outcome("1")
    for name in "abc":
        hub.publish(_target(name).gvr, _target(name).key, outcome, "load", "p1")
    assert len({id(entry.encoded) for entry in hub.log}) == 1


async def test_what_is_shared_is_forgotten_before_it_takes_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube_sync.decisions.hub._CACHED_VERDICTS", 2)
    hub, outcomes = DecisionHub("me"), [_outcome(text) for text in "123"]
    for name, outcome in zip("abcde", [*outcomes, outcomes[2], outcomes[0]], strict=True):
        hub.publish(_target(name).gvr, _target(name).key, outcome, "load", "p1")
    a, _, c, d, e = (entry.encoded for entry in hub.log)
    assert c is d
    assert a is not e
    assert a and e and a.verdict == e.verdict  # noqa: PT018 - there is one of each


async def test_lines_are_the_records_in_two_parts() -> None:
    hub = _hub(a="1", b="2")
    hub.publish(_target("b").gvr, _target("b").key, Outcome("u", failure="conflict"), "data", "")
    with hub.subscribe() as one, hub.subscribe() as other:
        hub.delete(_target("a"))
        lines = await one.read_lines(100, 0.0)
        assert [decode(line) for line in lines.splitlines(keepends=True)] == await _read(other)


async def test_a_note_is_told_beside_the_decisions_and_taken_back() -> None:
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.note("policies", "p: does not compile")
        assert await _read(subscription) == [StatusRecord((), "me", ("p: does not compile",))]
        hub.note("policies", "p: does not compile")
        assert await _read(subscription) == [BookmarkRecord(1, "me")]
        hub.note("policies", None)
        assert await _read(subscription) == [RELEASED]


async def test_a_note_ends_no_hold_before_the_decisions_are_told() -> None:
    hub = _hub(a="1", b="2")
    with hub.subscribe() as subscription:
        assert (await _read(subscription, 1))[0] == SENDING
        hub.note("policies", "wrong")
        status, record, release, _ = await _read(subscription, 1)
    assert status == StatusRecord(SENDING.held, "me", ("wrong",))
    assert _names([record]) == ["b"]
    assert release == StatusRecord((), "me", ("wrong",))


async def test_a_reader_that_resumes_gets_what_changed_since_and_a_bookmark() -> None:
    hub = _hub(a="1", b="2", c="3", d="4")
    hub.publish(_target("b").gvr, _target("b").key, _outcome("5"), "data", "")
    hub.delete(_target("c"))
    hub.publish(_target("d").gvr, _target("d").key, Outcome("u"), "data", "")
    with hub.subscribe(("me", 4)) as subscription:
        first, b, c, d, release, bookmark = await _read(subscription)
    assert (first, release, bookmark) == (SENDING, RELEASED, BookmarkRecord(7, "me"))
    assert b == hub.records[_target("b")]
    assert c == DeletedRecord(_target("c"), 6)
    assert isinstance(d, DecisionRecord)
    assert (d.decision, d.old) == (None, Decision({"place": "4"}))


async def test_a_reader_that_starts_afresh_hears_nothing_of_what_ended_before() -> None:
    hub = _hub(a="1", b="2")
    hub.delete(_target("a"))
    with hub.subscribe() as subscription:
        assert _names(await _read(subscription)) == ["b"]


async def test_an_object_that_came_back_is_told_once() -> None:
    hub = _hub(a="1")
    hub.delete(_target("a"))
    hub.publish(_target("a").gvr, _target("a").key, _outcome("2"), "object", "")
    with hub.subscribe(("me", 1)) as subscription:
        assert _names(await _read(subscription)) == ["a"]
    assert hub.log.find_ended(_target("a").gvr, _target("a").key) is None


async def test_a_decision_that_ended_is_forgotten_with_its_object() -> None:
    hub = _hub(a="1")
    hub.publish(_target("a").gvr, _target("a").key, Outcome("u"), "policy", "")
    with hub.subscribe(("me", 2)) as subscription:
        hub.delete(_target("a"))
        hub.delete(_target("a"))
        assert (await _read(subscription))[1] == DeletedRecord(_target("a"), 3)
    assert hub.seq == 3


@pytest.mark.parametrize("since", [("other", 1), ("me", 3)])
async def test_another_process_cannot_resume(since: tuple[str, int]) -> None:
    with pytest.raises(Expired, match="another replicator process"), _hub(a="1").subscribe(since):
        pytest.fail("resumed")


async def test_a_bookmark_from_before_what_is_remembered_cannot_be_resumed() -> None:
    hub = DecisionHub("me", ended=1)
    for name in "ab":
        hub.publish(_target(name).gvr, _target(name).key, _outcome("1"), "load", "")
        hub.delete(_target(name))
    with hub.subscribe(("me", 2)):
        pass
    with pytest.raises(Expired, match="start afresh"), hub.subscribe(("me", 1)):
        pytest.fail("resumed")


async def test_a_reader_that_missed_the_end_of_an_object_for_good_is_sent_away() -> None:
    hub = DecisionHub("me", ended=1)
    for name in "ab":
        hub.publish(_target(name).gvr, _target(name).key, _outcome("1"), "load", "")
    with hub.subscribe() as behind, hub.subscribe() as current:
        await _read(behind)
        for name in "ab":
            hub.delete(_target(name))
            await _read(current)
        with pytest.raises(Expired):
            await _read(behind)


async def test_what_was_superseded_is_swept_out() -> None:
    hub = _hub(a="1")
    for number in range(5000):
        hub.publish(_target("a").gvr, _target("a").key, _outcome(str(number)), "data", "")
    assert len(remembered(hub, Entry)) < 1100


async def test_of_many_that_change_few_superseded_entries_wait_to_be_swept_out() -> None:
    hub = _hub(**{f"a{n}": "1" for n in range(4_000)})
    for number in range(20_000):
        hub.publish(
            _target(f"a{number % 4_000}").gvr,
            _target(f"a{number % 4_000}").key,
            _outcome(str(number)),
            "data",
            "",
        )
    assert len(remembered(hub, Entry)) <= 4_000 + 1_000 + 1_000


async def test_a_load_that_changes_nothing_keeps_one_string_of_each_uid() -> None:
    """That of the hub and that of the classes of what was loaded anew would be two."""
    hub, uid = _hub(a="1"), b"uid".decode()
    outcome = _outcome("1")
    hub.publish(_target("a").gvr, _target("a").key, outcome, "load", "", uid=uid)
    again = b"uid".decode()
    assert again is not uid
    hub.publish(_target("a").gvr, _target("a").key, outcome, "load", "", uid=again)
    entry = hub.log.get(_target("a"))
    assert entry is not None
    assert entry.uid is again


def test_key_and_uid_of_a_known_object_are_those_that_are_kept() -> None:
    hub, first, uid = DecisionHub("me"), _target("a").key, b"uid".decode()
    gvr = _target("a").gvr
    hub.publish(gvr, first, _outcome("1"), "load", "", uid=uid)
    hub.publish(gvr, _target("a").key, _outcome("2"), "object", "", uid=uid)
    key, again = hub.log.known(gvr, _target("a").key, b"uid".decode())
    assert key is first
    assert again is uid
    assert hub.log.known(gvr, first, "another") == (first, "another")
    assert hub.log.known(gvr, _target("b").key, "u") == (_target("b").key, "u")


async def test_a_snapshot_is_everything_in_pieces_up_to_a_bookmark() -> None:
    hub = _hub(a="1", b="2")
    pieces = []
    for piece in hub.open_reader().snapshot(2):
        pieces.append(piece)
        hub.publish(_target("b").gvr, _target("b").key, _outcome(f"3{len(pieces)}"), "data", "")
    records = [decode(line) for line in b"".join(pieces).splitlines(keepends=True)]
    assert len(pieces) == 3
    assert _names(records) == ["a", "b"]
    assert records[-1] == BookmarkRecord(2, "me"), "what changed meanwhile comes after it"


async def test_changes_are_counted_together() -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("kube_sync_decision_changes_total") or 0.0

    before, hub = counted(), _hub(a="1", b="2")
    hub.measure()
    hub.measure()
    assert counted() == before + 2


@given(before=_steps, after=_steps, limit=st.integers(1, 5))
def test_whoever_resumes_knows_what_one_who_never_left_knows(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], limit: int
) -> None:
    async def whole() -> None:
        hub = DecisionHub("me", ended=3)
        await _play(hub, before, [])
        with hub.subscribe() as first:
            reader = Reader(hub, first)
            await reader.drain(limit)
        seq = hub.seq
        await _play(hub, after, [])
        try:
            with hub.subscribe(("me", seq)) as second:
                reader.subscription, reader.held = second, None
                await reader.drain(limit)
                assert reader.state == hub.records
        except Expired:
            assert hub.log.forgotten > seq

    asyncio.run(whole())


def _budgets(records: Iterable[Record]) -> list[Budget | None]:
    return [record.budget for record in records if isinstance(record, StatusRecord)]


async def test_limits_are_told_before_what_was_decided_later() -> None:
    hub = _hub(a="1")
    with hub.subscribe() as subscription:
        assert _budgets(await _read(subscription)) == [None, None]
        hub.set_limits({"moves_burst": 1})
        hub.publish(_target("a").gvr, _target("a").key, _outcome("2"), "data", "p1")
        status, change, _ = await _read(subscription)
    assert status == StatusRecord((), "me", budget=Budget({"moves_burst": 1}))
    assert _names([change]) == ["a"]


async def test_whoever_comes_later_is_told_the_limits_before_it_may_act() -> None:
    hub = _hub(a="1")
    hub.set_limits({"moves_burst": 1})
    with hub.subscribe() as subscription:
        records = await _read(subscription)
    assert _budgets(records) == [Budget({"moves_burst": 1})] * 2


async def test_limits_wake_a_reader_once() -> None:
    hub = _hub()
    with hub.subscribe() as subscription:
        await _read(subscription)
        reader = asyncio.create_task(subscription.read(100, 3600.0))
        await asyncio.sleep(0)
        hub.set_limits({"moves_burst": 1})
        async with asyncio.timeout(PATIENCE):
            assert _budgets(await reader) == [Budget({"moves_burst": 1})]
        hub.set_limits({"moves_burst": 1})
        assert await _read(subscription) == [BookmarkRecord(0, "me")]
        hub.set_limits(None)
        assert _budgets(await _read(subscription)) == [None]


async def test_the_last_good_limits_stand_and_what_is_wrong_is_noted() -> None:
    hub = _hub()
    hub.set_limits_failure("a conflict")
    assert hub.budget == Budget(None, "a conflict", last_good=False)
    hub.set_limits({"moves_burst": 1})
    assert not hub.notes
    hub.set_limits_failure("a conflict")
    assert hub.budget == Budget({"moves_burst": 1}, "a conflict", last_good=True)
    assert hub.notes == ("limits of policies are not in force as they are: a conflict",)
    hub.set_limits(None)
    hub.set_limits_failure("a conflict")
    assert hub.budget == Budget(None, "a conflict", last_good=True)


def _lower(one: Any, other: Any) -> Any:
    """Return the lower burst: what a reader of limits knows of them."""
    bursts = [found["moves_burst"] for found in (one, other) if found is not None]
    return {"moves_burst": min(bursts)} if bursts else None


def _limited(burst: int | None) -> DecisionHub:
    hub = DecisionHub("me", stricter=_lower)
    hub.set_limits(None if burst is None else {"moves_burst": burst})
    hub.settle()
    return hub


async def test_what_limits_less_is_told_when_it_is_settled_and_after_what_was_decided() -> None:
    hub = _limited(1)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.set_limits(None)
        assert not hub.is_settled
        assert await _read(subscription) == [BookmarkRecord(0, "me")]
        hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "data", "p1")
        hub.publish(_target("b").gvr, _target("b").key, _outcome("1"), "data", "p1")
        hub.settle()
        assert hub.is_settled
        (first,) = await subscription.read(1, 0.0)
        assert _names([first]) == ["a"]
        second, status, bookmark = await subscription.read(1, 0.0)
        assert _names([second]) == ["b"]
    assert status == StatusRecord((), "me", budget=None)
    assert bookmark == BookmarkRecord(2, "me")


async def test_what_limits_more_is_told_at_once_and_what_was_before_still_does() -> None:
    hub = _limited(5)
    with hub.subscribe() as subscription:
        await _read(subscription)
        for burst, told in ((3, [3]), (4, []), (2, [2]), (9, [])):
            hub.set_limits({"moves_burst": burst})
            records = await _read(subscription)
            assert _budgets(records) == [Budget({"moves_burst": number}) for number in told]
        hub.settle()
        assert _budgets(await _read(subscription)) == [Budget({"moves_burst": 9})]


async def test_a_reader_that_is_behind_is_told_of_no_end_before_what_it_has_not_read() -> None:
    """Whatever was settled meanwhile."""
    hub = _limited(1)
    with hub.subscribe() as subscription:
        await _read(subscription)
        for name in "abcd":
            hub.publish(_target(name).gvr, _target(name).key, _outcome("1"), "data", "p1")
        hub.set_limits(None)
        hub.settle()
        assert _budgets(await subscription.read(1, 0.0)) == []
        hub.set_limits({"moves_burst": 3})
        hub.settle()
        assert _budgets(await subscription.read(1, 0.0)) == []
        hub.set_limits({"moves_burst": 2})
        hub.settle()
        assert _budgets(await subscription.read(1, 0.0)) == []
        change, status, _ = await subscription.read(1, 0.0)
        assert _names([change]) == ["d"]
        assert status == StatusRecord((), "me", budget=Budget({"moves_burst": 2}))


async def test_a_reader_that_is_behind_is_told_of_a_lower_limit_before_what_it_has_not_read() -> (
    None
):
    hub = _limited(3)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.publish(_target("a").gvr, _target("a").key, _outcome("1"), "data", "p1")
        hub.set_limits({"moves_burst": 2})
        hub.settle()
        status, change, bookmark = await _read(subscription)
    assert status == StatusRecord((), "me", budget=Budget({"moves_burst": 2}))
    assert (_names([change]), bookmark) == (["a"], BookmarkRecord(1, "me"))


async def test_limits_that_cannot_be_used_leave_in_force_what_was_not_settled() -> None:
    hub = _limited(1)
    hub.set_limits(None)
    hub.set_limits_failure("a conflict")
    assert hub.budget == Budget({"moves_burst": 1}, "a conflict", last_good=True)
    hub.settle()
    assert hub.budget == Budget(None, "a conflict", last_good=True)


async def test_before_any_good_limits_a_reader_is_told_that_nobody_knows() -> None:
    hub = DecisionHub("me", stricter=_lower)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.set_limits_failure("a conflict")
        assert _budgets(await _read(subscription)) == [Budget(None, "a conflict")]
        hub.set_limits({"moves_burst": 1})
        assert _budgets(await _read(subscription)) == [Budget({"moves_burst": 1})]


async def test_a_decision_names_its_trace_only_if_it_has_one() -> None:
    hub, trace = _hub(a="1"), "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    target = _target("b")
    hub.publish(target.gvr, target.key, replace(_outcome("1"), trace=trace), "object", "p1")
    a, b = hub.log.of(target.gvr).values()
    assert b"trace" not in b"".join(a.parts())
    line = b"".join(b.parts())
    assert f'"trace":"{trace}"'.encode() in line
    assert decode(line) == b.record
