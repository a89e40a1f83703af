"""Compute the PlacementDecisions of one resource. Pure.

They are read back as the placement that they publish (`carried_out`), with the records of moves
that the first slice keeps if this sink leads. A slice of an earlier object of the same name is not
part of it, and goes whatever the decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.guard import read_addition
from kube_sync.kube.events import cut
from kube_sync.kube.meta import OwnerReference
from kube_sync.kube.placementdecisions import PLACEMENT_KEY
from kube_sync.kube.slices import Choice, Published, Slice, records_of
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import (
    Current,
    Decided,
    Nothing,
    Publish,
    Step,
    Unusable,
    Wanted,
    after,
)
from kube_sync.remediation.sinks.forms import Form
from kube_sync.remediation.sinks.placement import OWNER, decided_clusters, kept, named, step_to
from kube_sync.remediation.sinks.slices import decision_key, divided, mark

_SELECTED = "selected by "
_REQUESTED = f"asked for by {OWNER}"
_NO_NAMESPACE = Unusable(
    "no_namespace", "the resource is in no namespace; a PlacementDecision has to be"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """The resource that has the placement."""

    gvr: GroupVersionResource
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Slices:
    """All slices of a placement as they are to be, and those that are there."""

    wanted: tuple[Slice, ...] = ()
    found: tuple[Published, ...] = ()

    @property
    def write(self) -> list[Slice]:
        """The slices to write, in this order, before any is removed."""
        by_key = {one.key: one for one in self.found}
        found = [w for w in self.wanted if w.key not in by_key or not by_key[w.key].is_as(w)]
        return sorted(found, key=lambda one: one.records_last)

    @property
    def remove(self) -> list[Published]:
        """The slices to delete."""
        keys = {one.key for one in self.wanted}
        return [one for one in self.found if one.key not in keys]

    def with_records(self, records: Mapping[str, str]) -> Slices:
        """Return the same with these records of moves on the first slice, beside those it has.

        That an addition was taken back is recorded last: if that is cut short, it is done again,
        while the record alone would leave what was added.
        """
        addition = read_addition(records, math.inf)
        last = addition is not None and addition.step == "reverted"
        first = [
            replace(one, records={**one.records, **records}, records_last=last or one.records_last)
            for one in self.wanted[:1]
        ]
        return replace(self, wanted=(*first, *self.wanted[1:]))


def carried_out(target: Current, found: Sequence[Published]) -> Current:
    """Return the target with the placement and the records that these slices publish."""
    ours = [one for one in found if _is_of(one, target.uid)]
    clusters = [choice.cluster for one in ours for choice in one.choices] if ours else None
    records = next((one.records for one in ours if one.records), {})
    return kept(target, clusters, records, " ".join(one.version for one in found))


def publish(
    subject: Subject,
    wanted: Decided,
    current: Current | None,
    found: Sequence[Published],
    form: Form,
) -> Step:
    """Return the step that makes the existing slices those of the decided placement.

    `current` is what `carried_out` returned; None: the resource is gone.
    """
    if current is None:
        return (
            Publish("", {PLACEMENT: None}, content=Slices((), tuple(found))) if found else Nothing()
        )
    slices = _wanted(subject, wanted, current, found, form)
    if isinstance(slices, list):
        placement = named(c.cluster for s in slices for c in s.choices) if slices else None
        return _step(wanted, current, placement, Slices(tuple(slices), tuple(found)))
    # Of an earlier object of that name, which is gone whatever the decision on this one.
    stale = tuple(one for one in found if not _is_of(one, current.uid))
    placement = current.annotations.get(PLACEMENT)
    return _step(None, current, placement, Slices((), stale)) if stale else slices


def _step(
    wanted: Decided, current: Current, placement: str | None, slices: Slices
) -> Publish | Nothing:
    step = step_to(wanted, current, placement)
    slices = slices.with_records(records_of(after(step, current)))
    return replace(step, content=slices) if slices.write or slices.remove else Nothing()


def _wanted(
    subject: Subject,
    wanted: Decided,
    current: Current,
    found: Sequence[Published],
    form: Form,
) -> list[Slice] | Unusable | Nothing:
    """Return the wanted slices, or why they are not known."""
    names = decided_clusters(wanted, current)
    if names is None:
        return []
    if isinstance(names, Unusable):
        return names
    if isinstance(names, Nothing) or not isinstance(wanted, Wanted):
        return Nothing()
    if not (subject.key.namespace or form.namespace):
        return _NO_NAMESPACE
    before = {choice.cluster: choice for one in found for choice in one.choices}
    choices: dict[str, Choice] = {}
    for name in sorted(names):
        old = before[name].namespace if name in before else None
        place = form.locate(name, old)
        if place is None and wanted.addition:
            place = old  # the cluster that a move leaves may be gone before it has ended
        if place is None:
            return Unusable("no_profile", f"there is no ClusterProfile {name}")
        choices[name] = Choice(name, place, _reason(name, wanted, before))
    return _slices(subject, current, choices, found, form)


def _is_of(one: Published, uid: str) -> bool:
    return uid in {owner.uid for owner in one.owners}


def _slices(
    subject: Subject,
    current: Current,
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
    # On the workload too (KEP-5313, "Placement key"), by whoever requested the placement.
    own = current.labels.get(PLACEMENT_KEY)
    return [
        Slice(
            ObjectKey(form.namespace or subject.key.namespace, f"{key}-{index}"),
            mark(gvr, name),
            form.labels(key, index, own),
            OwnerReference(gvr.api_version, "", name, current.uid),
            tuple(choices[cluster] for cluster in clusters),
            source,
        )
        for index, clusters in enumerate(divided(choices, held))
    ]


def _index(name: str, key: str) -> int | None:
    begin, _, end = name.rpartition("-")
    return int(end) if begin == key and end.isdecimal() else None


def _reason(cluster: str, wanted: Wanted, before: Mapping[str, Choice]) -> str:
    """Return the policy's reason for a cluster, or else the policies that it was first selected by.

    First, since a changed policy with the same decision must not cause a write.
    """
    if wanted.policy == OWNER:
        return before[cluster].reason if cluster in before else _REQUESTED
    decision = wanted.decision or Decision()
    reason = decision.reasons.get(cluster)
    if reason is not None:
        return cut(reason)
    if cluster in before and before[cluster].reason.startswith(_SELECTED):
        return before[cluster].reason
    return f"{_SELECTED}{wanted.policy or 'policy'}"
