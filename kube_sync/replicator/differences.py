"""Classify how a second decision on a workload differs from the one in force, as `plan` does. Pure.

Invariant: each workload is assumed to have what is decided for it. So if nothing is pending or
held, these are the effects that `kube-sync plan` announces for the same edit, and otherwise those
once everything is carried out. If no usable decision is in force, a placement is a first one.
"""

from __future__ import annotations

from typing import Final, Literal

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import ADDITION, HISTORY, Change, Inventory, Placements, compare
from kube_sync.guard.unknown_clusters import reason_of

_OURS: Final = frozenset({HISTORY, ADDITION})
Kind = Literal["failed", "refused", "undecided", "nowhere", "moves", "adds", "changes"]
KINDS: Final[tuple[Kind, ...]] = (
    "failed",
    "refused",
    "undecided",
    "nowhere",
    "moves",
    "adds",
    "changes",
)


def difference(
    namespace: str,
    now: Outcome,
    then: Outcome,
    placements: Placements,
    inventory: Inventory | None = None,
) -> Kind | None:
    """Return what would change for a workload, None if nothing does.

    `inventory`: the known clusters to check placements against, None: no check.
    """
    silence_before, silence_after = _silence(now), _silence(then)
    if silence_after is not None:
        return None if silence_after == silence_before else silence_after
    before = _usable(now) if silence_before is None else Decision()
    after = _usable(then)
    if (before.annotations, before.labels) == (after.annotations, after.labels):
        return None
    change = compare(
        placements, namespace, before.annotations, after.annotations, evict=after.evict
    )
    return "changes" if change is None else _kind(change, inventory)


def _silence(outcome: Outcome) -> Kind | None:
    """Return why an outcome would write nothing, None if it may."""
    if outcome.failure is not None:
        return "failed"
    if outcome.decision is None:
        return "undecided"
    if outcome.decision.errors or not _OURS.isdisjoint(outcome.decision.annotations):
        return "refused"
    return None


def _usable(outcome: Outcome) -> Decision:
    return outcome.decision or Decision()


def _kind(change: Change, inventory: Inventory | None) -> Kind:
    if change.empties or reason_of(inventory, change) is not None:
        return "nowhere"
    if change.is_move:
        return "moves"
    return "adds" if change.joined else "changes"
