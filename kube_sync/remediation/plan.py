"""Compute the PATCH for one object from its decision and its present state. Pure.

A decision is applied only if it has no errors, only to the object (uid) that it was made for, and
only where something differs. Values that the owner requested are recorded in an annotation beside
the decided ones (`decisions.requested`), so every write is bound to the resourceVersion that it was
computed from. A value that the decision does not name any more is reverted: to the recorded value,
whoever wrote the decided one; without a record it is removed, if only the remediator owns it.
Without a usable decision nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.requested import requests, requests_to_note, restore
from kube_sync.decisions.sealing import SEAL, Place, Seals, covered_values
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.kube.meta import Amend, Apply

Check = Callable[[Mapping[str, str]], object | None]
_UNSEALED = Seals()
_NOWHERE = Place("", "", "", "")
# Annotations of the remediator itself.
OWN = frozenset([REQUESTED, HISTORY, ADDITION])
KEEP: Final = ""  # the record of an addition stays as it is


@dataclass(frozen=True, slots=True)
class Wanted:
    """The decision on an object; with neither decision nor failure it is undefined.

    `addition` is the record of an addition to have beside it, None: none; KEEP: as it is.
    `leaving`: the clusters of its placement that a move passes through and nobody decides.
    """

    uid: str
    decision: Decision | None
    failure: str | None = None
    policy: str = ""  # the digest of the policies that decided
    addition: str | None = None
    leaving: frozenset[str] = frozenset()

    @property
    def evict(self) -> bool:
        """Whether the policy allows the object to be left without a cluster."""
        return self.decision is not None and self.decision.evict


@dataclass(frozen=True, slots=True)
class Current:
    """The metadata of an object at one resourceVersion.

    `ours` are the annotations that the remediator applied, `our_labels` the labels that it set in
    any way, unless somebody else owns them too. `idle`: zero replicas are wanted. `healthy`: the
    clusters where it is healthy by its own annotations or status, if that is configured. `spec`: a
    digest of its spec without the replicas, "" where no move can have a record of an addition.
    """

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""  # resourceVersion
    ours: frozenset[str] = frozenset()
    our_labels: frozenset[str] = frozenset()
    idle: bool = False
    healthy: frozenset[str] = frozenset()
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Publish:
    """Writes of a sink to objects of its own, for the target `uid`.

    `annotations` say what they change, as if the target had these annotations: brakes, holds and
    ledger read them. `content` is what the sink writes, and `version` the state that it read.
    """

    uid: str
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""
    content: object = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """The decision cannot be used; what is there is left as it is. `kind`: the reason, a word.

    `again`: the seconds until a sink that follows is to plan again in any case, None: not at all.
    """

    kind: str
    reason: str
    again: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Nothing:
    """No step: the object is as decided, or gone, or there is no decision.

    `again` is as in `Unusable`.
    """

    again: float | None = None


Write = Apply | Amend | Publish
Step = Write | Unusable | Nothing
Decided = Wanted | Unusable | None  # a decision; why there is none to carry out; none is known


def _readable(_annotations: Mapping[str, str]) -> None:
    """Accept any annotations."""


def plan(
    wanted: Decided,
    current: Current | None,
    place: Place = _NOWHERE,
    seals: Seals = _UNSEALED,
    unreadable: Check = _readable,
) -> Step:
    """Return the step that makes `current`, which is at `place`, as `wanted`.

    `unreadable` validates the decided annotations, since the engine that decided may not do so.
    """
    if current is None:
        return Nothing()
    decision = usable(wanted, current, unreadable)
    if isinstance(decision, Unusable | Nothing):
        return decision
    addition = wanted.addition if isinstance(wanted, Wanted) else None
    return _step(decision, current, place, seals, addition)


def usable(
    wanted: Decided, current: Current, unreadable: Check = _readable
) -> Decision | Unusable | Nothing:
    """Return the decision to carry out on an object, or why there is none."""
    if isinstance(wanted, Unusable):
        return wanted
    if wanted is None or wanted.uid not in ("", current.uid):
        return Nothing()
    if wanted.failure is not None:
        return Unusable("failed", f"no usable decision: {wanted.failure}")
    if wanted.decision is None:
        # Undefined never means that what an earlier decision wrote is removed.
        placed = REQUESTED in current.annotations or current.ours or current.our_labels
        return Unusable("undefined", "the decision is undefined") if placed else Nothing()
    return _refused(wanted.decision, unreadable) or wanted.decision


def _refused(decision: Decision, unreadable: Check) -> Unusable | None:
    """Return why a decision must not be carried out, or None."""
    if decision.errors:
        return Unusable("errors", "the policy objects: " + "; ".join(decision.errors))
    for own in (HISTORY, ADDITION):
        if own in decision.annotations:
            return Unusable("errors", f"the policy decides {own}, which is not its own")
    if (wrong := unreadable(decision.annotations)) is not None:
        return Unusable("failed", f"no usable decision: the policy's {wrong}")
    return None


def after(step: Write, current: Current) -> dict[str, str]:
    """Return the annotations of the object after `step`."""
    added = {key: value for key, value in step.annotations.items() if value is not None}
    gone = step.annotations.keys() - added.keys()
    return {key: value for key, value in current.annotations.items() if key not in gone} | added


def with_history(step: Write, history: str) -> Write:
    """Return the step with the history of placements added."""
    if isinstance(step, Apply):  # two branches for the type checker
        return replace(step, annotations={**step.annotations, HISTORY: history})
    return replace(step, annotations={**step.annotations, HISTORY: history})


def _step(
    decision: Decision, current: Current, place: Place, seals: Seals, addition: str | None
) -> Step:
    has, decided = current.annotations, decision.annotations
    requested = requests(has)
    alone = current.ours - decided.keys() - requested.keys() - OWN
    restored = {key: value for key, value in restore(has, requested).items() if key not in alone}
    target = {**restored, **decided}
    # If only the remediator owns a value, the record alone shows that it was requested.
    kept = {k: v for k, v in requested.items() if k in current.ours and has.get(k) == v}
    to_note = requests_to_note(restored, decided, {}) | kept
    # The webhook makes a seal without a record; it is renewed here with the placement. Who has no
    # key keeps the seal of a note that says what it has to say.
    sealed = seals.is_required and REQUESTED in has
    if (
        (sealed or SEAL in has.get(REQUESTED, ""))
        and to_note == requested
        and covered_values(to_note, target) == covered_values(to_note, has)
    ):
        target[REQUESTED] = has[REQUESTED]
    elif to_note or sealed:
        target[REQUESTED] = seals.sealed_note(to_note, target, place)
    if addition:
        target[ADDITION] = addition
    elif addition is None:
        target.pop(ADDITION, None)
    annotations = _difference(has, target)
    labels: dict[str, str | None] = dict.fromkeys(current.our_labels - decision.labels.keys())
    labels |= {k: v for k, v in decision.labels.items() if current.labels.get(k) != v}
    if not annotations and not labels:
        return Nothing()
    # An apply would own a value that is back to the requested one, and later remove it.
    back = requested.keys() - to_note.keys()
    if back or None in [*annotations.values(), *labels.values()]:
        maps = {"annotations": has, "labels": current.labels}
        bare = frozenset(name for name, found in maps.items() if not found)
        return Amend(current.uid, annotations, labels, current.version, bare)
    own = {key: target[key] for key in sorted(OWN) if key in target}
    return Apply(current.uid, {**decided, **own}, decision.labels, current.version)


def _difference(has: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str | None]:
    gone: dict[str, str | None] = {key: None for key in has if key not in target}
    return gone | {key: value for key, value in target.items() if has.get(key) != value}
