from __future__ import annotations

from kube_sync.safety.rivals import WRITES, Rivals


def _wrote(*times: float, decision: object = "d") -> Rivals:
    rivals = Rivals()
    for time in times:
        rivals.wrote("a", decision, time)
    return rivals


def test_an_object_that_was_never_written_has_no_rival() -> None:
    assert Rivals().truce("a", "d", 0) is None


def test_as_many_writes_of_one_decision_within_a_minute_are_a_fight() -> None:
    assert _wrote(0, 30, 60).truce("a", "d", 61) == 660
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
    assert rivals.truce("a", "d", 601) == 602
    assert rivals.truce("a", "d", 602) is None
    assert rivals.truce("a", "d", 3) is None, "it is forgotten"


def test_an_object_that_is_gone_is_forgotten() -> None:
    rivals = _wrote(0, 1, 2)
    rivals.forget("a")
    rivals.forget("never seen")
    assert rivals.truce("a", "d", 3) is None


def test_what_counts_no_more_is_not_kept() -> None:
    rivals = _wrote(0, 1, 2)
    rivals.tidy(601)
    assert rivals.truce("a", "d", 601) == 602
    rivals.tidy(602)
    assert not rivals._records
