from __future__ import annotations

from kube_sync.policysync.currency import Currency
from kube_sync.safety import Stale


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.currency = Currency(lambda: self.now)
        self.report = self.currency.reporter("gateways")


def test_a_source_is_late_since_it_was_first_said() -> None:
    clock = Clock()
    assert clock.currency.stale() == []
    clock.report(None)
    clock.report("no answer")
    clock.now += 7
    clock.report("refused")
    assert clock.currency.stale() == [Stale("gateways", 7.0, "refused")]


def test_one_that_is_current_counts_as_late_for_a_moment() -> None:
    clock = Clock()
    clock.report("no answer")
    clock.now += 10
    clock.report(None)
    clock.report(None)
    clock.now += 4
    assert clock.currency.stale() == [Stale("gateways", 14.0, "no answer")]
    clock.now += 2
    assert clock.currency.stale() == []
    clock.report("again")
    assert clock.currency.stale() == [Stale("gateways", 0.0, "again")]


def test_one_that_is_late_again_at_once_was_late_all_the_time() -> None:
    clock = Clock()
    clock.report("no answer")
    clock.now += 10
    clock.report(None)
    clock.now += 1
    clock.report("no answer")
    assert clock.currency.stale() == [Stale("gateways", 11.0, "no answer")]


def test_one_that_is_late_long_after_is_late_anew() -> None:
    clock = Clock()
    clock.report("no answer")
    clock.report(None)
    clock.now += 60
    clock.report("no answer")
    assert clock.currency.stale() == [Stale("gateways", 0.0, "no answer")]
