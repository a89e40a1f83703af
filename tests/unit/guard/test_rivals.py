from __future__ import annotations

from kube_sync.guard.rivals import WRITES, Rivals
from tests.memory import remembered


def _wrote(*times: float, decision: object = "d") -> Rivals:
    rivals = Rivals()
    for time in times:
        rivals.wrote("a", decision, time)
    return rivals


def test_an_object_that_was_never_written_has_no_rival() -> None:
    assert Rivals().truce("a", "d", 0) is None


def test_as_many_writes_of_one_decision_within_a_minute_are_a_fight() -> None:
    assert _wrote(0, 30, 60).truce("a", "d", 61) == 120
    assert _wrote(*range(WRITES - 1)).truce("a", "d", 61) is None


def test_writes_over_more_than_a_minute_are_none() -> None:
    assert _wrote(0, 30, 61).truce("a", "d", 62) is None


def test_another_decision_begins_anew() -> None:
    rivals = _wrote(0, 1, 2)
    assert rivals.truce("a", "other", 3) is None
    rivals.wrote("a", "other", 3)
    assert rivals.truce("a", "d", 4) is None


def test_a_truce_ends_by_itself() -> None:
    rivals = _wrote(0, 1, 2)
    assert rivals.truce("a", "d", 61) == 62
    assert rivals.truce("a", "d", 62) is None
    assert rivals.truce("a", "d", 63) is None


def test_truces_grow_as_long_as_the_fight_goes_on() -> None:
    rivals, now, lengths = Rivals(), 0.0, list[float]()
    for _ in range(6):
        while (until := rivals.truce("a", "d", now)) is None:
            rivals.wrote("a", "d", now)
            now += 1
        lengths.append(until - (now - 1))
        now = until
    assert lengths == [60, 120, 240, 480, 600, 600]


def test_a_fight_that_was_over_for_long_begins_anew() -> None:
    rivals = _wrote(0, 1, 2)
    assert rivals.truce("a", "d", 62) is None
    rivals.tidy(603)
    for time in (700, 701, 702):
        rivals.wrote("a", "d", time)
    assert rivals.truce("a", "d", 703) == 762


def test_an_object_that_is_gone_is_forgotten() -> None:
    rivals = _wrote(0, 1, 2)
    rivals.forget("a")
    rivals.forget("never seen")
    assert rivals.truce("a", "d", 3) is None


def test_what_counts_no_more_is_not_kept() -> None:
    rivals = _wrote(0, 1, 2)
    rivals.tidy(61)
    assert rivals.truce("a", "d", 61) == 62
    rivals.tidy(602)
    assert remembered(rivals, str) == []


def test_a_first_truce_of_the_longest_time_stays_as_long_and_needs_as_many_writes_again() -> None:
    rivals = Rivals(600)
    for begun in (0, 602):
        for time in (begun, begun + 1):
            rivals.wrote("a", "d", time)
            assert rivals.truce("a", "d", time) is None
        rivals.wrote("a", "d", begun + 2)
        assert rivals.truce("a", "d", begun + 3) == begun + 602
        assert rivals.truce("a", "d", begun + 602) is None
