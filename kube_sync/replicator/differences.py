"""How a second decision on a workload differs from the one in force, in the terms of `plan`. Pure.

Keeps true: a workload has what is decided of it; so where nothing is pending or held, these are the
effects that `kube-sync plan` announces for the same edit, and otherwise those that it would have
once everything is carried out. Where nothing usable is in force, a placement is a first one.
"""

from __future__ import annotations

from typing import Final, Literal

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import HISTORY, Change, Inventory, Placements, compare
from kube_sync.guard.unknown_clusters import reason_of

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
    """Return what would become of a workload, None where it stays as it is.

    `inventory`: the clusters that placements are compared with, None: with none.
    """
    said, would_say = _silence(now), _silence(then)
    if would_say is not None:
        return None if would_say == said else would_say
    before = _usable(now) if said is None else Decision()
    after = _usable(then)
    if (before.annotations, before.labels) == (after.annotations, after.labels):
        return None
    change = compare(
        placements, namespace, before.annotations, after.annotations, evict=after.evict
    )
    return "changes" if change is None else _kind(change, inventory)


def _silence(outcome: Outcome) -> Kind | None:
    """Return why nothing would be written, None where something may be."""
    if outcome.failure is not None:
        return "failed"
    if outcome.decision is None:
        return "undecided"
    if outcome.decision.errors or HISTORY in outcome.decision.annotations:
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
