"""Placements as sets of clusters, for sinks that carry out nothing else of a decision. Pure.

Such a sink reads its own writes back as the names of clusters (`named`), and plans with
`plan_placement`. A follower gets the decision that `let_through` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.requested import requests
from kube_sync.guard import ADDITION
from kube_sync.guard.placements import Placements, read_preferences
from kube_sync.guard.unions import reduced
from kube_sync.remediation.plan import (
    KEEP,
    Current,
    Decided,
    Nothing,
    Publish,
    Unusable,
    Wanted,
    usable,
)

OWNER: Final = "the resource itself"  # in place of the policies: nobody decided the placement
NOT_NAMED: Final = Unusable("not_named", "the placement does not name its clusters one by one")
_NOT_APPLIED: Final = Unusable("not_applied", "the resource does not have what was decided")


def clusters_of(preferences: str) -> frozenset[str] | None:
    """Return the clusters that replica-set-preferences select; None if they cannot be listed.

    A cluster that can get no replica is not selected, as in the guard. `*` stands for clusters that
    come and go without a decision, so it lists none.
    """
    read = read_preferences(preferences)
    return None if read is None or read.open else read.names


def named(clusters: Iterable[str]) -> str:
    """Return replica-set-preferences that name these clusters with equal weights."""
    entries = {name: {"weight": 1} for name in sorted(clusters)}
    return msgspec.json.encode({"clusters": entries}).decode()


def kept(
    target: Current,
    clusters: Iterable[str] | None,
    records: Mapping[str, str] = MappingProxyType({}),
    version: str = "",
) -> Current:
    """Return the target as a sink has it that keeps clusters (None: no placement) and records.

    `records` are those of its moves (`kube_sync.guard`: HISTORY, ADDITION), by their annotations;
    `version` is the state of what the sink keeps, empty if there is nothing.
    """
    placement = {} if clusters is None else {PLACEMENT: named(clusters)}
    return replace(
        target,
        annotations={**placement, **records},
        version=version,
        ours=frozenset(placement),
        our_labels=frozenset(),
    )


def decided_clusters(
    wanted: Decided, current: Current
) -> frozenset[str] | Unusable | Nothing | None:
    """Return the decided clusters, or None if no placement is decided, or why neither is known."""
    decision = usable(wanted, current)
    if isinstance(decision, Unusable | Nothing):
        return decision
    if (text := decision.annotations.get(PLACEMENT)) is None:
        return None
    clusters = clusters_of(text)
    return NOT_NAMED if clusters is None else clusters


def plan_placement(wanted: Decided, current: Current) -> Publish | Unusable | Nothing:
    """Return the step of a sink that keeps clusters: its annotation has them, None for none."""
    clusters = decided_clusters(wanted, current)
    if isinstance(clusters, Unusable | Nothing):
        return clusters
    step = step_to(wanted, current, None if clusters is None else named(clusters))
    is_same = all(current.annotations.get(key) == text for key, text in step.annotations.items())
    return Nothing() if is_same else step


def step_to(wanted: Decided, current: Current, placement: str | None) -> Publish:
    """Return the step to a placement, None: to none, with the record of the move that it is of."""
    annotations, has = {PLACEMENT: placement}, current.annotations.get(ADDITION)
    addition = wanted.addition if isinstance(wanted, Wanted) else KEEP
    addition = has if addition == KEEP else addition
    if addition != has:
        annotations[ADDITION] = addition
    return Publish(current.uid, annotations, version=current.version)


def let_through(decided: Wanted | None, lead: Current, found: Current) -> Decided:
    """Return the decision as the leading sink has carried it out; None if there is none.

    `lead` and `found` are the target as the leading sink and as the follower read it. A placement
    is not removed before the leading sink has none: readers take its end for the end of the
    workload there. If nobody decides it any more and the target has one of its own, the follower
    that has one takes that.
    """
    if decided is None or decided.uid not in ("", lead.uid):
        return None
    if (unusable := _unusable(decided)) is not None or decided.decision is None:
        return unusable  # undefined never means that what an earlier decision wrote is removed
    text, has = decided.decision.annotations.get(PLACEMENT), lead.annotations.get(PLACEMENT)
    if text is None and not _is_decided(lead):
        own = {PLACEMENT: has} if has is not None and PLACEMENT in found.annotations else {}
        return replace(decided, decision=Decision(own), policy=OWNER)
    if text is None or has is None or not _is_same(text, has):
        return _passing(decided, lead, found) or _NOT_APPLIED
    return decided


def _passing(decided: Wanted, lead: Current, found: Current) -> Wanted | None:
    """Return the decision with the placement that a move passes through, None if there is none.

    Anybody may write the record of such a step: it brings no cluster but those that the follower
    has, and those that are decided. The others of the placement are leaving as well.
    """
    has, decision = lead.annotations.get(PLACEMENT), decided.decision
    if ADDITION not in lead.annotations or has is None or decision is None:
        return None
    here = clusters_of(has)
    wanted, there = (
        clusters_of(a[PLACEMENT]) if PLACEMENT in a else frozenset[str]()
        for a in (decision.annotations, found.annotations)
    )
    if not here or not wanted or there is None or not (through := here & (wanted | there)):
        return None
    placement = reduced(Placements(), {PLACEMENT: has}, here - through)
    annotations = {**decision.annotations, PLACEMENT: has, **placement}
    decision = msgspec.structs.replace(decision, annotations=annotations)
    return replace(decided, decision=decision, leaving=through - wanted)


def _is_decided(lead: Current) -> bool:
    """Return whether a decision put the placement there."""
    return PLACEMENT in lead.ours or PLACEMENT in requests(lead.annotations)


def _is_same(text: str, other: str) -> bool:
    # A leading sink may keep the clusters without their weights.
    return text == other or ((c := clusters_of(text)) is not None and c == clusters_of(other))


def _unusable(decided: Wanted) -> Unusable | None:
    if decided.failure is not None:
        return Unusable("undecided", f"no usable decision: {decided.failure}")
    if decided.decision is not None and decided.decision.errors:
        return Unusable("undecided", "the policy objects: " + "; ".join(decided.decision.errors))
    return None
