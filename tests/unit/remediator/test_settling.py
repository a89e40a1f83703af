from __future__ import annotations

import pytest

from kube_sync.remediator.settling import Settling


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
