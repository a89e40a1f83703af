"""When a canary begins, what halts it, and what outlives the process that decided that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import policy_key
from kube_sync.kube.staging import MAX_BREAKS, MAX_MOVES, NAMESPACES, SHARE
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side
from kube_sync.policies.staging.canary import CanaryKeeper, Terms, terms_of
from kube_sync.policies.staging.lanes import Counted
from kube_sync.policies.staging.promotion import Limits
from kube_sync.replicator.differences import KINDS

PLACE = ObjectKey("p", "place")
SIDE = Side("p/place", "0.1")
OF = "of"


def canary(
    status: str | None = None,
    name: str = "place-candidate",
    source: str = "package main",
    born: str = "1",
    terms: Mapping[str, str] | None = None,
) -> PolicyMap:
    key = ObjectKey("p", name)
    said = {SHARE: "0.1"} if terms is None else terms
    return PolicyMap(key, "1", {f"{key}/a.rego": source}, status, born, "canary", PLACE, said)


def counts(of: object = OF, objects: int = 100, unknown: int = 0, **found: int) -> Counted:
    return Counted(objects, {**dict.fromkeys(KINDS, 0), **found}, unknown, of)


class World:
    """One keeper after another, and the status that each finds on the ConfigMap."""

    def __init__(self) -> None:
        self.status: str | None = None
        self.keeper = CanaryKeeper()

    def look(self, **changes: Any) -> None:
        self.keeper.look([canary(self.status, **changes)])

    def judge(self, counted: Counted | None) -> None:
        self.keeper.counted(counted)
        self.keeper.judge(OF)
        assert self.keeper.policy is not None
        self.status = self.keeper.status(self.keeper.policy, OF)

    @property
    def said(self) -> Any:
        return json.loads(self.status or "null")


@pytest.fixture
def world() -> World:
    found = World()
    found.look()
    return found


def test_terms_are_what_annotations_say_with_the_limits_of_a_promotion_else() -> None:
    assert terms_of(canary()) == Terms(SIDE, Limits())
    said = {SHARE: "0.5", NAMESPACES: "a, b", MAX_BREAKS: "3", MAX_MOVES: "0.25"}
    side = Side("p/place", "0.5", frozenset({"a", "b"}))
    assert terms_of(canary(terms=said)) == Terms(side, Limits(3, 0.25))


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {SHARE: "2"},
        {SHARE: "0.1", NAMESPACES: "No"},
        {SHARE: "0.1", MAX_BREAKS: "-1"},
        {SHARE: "0.1", MAX_BREAKS: "some"},
        {SHARE: "0.1", MAX_MOVES: "10%"},
    ],
)
def test_canary_on_terms_that_cannot_be_read_is_none_and_says_so(terms: dict[str, str]) -> None:
    keeper, policy = CanaryKeeper(), canary(terms=terms)
    keeper.look([policy])
    assert (keeper.policy, keeper.wanted) == (None, None)
    ((cause,),) = keeper.failures.values()
    assert cause["message"].startswith("it is no canary: ")


def test_oldest_is_the_canary_and_the_others_say_what_they_wait_for() -> None:
    keeper = CanaryKeeper()
    bad = canary(name="a", born="0", terms={})
    older, younger = canary(name="z", born="1"), canary(name="b", born="2")
    keeper.look([younger, older, bad])
    assert keeper.policy is older
    (cause,) = keeper.failures[younger.key]
    assert cause["message"].startswith("it waits for ConfigMap p/z")
    keeper.look([younger])
    assert (keeper.policy, keeper.failures) == (younger, {})


@pytest.mark.parametrize("staged", [None, 7, {"effect": 7}, {"stage": "canary", "halted": []}])
def test_placementpolicy_whose_status_says_something_else_is_counted_first(staged: object) -> None:
    key, source = policy_key(ObjectKey("p", "new")), {"a.rego": "package main"}
    place = policy_key(PLACE)
    policy = PlacementPolicy(key, "1", "uid", 1, "1", "canary", source, stands_for=place)
    keeper = CanaryKeeper()
    keeper.look([replace(policy, staged=staged, terms={SHARE: "0.1"})])
    assert keeper.effect is None
    assert keeper.wanted == Side("p/place.PlacementPolicy", "0.1")


def test_nothing_is_decided_before_it_was_counted(world: World) -> None:
    world.judge(None)
    assert (world.keeper.effect, world.said["effect"]) == (None, None)
    world.judge(counts(of="something else"))
    assert world.keeper.effect is None
    assert "objects" not in world.said
    world.judge(counts(unknown=2))
    assert world.keeper.effect is None
    world.judge(counts(unknown=1, moves=10))
    assert world.keeper.effect == SIDE
    assert world.said["effect"] == {"share": "0.1", "namespaces": []}
    assert (world.said["objects"], world.said["moves"]) == (100, 10)
    assert REGISTRY.get_sample_value("kube_sync_canary_in_effect") == 1


@pytest.mark.parametrize(
    ("effect", "number", "why"),
    [
        ("failed", 1, "1 would be failed, at most 0 may"),
        ("refused", 1, "1 would be refused, at most 0 may"),
        ("undecided", 1, "1 would be undecided, at most 0 may"),
        ("nowhere", 1, "1 would be nowhere, at most 0 may"),
        ("moves", 11, "11 of 100 would move, at most 10% may"),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_canary_halts_at_each_limit(
    world: World, effect: str, number: int, why: str, *, begun: bool
) -> None:
    if begun:
        world.judge(counts())
    world.judge(counts(**{effect: number}))
    assert world.keeper.effect is None
    assert world.keeper.wanted is None
    assert (world.said["status"], world.said["effect"]) == ("halted", None)
    assert world.said["halted"]["why"] == [why]
    assert world.said[effect] == number
    assert REGISTRY.get_sample_value("kube_sync_canary_halted") == 1
    assert REGISTRY.get_sample_value("kube_sync_canary_in_effect") == 0


def test_what_changes_without_breaking_or_moving_halts_nothing(world: World) -> None:
    world.judge(counts(adds=100, changes=100, moves=10))
    assert world.keeper.effect == SIDE


def test_what_halted_stays_halted_after_a_restart_until_it_is_edited(world: World) -> None:
    world.judge(counts(failed=1))
    world.keeper = CanaryKeeper()
    world.look()
    world.judge(counts())
    assert world.keeper.effect is None
    assert world.said["halted"]["why"] == ["1 would be failed, at most 0 may"]
    world.look(source="package main # mended")
    assert world.keeper.wanted == SIDE
    world.judge(counts())
    assert world.keeper.effect == SIDE


def test_what_halted_is_tried_again_on_other_limits(world: World) -> None:
    world.judge(counts(failed=1))
    world.look(terms={SHARE: "0.2"})
    assert world.keeper.wanted is None  # a larger share makes nothing of it better
    world.look(terms={SHARE: "0.1", MAX_BREAKS: "1"})
    world.judge(counts(failed=1))
    assert world.keeper.effect == SIDE
    assert REGISTRY.get_sample_value("kube_sync_canary_halted") == 0


def test_what_another_replica_halted_is_halted_here(world: World) -> None:
    world.judge(counts())
    other = World()
    other.look()
    other.judge(counts(moves=50))
    world.status = other.status
    world.look()
    assert world.keeper.effect is None


def test_status_of_before_it_halted_begins_nothing_again(world: World) -> None:
    """The write of the new one is under way, or refused."""
    world.judge(counts())
    before = world.status
    world.judge(counts(failed=1))
    world.status = before
    world.look()
    assert (world.keeper.effect, world.keeper.wanted) == (None, None)


def test_what_decided_decides_from_the_outset_after_a_restart(world: World) -> None:
    """Counted anew first, its objects would go back for a while."""
    world.judge(counts())
    world.keeper = CanaryKeeper()
    world.look()
    assert world.keeper.effect == SIDE


@pytest.mark.parametrize(
    "change",
    [{"source": "package main # new"}, {"name": "other"}],
)
def test_what_decided_in_other_words_or_by_another_name_is_counted_first(
    world: World, change: dict[str, str]
) -> None:
    world.judge(counts())
    world.keeper = CanaryKeeper()
    world.look(**change)
    assert world.keeper.effect is None
    world.status = "no json"
    world.look()
    assert world.keeper.effect is None


def test_edit_takes_a_canary_out_until_it_is_counted(world: World) -> None:
    world.judge(counts())
    world.look(source="package main # new")
    assert world.keeper.effect is None


def test_larger_share_decides_once_it_is_counted_and_the_smaller_one_until_then(
    world: World,
) -> None:
    world.judge(counts())
    world.look(terms={SHARE: "0.2"})
    assert (world.keeper.effect, world.keeper.wanted) == (SIDE, Side("p/place", "0.2"))
    # A new process knows both.
    world.keeper = CanaryKeeper()
    world.look(terms={SHARE: "0.2"})
    assert world.keeper.effect == SIDE
    world.judge(counts())
    assert world.keeper.effect == Side("p/place", "0.2")


def test_canary_that_goes_is_measured_no_more(world: World) -> None:
    world.judge(counts(failed=1))
    world.keeper.look([])
    assert world.keeper.policy is None
    assert REGISTRY.get_sample_value("kube_sync_canary_halted") == 0
