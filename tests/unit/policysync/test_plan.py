"""Works are made, changed and removed exactly as needed; what nobody knows of stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import Copy, CopyKey, Placed
from kube_sync.policysync.desired import Desired, Placement, desired
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.plan import Apply, MarkForRemoval, Plan, Remove, Step, plan
from kube_sync.policysync.targets import Target, Targets, resolve_targets
from tests.fakes.syncing import (
    GATEWAY,
    OTHER,
    POLICY,
    copies,
    gateway,
    hub,
    policy,
    ref,
    source,
    there,
)

NOW, GRACE = 1000.0, 600.0
NOBODY_KNOWS = Placement(problem="x")
TWO = policy(ref(), ref("other-gateway"))


def key(cluster: str) -> CopyKey:
    return CopyKey(POLICY, cluster)


def on(*clusters: str) -> Placement:
    return Placement(frozenset(clusters))


def want(
    placements: Mapping[ObjectKey, Placement],
    placed: Mapping[str, Placed] | None = None,
    body: dict[str, Any] | None = None,
) -> Desired:
    """Return what is wanted of a policy whose Gateways are where `placements` say."""
    body = policy() if body is None else body
    found = resolve_targets(POLICY, "AuthPolicy", body, hub(gateway(), gateway(OTHER)))
    return desired(source(body), found, placements, placed or {}, Downstream())


def do(steps: Iterable[Step], placed: Mapping[str, Placed]) -> dict[str, Placed]:
    """Return what is placed once the steps are done."""
    after = dict(placed)
    for step in steps:
        match step:
            case Apply(copy):
                names = copy.body["metadata"]["annotations"]["kube-sync.io/gateways"].split(",")
                gateways = frozenset(ObjectKey(*name.split("/")) for name in names)
                after[copy.key.cluster] = Placed(copy.key, copy.digest, None, None, gateways)
            case MarkForRemoval(one, at):
                after[one.cluster] = replace(after[one.cluster], remove_after=at)
            case Remove(one):
                del after[one.cluster]
    return after


def steps(wanted: Desired | None, placed: Mapping[str, Placed], **more: Any) -> tuple[Step, ...]:
    return plan(wanted, placed, **{"now": NOW, "grace": GRACE, **more}).steps


def placed(*clusters: str, **more: Any) -> dict[str, Placed]:
    return {c: there(copy, **more) for c, copy in copies(*clusters).items()}


def test_a_policy_comes_to_every_cluster_of_its_gateway() -> None:
    wanted = want({GATEWAY: on("c2", "c1")})
    assert [step.key.cluster for step in steps(wanted, {})] == ["c1", "c2"]
    assert wanted.concerned


def test_what_is_as_it_should_be_is_not_touched() -> None:
    wanted = want({GATEWAY: on("c1", "c2")})
    assert plan(wanted, placed("c1", "c2"), now=NOW, grace=GRACE) == Plan()


def test_only_what_differs_is_applied() -> None:
    found = placed("c1", "c2")
    found["c2"] = replace(found["c2"], digest="other")
    (step,) = steps(want({GATEWAY: on("c1", "c2")}), found)
    assert isinstance(step, Apply)
    assert step.key == key("c2")


def test_a_cluster_that_the_placement_gives_up_keeps_its_copy_for_the_grace() -> None:
    found = plan(want({GATEWAY: on("c1")}), placed("c1", "c2"), now=NOW, grace=GRACE)
    assert found == Plan((MarkForRemoval(key("c2"), NOW + GRACE),), NOW + GRACE)


def test_a_copy_that_leaves_is_left_alone_until_it_is_due() -> None:
    leaving = placed("c2", remove_after=NOW + 5)
    wanted = want({GATEWAY: on()})
    assert plan(wanted, leaving, now=NOW, grace=GRACE) == Plan((), NOW + 5)
    assert plan(wanted, leaving, now=NOW + 5, grace=GRACE) == Plan((Remove(key("c2")),))


def test_a_cluster_that_comes_back_within_the_grace_keeps_its_copy() -> None:
    (step,) = steps(want({GATEWAY: on("c2")}), placed("c2", remove_after=NOW + 5))
    assert isinstance(step, Apply)
    assert do([step], placed("c2"))["c2"].remove_after is None


def test_without_a_grace_it_goes_at_once() -> None:
    assert steps(want({GATEWAY: on()}), placed("c1"), grace=0.0) == (Remove(key("c1")),)


def test_a_mark_far_beyond_the_grace_is_made_anew() -> None:
    """A clock that went wrong would keep the copy for ever."""
    far = placed("c1", remove_after=NOW + 10 * GRACE)
    assert steps(want({GATEWAY: on()}), far) == (MarkForRemoval(key("c1"), NOW + GRACE),)
    near = placed("c1", remove_after=NOW + GRACE + 30)
    assert steps(want({GATEWAY: on()}), near) == ()


def test_the_copies_of_a_deleted_policy_go_at_once() -> None:
    found = placed("c1", "c2") | placed("c3", remove_after=NOW + 5)
    removed = tuple(Remove(key(c)) for c in ("c1", "c2", "c3"))
    assert plan(None, found, now=NOW, grace=GRACE) == Plan(removed)


def test_a_cluster_that_is_gone_gets_nothing_and_keeps_nothing() -> None:
    gone = frozenset(["c1", "c2", "c9"])
    wanted = want({GATEWAY: on("c1", "c3", "c9")})
    assert steps(wanted, placed("c1", "c2", "c3"), gone=gone) == (
        Remove(key("c1")),
        Remove(key("c2")),
    )


def test_a_reference_that_moves_to_another_gateway_moves_the_copies_at_once() -> None:
    moved = want(
        {GATEWAY: on("c1", "c2"), OTHER: on("c2", "c3")},
        placed("c1", "c2"),
        policy(ref("other-gateway")),
    )
    applied, new, removed = steps(moved, placed("c1", "c2"))
    assert isinstance(applied, Apply)
    assert isinstance(new, Apply)
    assert (applied.key, new.key, removed) == (key("c2"), key("c3"), Remove(key("c1")))


def test_a_policy_that_refers_to_no_gateway_any_more_leaves_at_once() -> None:
    turned = want({GATEWAY: on("c1")}, placed("c1"), policy(ref("r", "HTTPRoute")))
    assert steps(turned, placed("c1")) == (Remove(key("c1")),)
    assert not turned.concerned


def test_a_gateway_that_is_gone_leaves_the_copies_for_the_grace() -> None:
    found = resolve_targets(POLICY, "AuthPolicy", policy(), hub(gateway(OTHER)))
    wanted = desired(source(), found, {}, placed("c1"), Downstream())
    assert steps(wanted, placed("c1")) == (MarkForRemoval(key("c1"), NOW + GRACE),)


def test_a_kind_that_is_not_synced_any_more_leaves_for_the_grace() -> None:
    found = resolve_targets(POLICY, "AuthPolicy", policy(), hub(syncs=False))
    wanted = desired(source(), found, {GATEWAY: on("c1")}, placed("c1"), Downstream())
    assert steps(wanted, placed("c1")) == (MarkForRemoval(key("c1"), NOW + GRACE),)


@pytest.mark.parametrize("placements", [{GATEWAY: NOBODY_KNOWS}, {}])
def test_a_decision_that_vanished_empties_nothing(placements: Any) -> None:
    found = placed("c1", "c2")
    wanted = want(placements, found)
    assert steps(wanted, found) == ()
    assert wanted.problems
    assert wanted.concerned


def test_what_is_kept_without_a_decision_is_kept_up_to_date() -> None:
    found = placed("c1")
    edited = {**policy(), "spec": {"targetRef": ref(), "rules": {"a": 2}}}
    (step,) = steps(want({GATEWAY: NOBODY_KNOWS}, found, edited), found)
    assert isinstance(step, Apply)
    assert step.copy.body["spec"]["rules"] == {"a": 2}


def test_what_left_before_the_decision_vanished_goes_when_it_is_due() -> None:
    found = placed("c1", remove_after=NOW)
    assert steps(want({GATEWAY: NOBODY_KNOWS}, found), found) == (Remove(key("c1")),)


def test_parameters_that_cannot_be_read_empty_nothing() -> None:
    found = resolve_targets(POLICY, "AuthPolicy", policy(), hub(syncs=None))
    wanted = desired(source(), found, {GATEWAY: on("c9")}, placed("c1"), Downstream())
    assert steps(wanted, placed("c1")) == ()
    assert "cannot be read" in wanted.problems[0]


def test_a_policy_that_cannot_be_read_empties_nothing() -> None:
    broken: list[dict[str, Any]] = [
        {**policy(), "spec": 1},
        policy(labels=[]),
        policy(creationTimestamp=1),
    ]
    for body in broken:
        wanted = want({GATEWAY: on("c9")}, placed("c1"), body)
        assert steps(wanted, placed("c1")) == ()
        assert "cannot be read" in wanted.problems[0]
        assert wanted.concerned
        assert not want({GATEWAY: on()}, {}, {**policy(), "spec": 1}).concerned


def test_a_copy_of_no_known_gateway_stays_while_something_is_unknown() -> None:
    nameless = {c: replace(one, gateways=frozenset()) for c, one in placed("c1").items()}
    assert steps(want({GATEWAY: NOBODY_KNOWS}, nameless), nameless) == ()
    assert steps(want({GATEWAY: on()}, nameless), nameless) == (
        MarkForRemoval(key("c1"), NOW + GRACE),
    )


def test_a_cluster_that_is_gone_keeps_nothing_even_if_nobody_knows() -> None:
    found = placed("c1")
    wanted = want({GATEWAY: NOBODY_KNOWS}, found)
    assert steps(wanted, found, gone=frozenset(["c1"])) == (Remove(key("c1")),)


def refs_of(wanted: Desired) -> dict[str, list[str]]:
    return {
        cluster: [one["name"] for one in copy.body["spec"]["targetRefs"]]
        for cluster, copy in wanted.copies.items()
    }


def test_each_cluster_has_the_references_to_its_own_gateways() -> None:
    wanted = want({GATEWAY: on("c1", "c2"), OTHER: on("c2", "c3")}, {}, TWO)
    assert refs_of(wanted) == {
        "c1": ["my-gateway"],
        "c2": ["my-gateway", "other-gateway"],
        "c3": ["other-gateway"],
    }


def test_a_gateway_of_an_unknown_place_stays_where_it_was_and_the_other_moves() -> None:
    before = do(steps(want({GATEWAY: on("c1", "c2"), OTHER: on("c2")}, {}, TWO), {}), {})
    wanted = want({GATEWAY: on("c3"), OTHER: NOBODY_KNOWS}, before, TWO)
    assert refs_of(wanted) == {"c2": ["other-gateway"], "c3": ["my-gateway"]}
    assert steps(wanted, before)[-1] == MarkForRemoval(key("c1"), NOW + GRACE)
    assert wanted.problems == (f"Gateway {OTHER}: x",)


def test_two_references_to_one_gateway_are_both_kept() -> None:
    twice = policy(ref(sectionName="a"), ref(sectionName="b"))
    wanted = want({GATEWAY: on("c1")}, {}, twice)
    assert refs_of(wanted) == {"c1": ["my-gateway", "my-gateway"]}
    assert want({GATEWAY: NOBODY_KNOWS}, {}, twice).problems == (f"Gateway {GATEWAY}: x",)


# Whatever is placed and whatever is wanted.

CLUSTERS = ["c1", "c2", "c3", "c4"]
WHERE = st.one_of(st.just(NOBODY_KNOWS), st.frozensets(st.sampled_from(CLUSTERS)).map(Placement))
BODIES = st.sampled_from([policy(), policy(ref("other-gateway")), TWO, {**policy(), "spec": 1}])
LEAVING = st.one_of(st.none(), st.floats(NOW - 900, NOW + 2000))


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Placed]:
    """Return what an earlier world has left behind, and what somebody made of it."""
    before = {GATEWAY: on(*draw(st.sets(st.sampled_from(CLUSTERS)))), OTHER: on("c1", "c4")}
    found = do(steps(want(before, {}, draw(BODIES)), {}), {})
    for cluster in sorted(found):
        one = replace(found[cluster], remove_after=draw(LEAVING))
        if draw(st.booleans()):
            one = replace(one, digest="edited")
        if draw(st.booleans()):
            one = replace(one, gateways=frozenset())
        found[cluster] = one
    return found


@given(
    found=worlds(),
    one=WHERE,
    other=WHERE,
    body=BODIES,
    grace=st.sampled_from([0.0, GRACE]),
    deleted=st.booleans(),
)
def test_a_plan_that_is_done_leaves_nothing_to_do_until_it_says(
    found: dict[str, Placed],
    one: Placement,
    other: Placement,
    body: dict[str, Any],
    grace: float,
    *,
    deleted: bool,
) -> None:
    def look(at: Mapping[str, Placed], now: float) -> tuple[Desired | None, Plan]:
        wanted = None if deleted else want({GATEWAY: one, OTHER: other}, at, body)
        return wanted, plan(wanted, at, now=now, grace=grace)

    wanted, first = look(found, NOW)
    after = do(first.steps, found)
    again, second = look(after, NOW)
    assert second.steps == ()
    assert second.plan_again_at == first.plan_again_at
    if first.plan_again_at is not None:
        assert first.plan_again_at > NOW
        after = do(look(after, first.plan_again_at)[1].steps, after)
    known: Mapping[str, Copy] = {} if wanted is None else wanted.copies
    stays = set() if again is None else again.copies.keys() | again.uncertain
    assert known.keys() <= after.keys()
    # No orphan: what is left is wanted, unknown, or on its way out.
    assert all(c in stays or at.remove_after is not None for c, at in after.items())


@given(worlds(), WHERE, WHERE, BODIES)
def test_no_plan_touches_what_is_right_or_unknown(
    found: dict[str, Placed], one: Placement, other: Placement, body: dict[str, Any]
) -> None:
    wanted = want({GATEWAY: one, OTHER: other}, found, body)
    made = steps(wanted, found)
    touched = [step.key.cluster for step in made]
    assert len(touched) == len(set(touched))
    for cluster, at in found.items():
        copy = wanted.copies.get(cluster)
        right = copy is not None and (at.digest, at.remove_after) == (copy.digest, None)
        assert not (cluster in touched and (right or cluster in wanted.uncertain))
    assert all(step.key.cluster in wanted.copies for step in made if isinstance(step, Apply))


@given(worlds())
def test_nothing_is_removed_while_nobody_knows(found: dict[str, Placed]) -> None:
    stays = {c: replace(one, remove_after=None) for c, one in found.items()}
    wanted = want({GATEWAY: NOBODY_KNOWS, OTHER: NOBODY_KNOWS}, stays, TWO)
    assert all(isinstance(step, Apply) for step in steps(wanted, stays))


def test_a_target_that_nobody_has_looked_up_is_unknown() -> None:
    made = desired(source(), Targets((Target(0, GATEWAY),)), {}, {}, Downstream())
    assert made.problems == (f"Gateway {GATEWAY}: its placement is not known yet",)


def test_a_refused_reference_makes_no_copy_and_takes_none_away() -> None:
    found = Targets((Target(0, GATEWAY, refused="x"),), frozenset([GATEWAY]))

    def wanted(*clusters: str, there: Mapping[str, Placed]) -> Desired:
        return desired(source(), found, {GATEWAY: on(*clusters)}, there, Downstream())

    assert wanted("c1", "c2", there={}).refused == ("x",)
    assert not wanted("c1", "c2", there={}).copies
    before = placed("c1")
    assert list(wanted("c1", "c2", there=before).copies) == ["c1"]
    assert steps(wanted("c1", "c2", there=before), before) == ()
    assert steps(wanted("c2", there=before), before) == (MarkForRemoval(key("c1"), NOW + GRACE),)
    assert list(wanted(there=before).copies) == []
