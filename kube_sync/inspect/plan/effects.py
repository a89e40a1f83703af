"""The effect of an edit on one workload, computed by the remediator's own step. Pure.

Invariant: the effect is what would be written, or why nothing is; the current decision only
determines whether the edit is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import Change, Inventory, Placements, compare
from kube_sync.guard.unknown_clusters import reason_of, unknown_in
from kube_sync.kube.meta import Amend, Apply
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import KEEP, Current, Step, Unusable, Wanted, after, plan

Kind = Literal[
    "failed", "refused", "undecided", "nowhere", "moves", "adds", "changes"
]  # the worst first
KINDS: Final[tuple[Kind, ...]] = (
    "failed",
    "refused",
    "undecided",
    "nowhere",
    "moves",
    "adds",
    "changes",
)
BREAKS: Final = frozenset[Kind](("failed", "refused", "undecided", "nowhere"))

_STEPS: Final[dict[str, Kind]] = {
    "failed": "failed",
    "undefined": "undecided",
    "errors": "refused",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect on one workload; `pending`: it would be the same without the edit.

    `before` and `after` name the clusters that it may run on, `*` for any cluster, and `?` if
    they are unknown.
    """

    resource: str
    key: ObjectKey
    uid: str
    kind: Kind
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str = ""
    pending: bool = False
    evict: bool = False
    change: Change | None = None  # of the placement, if something would be written

    @property
    def breaks(self) -> bool:
        """Whether the edit takes something away that the workload had."""
        return self.kind in BREAKS and not self.pending


def effect(
    resource: str,
    key: ObjectKey,
    current: Current,
    now: Outcome,
    then: Outcome,
    placements: Placements,
    *,
    inventory: Inventory | None = None,
) -> Effect | None:
    """Return the effect on a workload, None if it does not change.

    `inventory`: the clusters that placements are compared with, None: with none.
    """
    step = _step(then, current)
    has = clusters(placements, current.annotations)
    if not isinstance(step, Apply | Amend):
        if (kind := _kind_without_write(now, then, step)) is None:
            return None
        reason = step.reason if isinstance(step, Unusable) else "nothing is decided any more"
        return Effect(resource, key, current.uid, kind, has, has, reason)
    annotations, evict = after(step, current), _evicts(then)
    change = compare(placements, key.namespace, current.annotations, annotations, evict=evict)
    lost = None if change is None else reason_of(inventory, change)
    empties = change is not None and (change.empties or lost is not None)
    written = ", ".join(sorted({*step.annotations, *step.labels}))
    return Effect(
        resource,
        key,
        current.uid,
        "nowhere" if empties else _kind(change),
        has,
        clusters(placements, annotations),
        written if change is None else lost or "",
        _is_pending(current, now, then, empties=empties),
        evict,
        change,
    )


def unknown_clusters(effects: Iterable[Effect], inventory: Inventory | None) -> Iterator[str]:
    """Yield the note on placements with unknown clusters."""
    if inventory is None:
        return
    found = [
        unknown
        for one in effects
        if one.change is not None and one.kind != "nowhere"
        if (unknown := unknown_in(inventory, one.change))
    ]
    if found:
        description = inventory.description(frozenset[str]().union(*found))
        yield f"{len(found)} would be placed on clusters of which some are unknown: {description}"


def clusters(placements: Placements, annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the clusters in a workload's placement annotations, in order."""
    read = placements.read(annotations)
    found: list[str] = []
    for key, named in read.items():
        prefix = f"{key.rpartition('/')[2]}: " if len(read) > 1 else ""
        if named is None:
            names = ["?"]
        else:
            names = sorted(named.names)
            if named.open:
                names = ["*", *(f"!{name}" for name in names)]
        found += [prefix + name for name in names]
    return tuple(found)


def _step(outcome: Outcome, current: Current) -> Step:
    return plan(Wanted(current.uid, outcome.decision, outcome.failure, addition=KEEP), current)


def _is_pending(current: Current, now: Outcome, then: Outcome, *, empties: bool) -> bool:
    """Return whether the same is written without the edit."""
    if (now.decision, now.failure) == (then.decision, then.failure):
        return True
    # A change that empties a workload is held for ever, unless the policy evicts it.
    evicts_alike = _evicts(now) == _evicts(then) or not empties
    return evicts_alike and _step(now, current) == _step(then, current)


def _evicts(outcome: Outcome) -> bool:
    return outcome.decision is not None and outcome.decision.evict


def _kind_without_write(now: Outcome, then: Outcome, step: Step) -> Kind | None:
    """Return the effect of an empty step, None if it is nothing new."""
    if isinstance(step, Unusable):
        kind = _STEPS[step.kind]
    elif then.decision is None and now.decision is not None:
        kind = "undecided"
    else:
        return None
    return None if kind == _present_kind(now) else kind


def _present_kind(outcome: Outcome) -> Kind | None:
    if outcome.failure is not None:
        return "failed"
    if outcome.decision is None:
        return "undecided"
    return "refused" if outcome.decision.errors else None


def _kind(change: Change | None) -> Kind:
    if change is None:
        return "changes"
    if change.is_move:
        return "moves"
    return "adds" if change.joined else "changes"
