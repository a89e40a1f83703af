from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.remediation.plan import KEEP, Current, Nothing, Publish, Unusable, Wanted
from kube_sync.remediation.sinks.placement import (
    OWNER,
    clusters_of,
    kept,
    let_through,
    named,
    plan_placement,
)

TARGET = Current("u", {"other": "x"}, {"app": "web"}, "7")
NONE = kept(TARGET, None)


def decided(text: str | None, uid: str = "u") -> Wanted:
    return Wanted(uid, Decision({} if text is None else {PLACEMENT: text}), None, "p1")


def having(text: str, *, ours: bool = False) -> Current:
    return Current("u", {PLACEMENT: text}, ours=frozenset([PLACEMENT] if ours else []))


@pytest.mark.parametrize(
    ("clusters", "names"),
    [
        ({"a": {"weight": 1}, "b": {}}, {"a", "b"}),
        ({"a": {"weight": 0}, "b": {"weight": 0, "minReplicas": 1}}, {"b"}),
        ({"a": {"maxReplicas": 0}, "b": {"weight": 2, "maxReplicas": 0}, "c": {}}, {"c"}),
        ({"a": {"weight": 0, "minReplicas": 1, "maxReplicas": 0}}, set()),
        ({"a": {"maxReplicas": 1}, "b": {"weight": 1, "maxReplicas": None}}, {"a", "b"}),
        ({"*": {"maxReplicas": 0}, "a": {}}, {"a"}),
        ({"a": None}, {"a"}),
        ({}, set()),
        ({"*": {"weight": 0}, "a": {}}, {"a"}),
    ],
)
def test_clusters_that_may_get_a_replica_are_named(
    clusters: dict[str, object], names: set[str]
) -> None:
    assert clusters_of(json.dumps({"clusters": clusters})) == frozenset(names)


@pytest.mark.parametrize(
    "text", ['{"clusters":{"*":{}}}', '{"clusters":[]}', "{}", "[]", "eu", "[" * 2000]
)
def test_what_names_no_clusters_one_by_one_is_not_read(text: str) -> None:
    assert clusters_of(text) is None


def test_clusters_that_are_named_are_read_back() -> None:
    assert clusters_of(named(["us", "eu"])) == frozenset(["eu", "us"])
    assert clusters_of(named([])) == frozenset()


def test_what_a_sink_keeps_replaces_the_annotations_of_the_target() -> None:
    found = kept(TARGET, ["eu"], {HISTORY: "[]"}, "8")
    assert found.annotations == {PLACEMENT: named(["eu"]), HISTORY: "[]"}
    assert (found.uid, found.labels, found.ours) == ("u", TARGET.labels, frozenset([PLACEMENT]))
    assert (found.version, NONE.version) == ("8", "")
    assert (NONE.annotations, NONE.ours) == ({}, frozenset())


def test_a_placement_is_planned_by_the_names_of_its_clusters() -> None:
    step = plan_placement(decided('{"clusters":{"eu":{"weight":3}}}'), NONE)
    assert step == Publish("u", {PLACEMENT: named(["eu"])})
    assert plan_placement(decided('{"clusters":{"eu":{}}}'), kept(TARGET, ["eu"])) == Nothing()


def test_the_record_of_a_move_is_planned_with_its_placement() -> None:
    wanted = Wanted("u", Decision({PLACEMENT: named(["eu"])}), addition="{}")
    recorded = kept(TARGET, ["eu"], {ADDITION: "{}"})
    step = plan_placement(wanted, kept(TARGET, ["eu"]))
    assert step == Publish("u", {PLACEMENT: named(["eu"]), ADDITION: "{}"})
    assert plan_placement(wanted, recorded) == Nothing()
    assert plan_placement(replace(wanted, addition=KEEP), recorded) == Nothing()
    step = plan_placement(replace(wanted, addition=None), recorded)
    assert step == Publish("u", {PLACEMENT: named(["eu"]), ADDITION: None})


def test_a_placement_that_is_decided_no_more_is_taken_away() -> None:
    assert plan_placement(decided(None), NONE) == Nothing()
    step = plan_placement(decided(None), kept(TARGET, ["eu"], version="8"))
    assert step == Publish("u", {PLACEMENT: None}, version="8")


