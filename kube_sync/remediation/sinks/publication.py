"""Compute the PlacementDecisions of one resource. Pure.

The placement of the resource is published once it is the decided one: a PlacementDecision is never
ahead of the annotation. So what holds the annotation back (the guard, a missing approval, a mode
that does not write) holds back the consumers of PlacementDecisions too.

Nor is it removed before the placement is: consumers take its end for the end of the placement
(KEP-5313, "Lifecycle"). If there is no decision any more but the resource has a placement of its
own, the PlacementDecision follows that until the resource has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.kube.events import cut
from kube_sync.kube.slices import Choice, Owner, Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import Wanted
from kube_sync.remediation.sinks.forms import Form
from kube_sync.remediation.sinks.slices import clusters_of, decision_key, divided, mark

_SELECTED = "selected by "
_REQUESTED = "asked for by the resource itself"


@dataclass(frozen=True, slots=True)
class Subject:
    """The resource that has the placement."""

    gvr: GroupVersionResource
    key: ObjectKey
    kind: str


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of the resource at the API server."""

    uid: str
    placement: str | None
    decided: bool = False  # only a decision put the placement there
    placement_key: str | None = None  # the workload's own, if it has one


@dataclass(frozen=True, slots=True)
class Unusable:
    """The PlacementDecisions are left as they are, and why."""

    code: str  # one word
    reason: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What to write, in this order, and then what to delete; and why not more."""

    write: tuple[Slice, ...] = ()
    remove: tuple[Published, ...] = ()
    held: Unusable | None = None


def publish(
    subject: Subject,
    decided: Wanted | None,
    placed: Placed | None,
    found: Sequence[Published],
    form: Form,
) -> Publication:
    """Return the writes that make the existing slices those of the placement."""
    if placed is None:
        return Publication(remove=tuple(found))
    wanted = _wanted(subject, decided, placed, found, form)
    if isinstance(wanted, list):
        return _difference(wanted, found)
    # Of an earlier object of that name, which is gone whatever the decision on this one.
    stale = (one for one in found if not _is_of(one, placed))
    return Publication(remove=tuple(stale), held=wanted)


def _wanted(
    subject: Subject,
    decided: Wanted | None,
    placed: Placed,
    found: Sequence[Published],
    form: Form,
) -> list[Slice] | Unusable | None:
    """Return the wanted slices; None without a decision."""
    if decided is None or decided.uid not in ("", placed.uid):
        return None
    if (unusable := _unusable(decided)) is not None:
        return unusable
    if decided.decision is None:
        return None  # undefined never means that what an earlier decision wrote is removed
    text = decided.decision.annotations.get(PLACEMENT)
    if text is None and not placed.decided:
        text = _own(placed, found)
        if text is None:
            return []
    if text is None or text != placed.placement:
        return Unusable("not_applied", "the resource does not have what was decided")
    choices = _choices(subject, decided, text, found, form)
    return (
        choices if isinstance(choices, Unusable) else _slices(subject, placed, choices, found, form)
    )


def _own(placed: Placed, found: Sequence[Published]) -> str | None:
    """Return the undecided placement that published slices have to follow, if any."""
    # Not for resources that never had a decision, nor for an earlier object of the name.
    return placed.placement if any(_is_of(one, placed) for one in found) else None


def _is_of(one: Published, placed: Placed) -> bool:
    return placed.uid in {owner.uid for owner in one.owners}


def _unusable(decided: Wanted) -> Unusable | None:
    if decided.failure is not None:
        return Unusable("undecided", f"no usable decision: {decided.failure}")
    if decided.decision is not None and decided.decision.errors:
        return Unusable("undecided", "the policy objects: " + "; ".join(decided.decision.errors))
    return None


def _choices(
    subject: Subject, decided: Wanted, text: str, found: Sequence[Published], form: Form
) -> dict[str, Choice] | Unusable:
    if not (subject.key.namespace or form.namespace):
        return Unusable(
            "no_namespace", "the resource is in no namespace; a PlacementDecision has to be"
        )
    if (names := clusters_of(text)) is None:
        return Unusable("not_named", "the placement does not name its clusters one by one")
    before = {choice.cluster: choice for one in found for choice in one.choices}
    choices: dict[str, Choice] = {}
    for name in sorted(names):
        place = form.locate(name, before[name].namespace if name in before else None)
        if place is None:
            return Unusable("no_profile", f"there is no ClusterProfile {name}")
        choices[name] = Choice(name, place, _reason(name, decided, before))
    return choices


def _slices(
    subject: Subject,
    placed: Placed,
    choices: Mapping[str, Choice],
    found: Sequence[Published],
    form: Form,
) -> list[Slice]:
    gvr, name = subject.gvr, subject.key.name
    # In a namespace of all slices, names are unique over the namespaces of resources.
    source = None if form.namespace is None else subject.key.namespace
    key = decision_key(gvr, name, source)
    held = {
        index: [choice.cluster for choice in one.choices]
        for one in found
        if (index := _index(one.key.name, key)) is not None
    }
    return [
        Slice(
            ObjectKey(form.namespace or subject.key.namespace, f"{key}-{index}"),
            mark(gvr, name),
            form.labels(key, index, placed.placement_key),
            Owner(gvr.api_version, subject.kind, name, placed.uid),
            tuple(choices[cluster] for cluster in clusters),
            source,
        )
        for index, clusters in enumerate(divided(choices, held))
    ]


def _index(name: str, key: str) -> int | None:
    begin, _, end = name.rpartition("-")
    return int(end) if begin == key and end.isdecimal() else None


def _difference(wanted: Sequence[Slice], found: Sequence[Published]) -> Publication:
    by_key = {one.key: one for one in found}
    write = (one for one in wanted if one.key not in by_key or not by_key[one.key].is_as(one))
    keys = {one.key for one in wanted}
    return Publication(tuple(write), tuple(one for one in found if one.key not in keys))


def _reason(cluster: str, decided: Wanted, before: Mapping[str, Choice]) -> str:
    """Return the policy's reason for a cluster, or else the policies that it was first selected by.

    First, since a changed policy with the same decision must not cause a write.
    """
    decision = decided.decision or Decision()
    if PLACEMENT not in decision.annotations:
        return before[cluster].reason if cluster in before else _REQUESTED
    reason = decision.reasons.get(cluster)
    if reason is not None:
        return cut(reason)
    if cluster in before and before[cluster].reason.startswith(_SELECTED):
        return before[cluster].reason
    return f"{_SELECTED}{decided.policy or 'policy'}"
