"""Checks on the fleet and on the number of moves, which hold all moves or those of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kube_sync.guard.inventory import Inventory
from kube_sync.guard.limits import Limits
from kube_sync.guard.verdicts import Withheld
from kube_sync.runtime.freshness import Stale

Numbers = Mapping[str, int]  # by namespace; workloads with zero replicas do not count


NOT_KNOWN: Final = Withheld(
    "fleet", "it is not known which clusters there are", "the fleet is loaded again"
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The state of the fleet that the decisions were made on.

    `age`: seconds since it was known to be current, None if it never was. `stale`: the other source
    that has been stale for longest. `best`: the highest number of clusters seen; the caller lowers
    it when an operator approves a shrunk fleet (`Assessment.accepted`), and starts after a restart
    with the clusters that current placements name. `inventory`: the names of the clusters; None:
    placements cannot be compared with them. `unlisted`: they will be, once the clusters are listed.
    """

    age: float | None
    clusters: int
    best: int
    epoch_matches: bool
    stale: Stale | None = None
    inventory: Inventory | None = None
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """The holds on all moves or on those of a namespace, the number of moves, and of workloads.

    `accepted`: an operator approved the moves on a fleet of the present size, which becomes `best`.
    `nowhere`: the objects whose wanted placement has no cluster of the fleet.
    """

    holds: tuple[Withheld, ...]
    moves: int
    workloads: int
    accepted: bool = False
    nowhere: frozenset[object] = frozenset()


def assess_fleet(fleet: Fleet, limits: Limits, offer: str = "") -> Withheld | None:
    """Return why moves must not be decided on this fleet, or None if they may.

    `offer`: the name of the approval for a fleet that shrank, empty if no move needs one.
    """
    if fleet.age is None or not fleet.epoch_matches:
        return NOT_KNOWN
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
    """Return the inventory to compare placements with, None if the fleet is stale or empty."""
    if fleet.age is None or not fleet.epoch_matches or not fleet.clusters:
        return None
    late = max(fleet.age, 0.0 if fleet.stale is None else fleet.stale.age)
    return None if limits.stale is not None and late > limits.stale else fleet.inventory


def has_shrunk(fleet: Fleet, limits: Limits) -> bool:
    """Return whether so many clusters are gone that an operator has to approve it."""
    return fleet.clusters > 0 and fleet.best - fleet.clusters > limits.shrink * fleet.best


def is_mass_of_several(moves: Numbers, workloads: Numbers, limits: Limits) -> bool:
    """Return whether the moves exceed the limit, whichever single namespace is left out.

    So the moves of one namespace do not hold those of others, unless these are a mass by
    themselves; and further moves never release anything.
    """
    moving, number = sum(moves.values()), sum(workloads.values())
    return moving > allowed(number, limits) and all(
        moving - some > allowed(number - workloads.get(namespace, 0), limits)
        for namespace, some in moves.items()
    )


def namespaces_over(moves: Numbers, workloads: Numbers, limits: Limits) -> list[str]:
    """Return the namespaces whose moves exceed the limit."""
    return sorted(
        namespace
        for namespace, some in moves.items()
        if some > allowed(workloads.get(namespace, 0), limits)
    )


def mass(moves: int, workloads: int, offer: str, namespace: str | None = None) -> Withheld:
    """Return the hold of a mass of moves until `offer` is approved; None: of all namespaces."""
    where = "" if namespace is None else f" of namespace {namespace}"
    if namespace == "":
        where = " without a namespace"
    reason = f"{moves} of {workloads} workloads{where} would move"
    release = f"fewer would move, or approve {offer}"
    return Withheld("mass", reason, release, approve=offer, namespace=namespace)


def allowed(workloads: int, limits: Limits) -> float:
    """Return how many of `workloads` may move at once."""
    return max(limits.mass_floor, limits.mass_share * workloads)


def _held(reason: str, release: str, approve: str | None = None) -> Withheld:
    return Withheld("fleet", reason, release, approve=approve)
