from __future__ import annotations

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    StatusRecord,
    Target,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediator.heard import Decided, Decisions, Key

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
HELD = StatusRecord(("loading",), "me")
RELEASED = StatusRecord((), "me")
BOOKMARK = BookmarkRecord(1, "me")


def key(name: str) -> Key:
    return (REPLICASETS, ObjectKey("ns", name))


def target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


def decision(name: str, text: str = "eu") -> DecisionRecord:
    return DecisionRecord(target(name), "u", Decision({"place": text}), 1, "data", "p1")


class Heard:
    def __init__(self) -> None:
        self.changed: list[Key] = []
        self.releases = 0
        self.decisions = Decisions(self.changed.append, self._released)

    def _released(self) -> None:
        self.releases += 1

    def take(
        self, *records: DecisionRecord | DeletedRecord | StatusRecord | BookmarkRecord
    ) -> None:
        for record in records:
            self.decisions.take(record)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_decision_is_known_and_told(heard: Heard) -> None:
    heard.take(decision("a"))
    expected = Decided("u", Decision({"place": "eu"}), None, "p1")
    assert heard.decisions.get(key("a")) == expected
    assert heard.decisions.known() == (key("a"),)
    assert heard.changed == [key("a")]


def test_nothing_may_be_acted_on_before_the_stream_begins(heard: Heard) -> None:
    heard.take(decision("a"))
    assert not heard.decisions.may_act(key("a"))
    heard.take(RELEASED)
    assert heard.decisions.may_act(key("a"))


def test_the_end_of_a_hold_is_told_once(heard: Heard) -> None:
    heard.take(RELEASED, RELEASED, HELD)
    assert (heard.releases, heard.decisions.may_act(key("a"))) == (1, False)
    heard.take(StatusRecord(("a kind is missing",), "me"), RELEASED)
    assert heard.releases == 2


def test_a_new_stream_holds_until_it_has_confirmed_a_decision(heard: Heard) -> None:
    heard.take(decision("a"), decision("b"), RELEASED)
    heard.decisions.take(None)
    assert not heard.decisions.may_act(key("a"))
    heard.take(decision("a"), RELEASED)
    assert heard.decisions.may_act(key("a"))
    assert not heard.decisions.may_act(key("b"))


def test_what_a_complete_stream_did_not_mention_is_not_decided_any_more(heard: Heard) -> None:
    heard.take(decision("a"), decision("b"), RELEASED)
    heard.decisions.take(None)
    heard.changed.clear()
    heard.take(decision("a"), RELEASED, BOOKMARK)
    assert heard.decisions.known() == (key("a"),)
    assert heard.decisions.may_act(key("b"))
    assert heard.changed == [key("a"), key("b")]


def test_a_deleted_resource_is_not_decided_any_more(heard: Heard) -> None:
    heard.take(decision("a"), DeletedRecord(target("a"), 2), DeletedRecord(target("b"), 3))
    assert heard.decisions.get(key("a")) is None
    assert heard.changed == [key("a"), key("a"), key("b")]
