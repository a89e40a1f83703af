from __future__ import annotations

from typing import Any

import pytest

from kube_sync.kube.conditions import (
    Condition,
    Phase,
    are_right,
    dated,
    dated_after,
    observing,
    standard,
    untimed,
)

NOW, THEN = "2026-11-22T00:00:00Z", "2025-01-01T00:00:00Z"
WANTED = [Condition("A", "False", "r", "m"), Condition("B", "True", "r", "m")]


@pytest.mark.parametrize("phase", ["Ready", "Reconciling", "Stalled"])
def test_exactly_one_of_the_standard_conditions_is_true(phase: Phase) -> None:
    made = standard(phase, "Reason", "message")
    assert [one.type for one in made] == ["Ready", "Reconciling", "Stalled"]
    assert [one.type for one in made if one.status == "True"] == [phase]
    assert {one.type for one in made if one.message} == {"Ready", phase}


def test_status_without_the_field_gets_no_generation() -> None:
    assert observing(None, 3) == {}
    assert observing(-1, 3) == {"observedGeneration": 3}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    before: list[dict[str, Any]] = [
        {"type": "A", "status": "False", "message": "other", "lastTransitionTime": THEN},
        {"type": "B", "status": "False", "lastTransitionTime": THEN},
        {"type": ["of another schema"]},
    ]
    made = dated(WANTED, before, 3, NOW)
    assert [(c["type"], c["lastTransitionTime"]) for c in made] == [("A", THEN), ("B", NOW)]
    assert made[0] == {
        "type": "A",
        "status": "False",
        "reason": "r",
        "message": "m",
        "observedGeneration": 3,
        "lastTransitionTime": THEN,
    }
    assert not are_right(before, made)
    assert are_right([*made, {"type": "C"}], dated(WANTED, made, 3, "later"))


def test_a_condition_without_a_time_gets_one() -> None:
    (made,) = dated(WANTED[1:], [{"type": "B", "status": "True"}], 3, NOW)
    assert made["lastTransitionTime"] == NOW


def test_of_an_object_without_generation_none_is_observed() -> None:
    assert "observedGeneration" not in dated_after(WANTED[0], {}, None, NOW)
    assert dated_after(WANTED[0], {}, 0, NOW)["observedGeneration"] == 0


@pytest.mark.parametrize(("length", "cut"), [(32768, False), (32769, True)])
def test_a_message_is_no_longer_than_the_api_server_takes(length: int, *, cut: bool) -> None:
    message = dated_after(Condition("A", "True", "r", "x" * length), {}, 1, NOW)["message"]
    assert (len(message), message.endswith(" …")) == (32768, cut)


def test_two_times_of_one_condition_are_the_same_without_them() -> None:
    first, second = (dated_after(WANTED[0], {}, 1, now) for now in (THEN, NOW))
    assert first != second
    assert untimed(first) == untimed(second)
