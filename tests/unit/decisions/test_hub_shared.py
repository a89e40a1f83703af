"""One outcome for many objects: what a class gets is what each of its objects would get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import DecisionRecord, Record
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


def _decisions(records: Iterable[Record]) -> list[DecisionRecord]:
    return [record for record in records if isinstance(record, DecisionRecord)]