def test_a_placement_of_clusters_that_come_and_go_is_not_planned() -> None:
    step = plan_placement(decided('{"clusters":{"*":{}}}'), NONE)
    assert isinstance(step, Unusable)
    assert step.kind == "not_named"


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Wanted("u", None, "evaluation error"), "failed"),
        (Wanted("u", None), "undefined"),
        (Wanted("u", Decision(errors=("no",))), "errors"),
    ],
)
def test_without_a_usable_decision_what_is_there_stays(wanted: Wanted, kind: str) -> None:
    step = plan_placement(wanted, kept(TARGET, ["eu"]))
    assert isinstance(step, Unusable)
    assert step.kind == kind


def test_a_decision_on_an_earlier_object_is_none() -> None:
    assert plan_placement(decided(named(["eu"]), "earlier"), NONE) == Nothing()
    assert let_through(decided(named(["eu"]), "earlier"), TARGET, NONE) is None
    assert let_through(None, TARGET, NONE) is None


@pytest.mark.parametrize("has", [named(["us"]), '{"clusters":{"*":{}}}', "broken"])
def test_what_the_leading_sink_does_not_have_is_not_let_through(has: str) -> None:
    for lead in (TARGET, having(has)):
        held = let_through(decided(named(["eu"])), lead, NONE)
        assert isinstance(held, Unusable)
        assert held.kind == "not_applied"


def test_what_the_leading_sink_has_is_let_through_whatever_its_weights() -> None:
    wanted = decided(json.dumps({"clusters": {"eu": {"weight": 3}}}))
    assert let_through(wanted, having(named(["eu"])), NONE) is wanted


@pytest.mark.parametrize(
    "lead",
    [
        having(named(["eu"]), ours=True),
        Current("u", {PLACEMENT: "x", REQUESTED: json.dumps({PLACEMENT: None})}),
    ],
)
def test_a_decided_placement_is_not_the_owners_when_the_decision_ends(lead: Current) -> None:
    assert isinstance(let_through(decided(None), lead, kept(TARGET, ["eu"])), Unusable)


def test_an_owners_placement_is_followed_only_where_one_was_carried_out() -> None:
    lead = having(named(["us"]))
    for found, own in ((NONE, {}), (kept(TARGET, ["eu"]), dict(lead.annotations))):
        wanted = let_through(decided(None), lead, found)
        assert wanted == Wanted("u", Decision(own), None, OWNER)


def passing(text: str) -> Current:
    """Return a target in a step of a move that adds first."""
    return Current("u", {PLACEMENT: text, ADDITION: "{}"}, ours=frozenset([PLACEMENT]))


@pytest.mark.parametrize("here", [["eu", "us"], ["eu"]])
def test_both_steps_of_a_move_that_adds_first_are_let_through(here: list[str]) -> None:
    found = let_through(decided(named(["us"])), passing(named(here)), kept(TARGET, ["eu"]))
    assert found == replace(decided(named(here)), leaving=frozenset(["eu"]))


@pytest.mark.parametrize("text", [named(["evil"]), named([]), "x"])
def test_a_forged_step_of_a_move_publishes_no_cluster(text: str) -> None:
    found = let_through(decided(named(["us"])), passing(text), kept(TARGET, ["eu"]))
    assert isinstance(found, Unusable)
    assert found.kind == "not_applied"


@pytest.mark.parametrize(
    ("has", "there", "through"),
    [
        (["eu", "evil"], kept(TARGET, ["eu"]), ["eu"]),
        (["eu", "us"], NONE, ["us"]),
        (["ap", "eu", "us"], kept(TARGET, ["eu"]), ["eu", "us"]),
    ],
)
def test_a_step_of_a_move_brings_only_what_is_there_or_decided(
    has: list[str], there: Current, through: list[str]
) -> None:
    found = let_through(decided(named(["us"])), passing(named(has)), there)
    assert isinstance(found, Wanted)
    assert found.decision is not None
    assert clusters_of(found.decision.annotations[PLACEMENT]) == frozenset(through)
    assert found.leaving == frozenset(through) - {"us"}


def test_without_a_record_of_a_step_only_what_is_decided_is_let_through() -> None:
    lead = having(named(["eu", "us"]), ours=True)
    found = let_through(decided(named(["us"])), lead, kept(TARGET, ["eu"]))
    assert isinstance(found, Unusable)
