"""What is known of the fleet, and what that and the number of moves say of all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_sync.guard.inventory import Inventory
from kube_sync.guard.limits import Limits
from kube_sync.guard.verdicts import Withheld
from kube_sync.runtime.freshness import Stale

Numbers = Mapping[str, int]  # by namespace; workloads that want no replicas do not count


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the decisions were made on.

    `age`: seconds since it was known to be as it is, None where it never was. `stale`: what else
    is not current, of all the one that is so for longest. `best`: the most clusters there were;
    whoever keeps it lowers it when an operator approves that some are gone
    (`Assessment.accepted`), and begins after a restart with the clusters that the placements in
    force name. `inventory`: which clusters there are; None: placements cannot be compared with it.
    """

    age: float | None
    clusters: int
    best: int
    epoch_matches: bool
    stale: Stale | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What holds all moves, or those of a namespace; how many there are, of how many workloads.

    `accepted`: an operator approved them on a fleet as small as it is now, which is its size then.
    `nowhere`: the objects that would be placed on no cluster of the fleet.
    """

    holds: tuple[Withheld, ...]
    moves: int
    workloads: int
    accepted: bool = False
    nowhere: frozenset[object] = frozenset()


def judge_fleet(fleet: Fleet, limits: Limits, offer: str = "") -> Withheld | None:
    """Return why the fleet is nothing to move workloads by, None where it is.

    `offer` is the approval for one that shrank; empty: nothing is wanted that it could be for.
    """
    if fleet.age is None or not fleet.epoch_matches:
        return _held("it is not known which clusters there are", "the fleet is loaded again")
    if limits.stale is not None and fleet.age > limits.stale:
        reason = f"the fleet was last seen {fleet.age:.0f} s ago (limit {limits.stale:.0f} s)"
        return _held(reason, "the fleet is replicated again")
    if limits.stale is not None and fleet.stale is not None and fleet.stale.age > limits.stale:
        source, age = fleet.stale.source, f"{fleet.stale.age:.0f} s (limit {limits.stale:.0f} s)"
        reason = f"{source}: not current for {age}: {fleet.stale.reason}"
        return _held(reason, f"{source}: current again")
    if not fleet.clusters:
        return _held("there is no cluster", "a cluster is there")
    if has_shrunk(fleet, limits):
        reason = f"{fleet.clusters} of {fleet.best} clusters are left"
        approve = f", or approve {offer}" if offer else ""
        return _held(reason, f"the clusters are back{approve}", offer or None)
    return None


def current_inventory(fleet: Fleet, limits: Limits) -> Inventory | None:
    """Return what placements are compared with, None where the fleet is not current, or empty."""
    if fleet.age is None or not fleet.epoch_matches or not fleet.clusters:
        return None
    late = max(fleet.age, 0.0 if fleet.stale is None else fleet.stale.age)
    return None if limits.stale is not None and late > limits.stale else fleet.inventory


def has_shrunk(fleet: Fleet, limits: Limits) -> bool:
    """Tell whether so many clusters are gone that an operator has to say that they are."""
    return fleet.clusters > 0 and fleet.best - fleet.clusters > limits.shrink * fleet.best


def is_mass_of_several(moves: Numbers, workloads: Numbers, limits: Limits) -> bool:
    """Tell whether more would move than may at once, whichever one namespace is left out.

    So what is wanted of one namespace holds nothing of the others, unless these are a mass by
    themselves; and further moves never release anything.
    """
    moving, number = sum(moves.values()), sum(workloads.values())
    return moving > allowed(number, limits) and all(
        moving - some > allowed(number - workloads.get(namespace, 0), limits)
        for namespace, some in moves.items()
    )


def namespaces_over(moves: Numbers, workloads: Numbers, limits: Limits) -> list[str]:
    """Return the namespaces of which more would move than may at once."""
    return sorted(
        namespace
        for namespace, some in moves.items()
        if some > allowed(workloads.get(namespace, 0), limits)
    )


def mass(moves: int, workloads: int, offer: str, namespace: str | None = None) -> Withheld:
    """Return what holds so many moves until `offer` is approved; None: of all namespaces."""
    where = "" if namespace is None else f" of namespace {namespace}"
    if namespace == "":
        where = " without a namespace"
    reason = f"{moves} of {workloads} workloads{where} would move"
    release = f"fewer would move, or approve {offer}"
    return Withheld("mass", reason, release, approve=offer, namespace=namespace)


def allowed(workloads: int, limits: Limits) -> float:
    """Return how many moves at once are few, of so many workloads."""
    return max(limits.mass_floor, limits.mass_share * workloads)


def _held(reason: str, release: str, approve: str | None = None) -> Withheld:
    return Withheld("fleet", reason, release, approve=approve)
