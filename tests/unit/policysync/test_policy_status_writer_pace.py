from __future__ import annotations

import pytest

from kube_sync.policysync.placers import Subject
from kube_sync.policysync.policy_status_writer import Pace

POLICY, OTHER = (Subject("kuadrant.io", "authpolicies", "team", name) for name in ("p", "other"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_never_told_is_told_at_once() -> None:
    assert Pace(Clock()).wait(POLICY) == 0.0


@pytest.mark.parametrize(("clusters", "seconds"), [(0, 0.0), (2, 0.1), (100, 5.0), (5000, 10.0)])
def test_the_more_clusters_the_longer_the_next_one_waits_up_to_a_bound(
    clusters: int, seconds: float
) -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.record_write(POLICY, clusters)
    assert pace.wait(POLICY) == pytest.approx(seconds)
    assert pace.wait(OTHER) == 0.0
    clock.now += seconds + 0.001
    assert pace.wait(POLICY) == 0.0


def test_what_is_forgotten_waits_for_nothing() -> None:
    pace = Pace(Clock())
    pace.record_write(POLICY, 100)
    pace.forget(POLICY)
    pace.forget(POLICY)
    assert pace.wait(POLICY) == 0.0
