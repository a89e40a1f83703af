"""Keeps the first step of a move: with `moves: add-first` no other update makes the second one.

Invariant: an update takes a cluster away only if it asks for another placement itself. Any other
update of an object, a report of its health above all, would otherwise move it at once, since the
webhook writes the decided placement with every update. What the remediator sends is stored if it
has no clusters but those that the object has and those that are decided: anybody may claim its
field manager. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kube_sync.admission.requested_values import by_remediator
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.requested import requests
from kube_sync.guard import Placements, compare
from kube_sync.guard.unions import named, united


def without_moves(
    review: Review, decision: Decision, *, placements: Placements, remediator: str
) -> Decision:
    """Leave moves to the remediator: the user that may take clusters away."""
    kept = dict(_kept(review, decision, placements, remediator))
    if not kept:
        return decision
    return msgspec.structs.replace(decision, annotations={**decision.annotations, **kept})


def _kept(
    review: Review, decision: Decision, placements: Placements, remediator: str
) -> Iterator[tuple[str, str]]:
    """Yield the placements that stay as they are stored, or as the remediator sent them."""
    old, sent = review.old_annotations or {}, review.annotations or {}
    if review.operation != "UPDATE":
        return
    decided = {**old, **{k: v for k, v in decision.annotations.items() if k in placements.forms}}
    change = compare(placements, review.namespace, old, decided)
    union = None if change is None else united(placements, old, decided)
    if change is None or not change.is_move or change.empties or union is None:
        return
    trusted = by_remediator(review, remediator)
    asked = requests(old)
    for key in union:
        if trusted:
            if key in sent and _is_within(placements, key, sent[key], union[key]):
                yield key, sent[key]
            else:
                yield key, old[key]
        elif sent.get(key) in (old[key], asked.get(key, old[key])):
            yield key, old[key]


def _is_within(placements: Placements, key: str, text: str, union: str) -> bool:
    """Return whether a placement has a cluster, and none but those of the union."""
    found = named(placements, {key: text})
    return bool(found) and found <= named(placements, {key: union})
