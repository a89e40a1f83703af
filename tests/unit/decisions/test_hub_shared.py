"""One outcome for many objects: what a class gets is what each of its objects would get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import DecisionRecord, Record, Target, decode, decode_grouped
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.unit.async_tools import PATIENCE

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")


def _members(names: Iterable[str], uid: str = "") -> list[tuple[ObjectKey, str]]:
    return [(ObjectKey("ns", name), uid or f"uid-{name}") for name in names]


def _outcome(text: str) -> Outcome:
    return Outcome("", Decision({"place": text}))


_outcomes = st.sampled_from(
    [_outcome("1"), _outcome("2"), Outcome(""), Outcome("", failure="x"), Outcome("", failure="y")]
)
_steps = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcd"), unique=True, max_size=4),
        st.sampled_from(["", "other"]),
        _outcomes,
        st.sampled_from([REPLICASETS, DEPLOYMENTS]),
    ),
    max_size=12,
)


@given(_steps)
def test_class_gets_what_each_of_its_objects_would_get(
    steps: list[tuple[list[str], str, Outcome, GroupVersionResource]],
) -> None:
    one, other = DecisionHub("me"), DecisionHub("me")
    for names, uid, outcome, gvr in steps:
        members = _members(names, uid)
        one.publish_shared(gvr, members, outcome, "data", "p", data=3)
        for key, own in members:
            other.publish(gvr, key, outcome, "data", "p", uid=own, data=3)
    assert (one.records, one.seq, one.count) == (other.records, other.seq, other.count)


@given(_steps)
def test_grouped_lines_say_what_single_ones_say(
    steps: list[tuple[list[str], str, Outcome, GroupVersionResource]],
) -> None:
    async def read() -> tuple[bytes, bytes]:
        hub = DecisionHub("me")
        with hub.subscribe() as reader, hub.subscribe() as other:
            for names, uid, outcome, gvr in steps:
                hub.publish_shared(gvr, _members(names, uid), outcome, "data", "p")
            hub.delete(next(iter(hub.records), Target.of(REPLICASETS, ObjectKey("ns", "a"))))
            return (
                await reader.read_lines(100, 0.0, grouped=True),
                await other.read_lines(100, 0.0),
            )

    grouped, single = asyncio.run(read())
    assert _decoded(grouped) == [decode(line) for line in single.splitlines()]


async def test_objects_of_a_class_share_one_line_and_others_have_their_own() -> None:
    hub = DecisionHub("me")
    hub.publish_shared(REPLICASETS, _members("ab"), _outcome("1"), "load", "p")
    hub.publish_shared(REPLICASETS, _members("c"), _outcome("2"), "load", "p")
    hub.publish_shared(DEPLOYMENTS, _members("de"), _outcome("2"), "load", "p")
    (lines,) = hub.open_reader().snapshot(100, grouped=True)
    kinds = [line.partition(b",")[0] for line in lines.splitlines()]
    assert kinds[1:4] == [b'{"type":"decisions"', b'{"type":"decision"', b'{"type":"decisions"']
    names = [record.object.name for record in _decisions(_decoded(lines))]
    assert names == ["a", "b", "c", "d", "e"]


async def test_failures_with_one_text_are_grouped_by_collection() -> None:
    """They share what is encoded, whatever they are about."""
    hub = DecisionHub("me")
    for gvr in (REPLICASETS, DEPLOYMENTS):
        hub.publish_shared(gvr, _members("ab"), Outcome("", failure="x"), "load", "p")
    (lines,) = hub.open_reader().snapshot(100, grouped=True)
    found = [record.object.resource for record in _decisions(_decoded(lines))]
    assert found == ["replicasets"] * 2 + ["deployments"] * 2


async def test_group_ends_where_a_page_ends() -> None:
    hub = DecisionHub("me")
    hub.publish_shared(REPLICASETS, _members("abcde"), _outcome("1"), "load", "p")
    reader = hub.open_reader()
    pages = [await reader.read_lines(2, 0.0, grouped=True) for _ in range(3)]
    found = [_decisions(_decoded(page)) for page in pages]
    assert [len(records) for records in found] == [2, 2, 1]
    seqs = [record.seq for records in found for record in records]
    assert all(later > earlier for earlier, later in pairwise(seqs))


async def test_change_of_a_class_wakes_a_waiting_reader_and_no_change_does_not() -> None:
    hub = DecisionHub("me")
    hub.publish_shared(REPLICASETS, _members("ab"), _outcome("1"), "load", "p")
    with hub.subscribe() as subscription:
        await subscription.read(100, 0.0)
        reader = asyncio.create_task(subscription.read(100, 3600.0))
        await asyncio.sleep(0)
        hub.publish_shared(REPLICASETS, _members("ab"), _outcome("1"), "data", "p")
        await asyncio.sleep(0)
        assert not reader.done()
        hub.publish_shared(REPLICASETS, _members("ab"), _outcome("2"), "data", "p")
        async with asyncio.timeout(PATIENCE):
            assert [one.seq for one in _decisions(await reader)] == [3, 4]


@pytest.mark.parametrize("uid", ["uid-a", ""])
async def test_object_without_a_change_keeps_the_uid_that_others_share(uid: str) -> None:
    hub = DecisionHub("me")
    hub.publish_shared(REPLICASETS, _members("a"), _outcome("1"), "load", "p")
    shared = b"uid-a".decode()
    hub.publish_shared(REPLICASETS, [(ObjectKey("ns", "a"), shared)], _outcome("1"), "load", "p")
    entry = hub.log.of(REPLICASETS)[ObjectKey("ns", "a")]
    assert entry.uid is shared
    failed = Outcome("", failure="x")
    hub.publish_shared(REPLICASETS, [(ObjectKey("ns", "a"), uid)], failed, "data", "p")
    (record,) = hub.records.values()
    assert (record.uid, record.last_good, record.failure) == ("uid-a", True, "x")


def _decoded(lines: bytes) -> list[Record]:
    return [record for line in lines.splitlines() for record in decode_grouped(line)]


def _decisions(records: Iterable[Record]) -> list[DecisionRecord]:
    return [record for record in records if isinstance(record, DecisionRecord)]
