from __future__ import annotations

import time

import pytest

from kube_sync.runtime.clock import unix_clock


def test_a_wall_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    clock = unix_clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    assert clock() == 1002.0
