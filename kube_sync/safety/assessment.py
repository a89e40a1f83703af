"""What is known of the fleet, and what that and the number of moves say of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from kube_sync.safety.limits import Limits
from kube_sync.safety.verdicts import Held


@dataclass(frozen=True, slots=True)
class Stale:
    """Something that the decisions stand on has not been current for `age` seconds, and why."""

    source: str
    age: float
    reason: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the decisions were made on.

    `age`: seconds since it was known to be as it is, None where it never was. `stale`: what else
    is not current, of all the one that is so for longest. `best`: the most clusters there were;
    whoever keeps it lowers it when an operator approves that some are gone
    (`Assessment.accepted`), and begins after a restart with the clusters that the placements in
    force name.
    """

    age: float | None
    clusters: int
    best: int
    epoch_matches: bool
    stale: Stale | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What holds all moves, none where they may go one by one; how many there are, of how many.

    `accepted`: an operator approved them on a fleet as small as it is now, which is its size then.
    """

    holds: tuple[Held, ...]
    moves: int
    workloads: int
    accepted: bool = False


def judge_fleet(fleet: Fleet, limits: Limits, offer: str = "") -> Held | None:
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


def has_shrunk(fleet: Fleet, limits: Limits) -> bool:
    """Tell whether so many clusters are gone that an operator has to say that they are."""
    return fleet.clusters > 0 and fleet.best - fleet.clusters > limits.shrink * fleet.best


def judge_mass(moves: int, workloads: int, limits: Limits, offer: str) -> Held | None:
    """Return why so many moves wait for the approval `offer`, None where they are few."""
    if moves <= allowed(workloads, limits):
        return None
    reason = f"{moves} of {workloads} workloads would move"
    return Held("mass", reason, f"fewer would move, or approve {offer}", approve=offer)


def allowed(workloads: int, limits: Limits) -> float:
    """Return how many moves at once are few."""
    return max(limits.mass_floor, limits.mass_share * workloads)


def _held(reason: str, release: str, approve: str | None = None) -> Held:
    return Held("fleet", reason, release, approve=approve)
