from __future__ import annotations

from kube_sync.kube.eventrecorder import TokenBucket


def test_a_burst_is_given_at_once_and_then_the_rate() -> None:
    now = [0.0]
    bucket = TokenBucket(2.0, 3.0, lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.4
    assert not bucket.take()
    now[0] = 0.6
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_it_never_holds_more_than_a_burst() -> None:
    now = [0.0]
    bucket = TokenBucket(1.0, 2.0, lambda: now[0])
    now[0] = 1000.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_looking_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 1.0, lambda: 0.0)
    assert bucket.has()
    assert bucket.has()
    assert bucket.take()
    assert not bucket.has()
