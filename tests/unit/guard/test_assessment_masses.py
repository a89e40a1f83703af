"""Who is held when many moves are wanted at once: one namespace, or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import Allowed, Assessment, Change, Fleet, Guard, Limits, Tightening, Withheld
from kube_sync.guard.assessment import allowed, is_mass_of_several, namespaces_over
from kube_sync.guard.history import Entry
from kube_sync.guard.limits import Rate

WELL = Fleet(age=1, clusters=10, best=10, epoch_matches=True)
NOW = 1000.0
DEFAULT = Limits(mass_share=0.2, mass_floor=10)


def moves(**numbers: int) -> dict[str, Change]:
    """Return so many moves of each namespace, by a name that begins with it."""
    return {
        f"{namespace}/{number}": Change(namespace, "x", "y", frozenset("x"), frozenset("y"))
        for namespace, many in numbers.items()
        for number in range(many)
    }


class Tenants:
    """A guard, and how many workloads each namespace has."""

    def __init__(
        self, limits: Limits = DEFAULT, numbers: Mapping[str, int] | None = None, **workloads: int
    ) -> None:
        self.guard: Guard[str] = Guard(limits)
        self.workloads = {**(numbers or {}), **workloads}

    def consider(
        self, wanted: Mapping[str, Change], approved: Collection[str] = (), fleet: Fleet = WELL
    ) -> Assessment:
        both = {key: (change, ()) for key, change in wanted.items()}
        return self.guard.consider(both, fleet, self.workloads, approved, NOW)

    def goes(self, wanted: Mapping[str, Change]) -> Counter[str]:
        """Return how many go of each namespace, without that any does."""
        verdicts = {key: self.guard.admit(key, change, (), NOW) for key, change in wanted.items()}
        for key in wanted:
            self.guard.refund(key, NOW)
        return Counter(
            wanted[key].namespace for key, v in verdicts.items() if isinstance(v, Allowed)
        )

    def held(self, wanted: Mapping[str, Change], key: str) -> Withheld:
        found = self.guard.admit(key, wanted[key], (), NOW)
        assert isinstance(found, Withheld)
        return found


def test_one_tenant_over_its_share_waits_alone() -> None:
    tenants = Tenants(a=60, b=65)
    wanted = moves(a=26, b=1)
    (held,) = tenants.consider(wanted).holds
    assert tenants.goes(wanted) == {"b": 1}
    assert (held.kind, held.namespace) == ("mass", "a")
    assert held.reason == "26 of 60 workloads of namespace a would move"
    assert tenants.held(wanted, "a/3") == held


def test_every_tenant_over_its_share_waits_for_an_approval_of_its_own() -> None:
    tenants = Tenants(a=60, b=60, c=800)
    wanted = moves(a=20, b=20, c=5)
    one, other = tenants.consider(wanted).holds
    assert (one.namespace, other.namespace) == ("a", "b")
    assert one.approve
    assert one.approve != other.approve
    (left,) = tenants.consider(wanted, [one.approve]).holds
    assert left == other
    assert tenants.goes(wanted) == {"a": 20, "c": 5}


def test_approval_of_one_tenant_opens_nothing_for_another_that_comes_later() -> None:
    tenants = Tenants(a=60, b=60, c=800)
    (one,) = tenants.consider(moves(a=20)).holds
    wanted = moves(a=20, b=20)
    (other,) = tenants.consider(wanted, [one.approve or ""]).holds
    assert other.namespace == "b"
    assert tenants.goes(wanted) == {"a": 20}


def test_approval_of_one_tenant_counts_after_a_restart() -> None:
    tenants = Tenants(a=60, b=60, c=800)
    wanted = moves(a=20, b=20)
    one, other = tenants.consider(wanted).holds
    again = Tenants(a=60, b=60, c=800)
    assert again.consider(wanted, [one.approve or ""]).holds == (other,)
    assert again.goes(wanted) == {"a": 20}


def test_approval_that_is_asked_for_stays_the_same_for_each_tenant() -> None:
    tenants = Tenants(a=60, b=60, c=800)
    first = [held.approve for held in tenants.consider(moves(a=20, b=20)).holds]
    again = [held.approve for held in tenants.consider(moves(a=22, b=30)).holds]
    assert again == first
    third = tenants.consider(moves(a=22, b=45)).holds
    assert [held.approve == name for held, name in zip(third, first, strict=True)] == [True, False]


def test_many_tenants_have_names_that_stay_although_only_some_sets_are_remembered() -> None:
    spaces = [f"n{number}" for number in range(50)]
    tenants = Tenants(numbers=dict.fromkeys(spaces, 20), big=10_000)
    first = [held.approve for held in tenants.consider(moves(**dict.fromkeys(spaces, 11))).holds]
    assert len(set(first)) == len(spaces)
    wanted = moves(**dict.fromkeys(spaces, 12))
    assert [held.approve for held in tenants.consider(wanted).holds] == first
    assert not tenants.consider(wanted, [name or "" for name in first]).holds


def test_drip_over_many_tenants_is_a_mass_of_the_fleet() -> None:
    spaces = [f"n{number}" for number in range(500)]
    tenants = Tenants(numbers=dict.fromkeys(spaces, 1))
    wanted = moves(**dict.fromkeys(spaces[:102], 1))
    (held,) = tenants.consider(wanted).holds
    assert (held.namespace, held.reason) == (None, "102 of 500 workloads would move")
    assert not tenants.goes(wanted)
    assert not tenants.consider(wanted, [held.approve or ""]).holds
    assert not tenants.consider(moves(**dict.fromkeys(spaces[:100], 1))).holds


def test_several_tenants_over_their_share_together_hold_the_fleet() -> None:
    tenants = Tenants(a=60, b=60, c=5)
    wanted = moves(a=40, b=40, c=1)
    (held,) = tenants.consider(wanted).holds
    assert (held.namespace, held.reason) == (None, "81 of 125 workloads would move")
    assert not tenants.goes(wanted)


def test_only_tenant_there_is_can_be_over_its_share() -> None:
    tenants = Tenants(a=20)
    (held,) = tenants.consider(moves(a=11)).holds
    assert held.namespace == "a"


def test_mass_of_objects_without_a_namespace_says_so() -> None:
    tenants = Tenants(numbers={"": 20})
    (held,) = tenants.consider(moves(**{"": 11})).holds
    assert (held.namespace, held.reason) == (
        "",
        "11 of 20 workloads without a namespace would move",
    )


def test_workloads_without_replicas_are_no_part_of_a_mass_and_are_not_held_by_one() -> None:
    tenants = Tenants(a=60)
    idle = {key: replace(one, idle=True) for key, one in moves(a=60).items()}
    assert not tenants.consider(idle).holds
    wanted = {**moves(a=13), **{f"idle-{key}": one for key, one in idle.items()}}
    (held,) = tenants.consider(wanted).holds
    assert held.reason == "13 of 60 workloads of namespace a would move"
    assert tenants.goes(wanted) == {"a": 60}, "the idle ones"
    assert not tenants.consider(wanted, [held.approve or ""]).holds
    again = Tenants(a=60)
    assert not again.consider(wanted, [held.approve or ""]).holds, "after a restart too"
    assert again.goes(wanted) == {"a": 73}


def test_workload_that_is_scaled_up_is_weighed_before_it_moves() -> None:
    tenants = Tenants(a=60)
    wanted = {key: replace(one, idle=True) for key, one in moves(a=13).items()}
    tenants.consider(wanted)
    wanted["a/1"] = replace(wanted["a/1"], idle=False)
    assert tenants.held(wanted, "a/1").kind == "unseen"


def test_workloads_without_replicas_wait_for_a_fleet_that_is_not_to_be_trusted() -> None:
    tenants = Tenants(replace(DEFAULT, shrink=0.3), a=60)
    wanted = {key: replace(one, idle=True) for key, one in moves(a=13).items()}
    (held,) = tenants.consider(wanted, fleet=replace(WELL, clusters=5)).holds
    assert tenants.held(wanted, "a/1").kind == "fleet"
    shrunk = replace(WELL, clusters=5)
    assert tenants.consider(wanted, [held.approve or ""], shrunk).accepted
    assert tenants.goes(wanted) == {"a": 13}


def test_shrunk_fleet_and_a_mass_of_one_tenant_are_asked_for_apart() -> None:
    tenants = Tenants(replace(DEFAULT, shrink=0.3), a=60, b=60)
    wanted, shrunk = moves(a=13, b=1), replace(WELL, clusters=5)
    for _ in range(2):
        fleet, mass = tenants.consider(wanted, fleet=shrunk).holds
        assert (fleet.kind, mass.kind, mass.namespace) == ("fleet", "mass", "a")
    tenants.consider(wanted, [mass.approve or ""], shrunk)
    assert not tenants.goes(wanted)
    assert not tenants.consider(wanted, [fleet.approve or ""], shrunk).holds
    assert tenants.goes(wanted) == {"a": 13, "b": 1}


def test_policy_that_lowers_the_share_lowers_it_for_each_tenant() -> None:
    tenants = Tenants(a=60, b=60)
    wanted = moves(a=4, b=1)
    assert not tenants.consider(wanted).holds
    tenants.guard.tighten(Tightening(mass_floor=0, mass_share=0.05), {}, NOW)
    (held,) = tenants.consider(wanted).holds
    assert held.namespace == "a"
    assert tenants.goes(wanted) == {"b": 1}


_spaces = st.sampled_from("abcd")
_limits = st.builds(
    Limits, mass_share=st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]), mass_floor=st.integers(0, 6)
)
# How many workloads of each namespace would move, and how many stay.
_tenants = st.dictionaries(_spaces, st.tuples(st.integers(0, 12), st.integers(0, 20)), min_size=1)
Numbers = dict[str, int]


def _apart(found: dict[str, tuple[int, int]]) -> tuple[Numbers, Numbers]:
    moving = {namespace: some for namespace, (some, _) in found.items() if some}
    return moving, {namespace: sum(both) for namespace, both in found.items()}


@given(_limits, _tenants)
def test_no_more_goes_unasked_than_the_fleet_s_share_and_a_floor(
    limits: Limits, found: dict[str, tuple[int, int]]
) -> None:
    moving, workloads = _apart(found)
    tenants, wanted = Tenants(limits, workloads), moves(**moving)
    tenants.consider(wanted)
    going = tenants.goes(wanted)
    assert sum(going.values()) <= allowed(sum(workloads.values()), limits) + limits.mass_floor
    assert all(many <= allowed(workloads[name], limits) for name, many in going.items())


@given(_limits, _tenants, _spaces, st.integers(0, 30))
def test_what_one_tenant_wants_holds_no_other_unless_the_others_are_a_mass(
    limits: Limits, found: dict[str, tuple[int, int]], attacker: str, wants: int
) -> None:
    found[attacker] = (wants, found.get(attacker, (0, 0))[1])
    moving, workloads = _apart(found)
    others = {name: many for name, many in moving.items() if name != attacker}
    beside = sum(many for name, many in workloads.items() if name != attacker)
    tenants, wanted = Tenants(limits, workloads), moves(**moving)
    tenants.consider(wanted)
    going = tenants.goes(wanted)
    if sum(others.values()) <= allowed(beside, limits):
        free = {n: many for n, many in others.items() if many <= allowed(workloads[n], limits)}
        assert {n: many for n, many in going.items() if n != attacker} == free


@given(_limits, _tenants, _spaces)
def test_one_more_move_releases_nothing(
    limits: Limits, found: dict[str, tuple[int, int]], where: str
) -> None:
    moving, workloads = _apart(found)
    workloads[where] = workloads.get(where, 0) + 1  # of a workload that was there before
    more = {**moving, where: moving.get(where, 0) + 1}
    assert is_mass_of_several(more, workloads, limits) >= is_mass_of_several(
        moving, workloads, limits
    )
    assert set(namespaces_over(more, workloads, limits)) >= set(
        namespaces_over(moving, workloads, limits)
    )
    before, after = Tenants(limits, workloads), Tenants(limits, workloads)
    few, many = moves(**moving), moves(**more)
    before.consider(few)
    after.consider(many)
    went, goes = before.goes(few), after.goes(many)
    assert all(goes[name] <= went[name] for name in goes if name != where)


@given(_limits, _tenants, st.data())
def test_approval_of_a_tenant_lets_through_its_own_moves_alone(
    limits: Limits, found: dict[str, tuple[int, int]], data: st.DataObject
) -> None:
    moving, workloads = _apart(found)
    tenants, wanted = Tenants(limits, workloads), moves(**moving)
    held = [one for one in tenants.consider(wanted).holds if one.namespace is not None]
    before = tenants.goes(wanted)
    given_ = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
    tenants.consider(wanted, [one.approve or "" for one in given_])
    opened = {one.namespace for one in given_}
    assert tenants.goes(wanted) == {
        name: many for name, many in moving.items() if name in opened or before[name]
    }


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_what_nobody_wants_is_no_mass(share: float) -> None:
    assert not is_mass_of_several({}, {}, Limits(mass_share=share, mass_floor=0))


def test_workloads_without_replicas_take_no_move_from_others_and_wait_for_each_other() -> None:
    """Anybody can make thousands of them."""
    one = Rate(60, 5)
    tenants = Tenants(Limits(one, Rate(60, 8), Rate(60, 5)), a=0, b=100, c=100)
    idle = {key: replace(some, idle=True) for key, some in moves(a=100).items()}
    wanted = {**idle, **moves(b=3, c=3)}
    tenants.consider(wanted)
    assert tenants.goes(wanted) == {"a": 5, "b": 3, "c": 2}
    *_, held = [tenants.guard.admit(f"a/{n}", idle[f"a/{n}"], (), NOW) for n in range(6)]
    assert isinstance(held, Withheld)
    assert held.reason == "enough moves of workloads without replicas for now"


def test_workloads_without_replicas_are_bounded_in_each_namespace_and_in_all() -> None:
    tenants = Tenants(Limits(Rate(60, 5), Rate(60, 3)), a=0, b=0)
    idle = {key: replace(some, idle=True) for key, some in moves(a=9, b=9).items()}
    tenants.consider(idle)
    assert tenants.goes(idle) == {"a": 3, "b": 2}


def test_after_a_restart_workloads_without_replicas_have_no_new_budget() -> None:
    tenants = Tenants(Limits(Rate(60, 5)), a=0)
    tenants.guard.recall(
        {f"old-{n}": ("a", (Entry(int(NOW), "x", ("x",)),)) for n in range(5)}, NOW
    )
    idle = {key: replace(some, idle=True) for key, some in moves(a=9).items()}
    tenants.consider(idle)
    assert tenants.goes(idle) == {}
