from __future__ import annotations

from collections.abc import Mapping

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import Inventory, Placements
from kube_sync.inspect.plan.effects import Effect, effect, unknown_clusters
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import Current
from tests.unit.inspect.plan.fleets import PLACEMENT, preferences

KEY = ObjectKey("shop", "web")
REFUSED = Outcome("u", Decision({}, ("no",)))
FAILED = Outcome("u", failure="p.rego:3: conflict")
UNDEFINED = Outcome("u")


def on(*names: str, evict: bool = False, **more: str) -> Outcome:
    return Outcome("u", Decision({PLACEMENT: preferences(*names), **more}, evict=evict))


def found(now: Outcome, then: Outcome, annotations: Mapping[str, str]) -> Effect | None:
    current = Current("u", annotations)
    return effect("replicasets", KEY, current, now, then, Placements())


HAS = {PLACEMENT: preferences("c1", "c2")}
NOW = on("c1", "c2")


@pytest.mark.parametrize(
    ("then", "kind", "after"),
    [
        (on("c1"), "moves", ("c1",)),
        (on("c3"), "moves", ("c3",)),
        (on("c1", "c2", "c3"), "adds", ("c1", "c2", "c3")),
        (on("c1", "c2", note="new"), "changes", ("c1", "c2")),
        (on(), "nowhere", ()),
        (on(evict=True), "nowhere", ()),
        (REFUSED, "refused", ("c1", "c2")),
        (FAILED, "failed", ("c1", "c2")),
        (UNDEFINED, "undecided", ("c1", "c2")),
    ],
)
def test_what_becomes_of_a_workload_follows_from_the_step_that_would_be_taken(
    then: Outcome, kind: str, after: tuple[str, ...]
) -> None:
    effect = found(NOW, then, HAS)
    assert effect is not None
    assert (effect.kind, effect.before, effect.after) == (kind, ("c1", "c2"), after)
    assert not effect.pending
    assert effect.breaks == (kind in {"nowhere", "refused", "failed", "undecided"})


@pytest.mark.parametrize("outcome", [NOW, REFUSED, FAILED, UNDEFINED])
def test_what_was_so_before_is_nothing_new(outcome: Outcome) -> None:
    assert found(outcome, outcome, HAS) is None


def test_one_way_of_being_left_alone_may_give_way_to_another() -> None:
    kinds = [
        effect.kind
        for now, then in ((REFUSED, UNDEFINED), (FAILED, REFUSED), (UNDEFINED, FAILED))
        if (effect := found(now, then, HAS)) is not None
    ]
    assert kinds == ["undecided", "refused", "failed"]


def test_first_placement_adds_and_is_no_move() -> None:
    effect = found(UNDEFINED, on("c1"), {})
    assert effect is not None
    assert (effect.kind, effect.before, effect.after) == ("adds", (), ("c1",))


def test_move_that_would_come_without_the_edit_is_pending_and_breaks_nothing() -> None:
    effect = found(on("c3"), on("c3"), HAS)
    assert effect is not None
    assert (effect.kind, effect.pending) == ("moves", True)
    emptied = found(on(), on(), HAS)
    assert emptied is not None
    assert (emptied.kind, emptied.pending, emptied.breaks) == ("nowhere", True, False)


def test_workload_that_waits_and_may_be_emptied_now_breaks_by_the_edit() -> None:
    effect = found(on(), on(evict=True), HAS)
    assert effect is not None
    assert (effect.kind, effect.pending, effect.breaks) == ("nowhere", False, True)
    moved = found(on("c3"), on("c3", evict=True), HAS)
    assert moved is not None
    assert moved.pending


def test_placement_that_cannot_be_read_is_somewhere() -> None:
    effect = found(NOW, on("c1"), {PLACEMENT: "mars"})
    assert effect is not None
    assert (effect.kind, effect.before) == ("moves", ("?",))


def test_every_cluster_but_some_is_spelt() -> None:
    everywhere = preferences("*")[:-2] + ',"c2":{"weight":0}}}'
    effect = found(NOW, on("c1"), {PLACEMENT: everywhere})
    assert effect is not None
    assert effect.before == ("*", "!c2")


FLEET = Inventory(frozenset(["c1", "c2", "c3"]), ({}, {}, {}))


def compared(now: Outcome, then: Outcome) -> Effect:
    current = Current("u", HAS)
    found = effect("replicasets", KEY, current, now, then, Placements(), inventory=FLEET)
    assert found is not None
    return found


def test_placement_on_unknown_clusters_alone_breaks_like_an_empty_one() -> None:
    found = compared(NOW, on("atlantis"))
    assert (found.kind, found.after, found.breaks) == ("nowhere", ("atlantis",), True)
    assert found.reason == "the fleet has no cluster 'atlantis' (nearest: c1, c2, c3)"
    assert not compared(on("atlantis"), on("atlantis")).breaks, "that is not the edit's doing"
    assert compared(on("atlantis"), on("atlantis", evict=True)).breaks


def test_placement_on_some_unknown_clusters_is_noted_once_for_all() -> None:
    found = [compared(NOW, on("c1", "c4")), compared(NOW, on("c3", "c5"))]
    assert [one.kind for one in found] == ["moves", "moves"]
    (note,) = unknown_clusters([*found, compared(NOW, on("c3"))], FLEET)
    assert note == (
        "2 would be placed on clusters of which some are unknown: the fleet has no cluster"
        " 'c4' (nearest: c1, c2, c3), 'c5' (nearest: c1, c2, c3)"
    )
    assert [*unknown_clusters(found, None)] == []
