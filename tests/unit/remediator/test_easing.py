from __future__ import annotations

from kube_sync.remediator.easing import Easing
from kube_sync.runtime.freshness import SETTLE_SECONDS
from kube_sync.safety import Tightening
from tests.memory import remembered

NONE = Tightening()


def _burst(number: int) -> Tightening:
    return Tightening(moves_burst=number)


def test_what_was_replaced_counts_for_a_few_seconds_more() -> None:
    easing = Easing()
    easing.end(_burst(1), 100)
    assert easing.with_(NONE, 100 + SETTLE_SECONDS - 0.1) == _burst(1)
    assert easing.with_(NONE, 100 + SETTLE_SECONDS) == NONE


def test_what_is_told_counts_at_once_where_it_is_lower() -> None:
    easing = Easing()
    easing.end(_burst(3), 100)
    assert easing.with_(_burst(2), 100) == _burst(2)
    assert easing.with_(Tightening(dwell_seconds=9), 100) == Tightening(
        moves_burst=3, dwell_seconds=9
    )


def test_what_is_replaced_again_and_again_ends_one_by_one() -> None:
    easing = Easing()
    easing.end(_burst(1), 100)
    easing.end(_burst(2), 102)
    easing.end(_burst(3), 104)
    assert [easing.with_(NONE, at) for at in (104, 105, 107, 109)] == [
        _burst(1),
        _burst(2),
        _burst(3),
        NONE,
    ]


def test_what_ends_in_one_moment_is_remembered_once() -> None:
    easing = Easing()
    for step in range(100):
        easing.end(_burst(1 + step), 100 + step / 50)
    assert len(remembered(easing, Tightening)) <= 3
    assert easing.with_(NONE, 100.9 + SETTLE_SECONDS) == _burst(1)
