from __future__ import annotations

import threading

import pytest

from kube_sync.runtime.timelimit import time_limit


def _forever() -> None:
    while True:
        pass


def test_code_that_never_ends_is_ended() -> None:
    with pytest.raises(TimeoutError), time_limit(0.05):
        _forever()


def test_code_that_never_ends_is_ended_in_another_thread() -> None:
    caught: list[type] = []

    def work() -> None:
        try:
            with time_limit(0.05):
                _forever()
        except TimeoutError as error:
            caught.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert caught == [TimeoutError]


def test_the_thread_is_started_whole_before_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[bool] = []

    class SlowToStart(threading.Timer):
        def start(self) -> None:
            super().start()
            for _ in range(100_000):
                pass
            started.append(True)

    monkeypatch.setattr(threading, "Timer", SlowToStart)
    with pytest.raises(TimeoutError), time_limit(0):
        _forever()
    assert started == [True]


def test_code_that_ends_in_time_is_left_alone_afterwards() -> None:
    for _ in range(200):
        try:
            with time_limit(0.0001):
                sum(range(1000))
        except TimeoutError:
            continue
    assert sum(range(100_000)) == 4999950000
