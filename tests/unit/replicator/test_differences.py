from __future__ import annotations

import json

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import HISTORY, Inventory, Placements
from kube_sync.guard.placements import PREFERENCES
from kube_sync.replicator.differences import difference


def placed(*clusters: str, evict: bool = False, **others: str) -> Outcome:
    value = json.dumps({"clusters": {name: {} for name in clusters}})
    return Outcome("u", Decision({PREFERENCES: value, **others}, evict=evict))


UNDECIDED = Outcome("u")
FAILED = Outcome("u", failure="conflict")
REFUSED = Outcome("u", Decision(errors=("no",)))
NOTHING = Outcome("u", Decision())


@pytest.mark.parametrize(
    ("now", "then", "kind"),
    [
        (placed("a"), placed("a"), None),
        (placed("a"), placed("b"), "moves"),
        (placed("a", "b"), placed("a"), "moves"),
        (placed("a"), placed("a", "b"), "adds"),
        (placed("a"), placed(), "nowhere"),
        (placed("a"), placed(evict=True), "nowhere"),
        (placed("a"), placed("a", note="x"), "changes"),
        (placed("a"), Outcome("u", Decision(labels={"a": "b"})), "moves"),
        (NOTHING, Outcome("u", Decision(labels={"a": "b"})), "changes"),
        (NOTHING, Outcome("u", Decision(reasons={"a": "b"})), None),
        (NOTHING, placed("a"), "adds"),
        (placed("a"), FAILED, "failed"),
        (placed("a"), REFUSED, "refused"),
        (placed("a"), UNDECIDED, "undecided"),
        (placed("a"), Outcome("u", Decision({HISTORY: "mine"})), "refused"),
        # What is silent already is not the edit's doing; what ends that places anew.
        (FAILED, FAILED, None),
        (REFUSED, REFUSED, None),
        (UNDECIDED, UNDECIDED, None),
        (FAILED, REFUSED, "refused"),
        (REFUSED, placed("a"), "adds"),
        (UNDECIDED, placed("a"), "adds"),
        (UNDECIDED, NOTHING, None),
    ],
)
def test_difference_is_what_would_become_of_the_workload(
    now: Outcome, then: Outcome, kind: str | None
) -> None:
    assert difference("shop", now, then, Placements()) == kind


def test_placement_on_unknown_clusters_alone_is_nowhere_as_in_a_plan() -> None:
    known = Inventory(frozenset("ab"))
    kinds = [
        difference("shop", placed("a"), then, Placements(), known)
        for then in (placed("c"), placed("b", "c"), placed("c", evict=True))
    ]
    assert kinds == ["nowhere", "moves", "nowhere"]
