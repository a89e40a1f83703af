from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.policies.staging.promotion import Limits, objections
from kube_sync.replicator.differences import KINDS

COUNTED: dict[str, Any] = {"status": "ok", "stage": "shadow", "modules": "d", "objects": 100}
COUNTED |= dict.fromkeys(KINDS, 0)


def said(limits: Limits = Limits(), /, **changes: int) -> str:  # noqa: B008 - frozen
    return "; ".join(objections(json.dumps({**COUNTED, **changes}), "d", limits))


def test_policy_that_changes_little_may_be_promoted() -> None:
    assert said() == said(moves=10, adds=90, changes=90) == ""


@pytest.mark.parametrize("effect", ["failed", "refused", "undecided", "nowhere"])
def test_promotion_halts_at_the_first_object_that_breaks_unless_more_may(effect: str) -> None:
    assert said(**{effect: 1}) == f"1 would be {effect}, at most 0 may"
    assert said(Limits(breaks=1), **{effect: 1}) == ""
    assert said(Limits(breaks=1), **{effect: 2}) == f"2 would be {effect}, at most 1 may"


def test_promotion_halts_at_the_first_object_that_was_not_healthy_unless_more_may() -> None:
    expected = "1 were not healthy where they were added, at most 0 may be"
    assert said(unhealthy=1) == expected
    assert said(Limits(breaks=1), unhealthy=1) == ""


def test_promotion_halts_where_more_than_the_share_would_move() -> None:
    assert said(moves=11) == "11 of 100 would move, at most 10% may"
    assert said(Limits(moves=0.11), moves=11) == ""
    assert said(Limits(moves=0), moves=1) == "1 of 100 would move, at most 0% may"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (None, "said nothing"),
        ("{", "said nothing"),
        ("[]", "said nothing"),
        ('{"status": "error", "error": {"message": "no such var"}}', "at fault: no such var"),
        ('{"status": "error"}', "its status says no more"),
        ('{"status": "ok"}', "nothing is counted"),
        ('{"status": "ok", "stage": "shadow", "stands_for": "p/q"}', "nothing is counted"),
        (json.dumps({**COUNTED, "modules": "other"}), "another version"),
        (json.dumps({**COUNTED, "together_with": ["p/q"]}), "together with p/q"),
    ],
)
def test_what_was_not_counted_is_not_promoted(status: str | None, why: str) -> None:
    (objection,) = objections(status, "d", Limits(breaks=999, moves=1))
    assert why in objection
