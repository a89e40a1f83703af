from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.decisions.records import Stale as StaleRecord
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import DecisionCache, Key, Settling, follow
from kube_sync.remediation.plan import Wanted
from kube_sync.runtime.freshness import SETTLE_SECONDS, Stale

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
        self.decisions = DecisionCache(lambda: 100.0)
        self.decisions.subscribe(self._changed, self._released)

    def _changed(self, keys: Iterable[Key]) -> None:
        self.changed += keys

    def _released(self) -> None:
        self.releases += 1

    def take(
        self, *records: DecisionRecord | DeletedRecord | StatusRecord | BookmarkRecord
    ) -> None:
        for record in records:
            self.decisions.apply_record(record)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_decision_is_known_and_told(heard: Heard) -> None:
    heard.take(decision("a"))
    expected = Wanted("u", Decision({"place": "eu"}), None, "p1")
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
    heard.decisions.apply_record(None)
    assert not heard.decisions.may_act(key("a"))
    heard.take(decision("a"), RELEASED)
    assert heard.decisions.may_act(key("a"))
    assert not heard.decisions.may_act(key("b"))


def test_what_a_complete_stream_did_not_mention_is_not_decided_any_more(heard: Heard) -> None:
    heard.take(decision("a"), decision("b"), RELEASED)
    heard.decisions.apply_record(None)
    heard.changed.clear()
    heard.take(decision("a"), RELEASED, BOOKMARK)
    assert heard.decisions.known() == (key("a"),)
    assert heard.decisions.may_act(key("b"))
    # The end of the hold is one of everything; what came of `b` is told again after it.
    assert heard.changed == [key("a"), key("a"), key("b"), key("b")]


def test_a_deleted_resource_is_not_decided_any_more(heard: Heard) -> None:
    heard.take(decision("a"), DeletedRecord(target("a"), 2), DeletedRecord(target("b"), 3))
    assert heard.decisions.get(key("a")) is None
    assert heard.changed == [key("a"), key("a"), key("b")]


def test_the_stream_tells_what_is_not_current() -> None:
    now = [100.0]
    decided = DecisionCache(lambda: now[0])
    decided.apply_record(StatusRecord((), "me", (), (StaleRecord("clusters", 5.0, "503"),)))
    now[0] += 1.0
    assert decided.freshness.stale() == [Stale("clusters", 6.0, "503")]
    decided.apply_record(StatusRecord((), "me"))
    assert decided.freshness.stale() == [Stale("clusters", 6.0, "503")]
    now[0] += SETTLE_SECONDS + 0.1
    assert decided.freshness.stale() == []


def test_a_status_that_holds_no_more_than_before_touches_nothing() -> None:
    """It comes with every watch that blinks, and there may be many thousand objects."""
    touched: list[int] = []
    decided = DecisionCache(lambda: 100.0)
    decided.subscribe(lambda keys: touched.append(len(list(keys))))
    for _ in range(3):
        decided.apply_record(StatusRecord((), "me"))
    assert len(touched) == 1


class Stream:
    closed = False

    async def records(self) -> AsyncGenerator[Record | None]:
        try:
            yield None
            yield BookmarkRecord(1, "me")
        finally:
            self.closed = True


async def test_every_reader_hears_each_record_until_one_fails() -> None:
    one, other, stream = list[Record | None](), list[Record | None](), Stream()
    await follow(stream, one.append, other.append)
    assert one == other == [None, BookmarkRecord(1, "me")]
    failing = Stream()

    def fail(_record: Record | None) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await follow(failing, one.append, fail)
    assert one[2:] == [None]
    assert failing.closed


def _settling(*decided: tuple[str, float], bookmark: bool = True) -> Settling:
    settling = Settling()
    for cause, now in decided:
        settling.decided(cause, now)
    if bookmark:
        settling.bookmark()
    return settling


def test_where_nothing_was_decided_nothing_is_waited_for() -> None:
    assert Settling().wait(0) == 0
    assert _settling().wait(0) == 0


def test_a_change_of_an_object_is_complete_with_its_bookmark() -> None:
    assert _settling(("object", 1.0)).wait(1.0) == 0
    assert _settling(("object", 1.0), bookmark=False).wait(1.0) == pytest.approx(0.2)


def test_a_change_of_the_fleet_is_complete_after_a_pause() -> None:
    settling = _settling(("object", 1.0), ("data", 1.1))
    assert round(settling.wait(1.2), 9) == 0.1
    assert settling.wait(1.4) == 0


def test_what_never_rests_is_acted_on_nevertheless() -> None:
    settling = _settling(*(("policy", 1 + n / 10) for n in range(30)))
    assert settling.wait(2.95) > 0
    assert settling.wait(3.0) == 0


def test_what_was_acted_on_is_waited_for_no_more() -> None:
    settling = _settling(("data", 1.0))
    settling.begin()
    assert settling.wait(1.0) == 0
    settling.decided("object", 2.0)
    settling.bookmark()
    assert settling.wait(2.0) == 0
