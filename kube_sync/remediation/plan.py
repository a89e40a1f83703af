"""What to do about one object, given what was decided and what it has. Pure.

A decision is applied only where the policy gave one without errors, to the very object that it
was made for, and only where something differs. What was asked for is noted beside what is written,
as it follows from what the object has (`decisions.requested`); so whatever is written is bound to
the state of the object that it follows from. What a decision does not name any more goes: the
value that the note has of it comes back, whoever wrote the decided one, and what nobody but the
remediator owns is removed. Where no decision is usable nothing is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.requested import noted, put_back, requests
from kube_sync.decisions.sealing import Place, Seals, beside
from kube_sync.guard import HISTORY

Check = Callable[[Mapping[str, str]], object | None]
_UNSEALED = Seals()
_NOWHERE = Place("", "", "", "")
# What the remediator keeps on an object for itself.
OWN = frozenset([REQUESTED, HISTORY])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was decided of an object; no decision and no failure: nothing (any more)."""

    uid: str
    decision: Decision | None
    failure: str | None = None
    policy: str = ""  # the digest of the policies that decided

    @property
    def evict(self) -> bool:
        """Whether the policy says that the object may be left without any cluster."""
        return self.decision is not None and self.decision.evict


@dataclass(frozen=True, slots=True)
class Current:
    """What the API server holds of an object, and of which state of it that is known.

    `ours` are the annotations that the remediator applied, `our_labels` the labels that it set in
    any way, where nobody else owns them. `idle`: it wants no replicas.
    """

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""  # resourceVersion
    ours: frozenset[str] = frozenset()
    our_labels: frozenset[str] = frozenset()
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Give the object `uid`, if it is still at `version`, these annotations and labels.

    They are all that were decided, since an apply owns them, and what is kept beside them.
    """

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Amend:
    """Set these annotations and labels of the object `uid` at `version`, or remove them (None).

    An apply cannot: it leaves what nobody owns, as what the webhook wrote, and gives up what the
    owner of the object wants back. `bare` names the maps that the object does not have.
    """

    uid: str
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""
    bare: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unusable:
    """Leave the object as it is, although it may not be as it should."""

    kind: Literal["failed", "undefined", "errors"]
    reason: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The object is as it should be, or gone, or nothing was decided of it."""


Write = Apply | Amend
Step = Write | Unusable | Nothing


def _readable(_annotations: Mapping[str, str]) -> None:
    """Find nothing wrong."""


def plan(
    wanted: Wanted | None,
    current: Current | None,
    place: Place = _NOWHERE,
    seals: Seals = _UNSEALED,
    unreadable: Check = _readable,
) -> Step:
    """Return the one step that makes `current`, which is at `place`, what is `wanted`.

    `unreadable` finds what is wrong with decided annotations: who decides may be an engine that
    does not look.
    """
    if wanted is None or current is None or wanted.uid not in ("", current.uid):
        return Nothing()
    if wanted.failure is not None:
        return Unusable("failed", f"no usable decision: {wanted.failure}")
    if wanted.decision is None:
        # It never means that what an earlier decision wrote should go.
        placed = REQUESTED in current.annotations or current.ours or current.our_labels
        return Unusable("undefined", "the decision is undefined") if placed else Nothing()
    refused = _refused(wanted.decision, unreadable)
    return refused or _step(wanted.decision, current, place, seals)


def _refused(decision: Decision, unreadable: Check) -> Unusable | None:
    """Return why a decision is not carried out, None: it may be."""
    if decision.errors:
        return Unusable("errors", "the policy objects: " + "; ".join(decision.errors))
    if HISTORY in decision.annotations:
        return Unusable("errors", f"the policy decides {HISTORY}, which is not its own")
    if (wrong := unreadable(decision.annotations)) is not None:
        return Unusable("failed", f"no usable decision: the policy's {wrong}")
    return None


def after(step: Write, current: Current) -> dict[str, str]:
    """Return the annotations that the object has once `step` is done."""
    added = {key: value for key, value in step.annotations.items() if value is not None}
    gone = step.annotations.keys() - added.keys()
    return {key: value for key, value in current.annotations.items() if key not in gone} | added


def with_history(step: Write, history: str) -> Write:
    """Return the step with the placements that the object has had."""
    if isinstance(step, Amend):  # spelt out for the types' sake
        return replace(step, annotations={**step.annotations, HISTORY: history})
    return replace(step, annotations={**step.annotations, HISTORY: history})


def _step(decision: Decision, current: Current, place: Place, seals: Seals) -> Step:
    has, decided = current.annotations, decision.annotations
    asked_for = requests(has)
    alone = current.ours - decided.keys() - asked_for.keys() - OWN
    asked = {key: value for key, value in put_back(has, asked_for).items() if key not in alone}
    target = {**asked, **decided}
    # Of what the remediator alone owns only the note says that somebody asked for it.
    kept = {k: v for k, v in asked_for.items() if k in current.ours and has.get(k) == v}
    to_note = noted(asked, decided, {}) | kept
    # A seal that stands alone is made by the webhook, and renewed here with the placement.
    sealed = seals.sealing and REQUESTED in has
    if sealed and to_note == asked_for and beside(to_note, target) == beside(to_note, has):
        target[REQUESTED] = has[REQUESTED]
    elif to_note or sealed:
        target[REQUESTED] = seals.note(to_note, target, place)
    annotations = _difference(has, target)
    labels: dict[str, str | None] = dict.fromkeys(current.our_labels - decision.labels.keys())
    labels |= {k: v for k, v in decision.labels.items() if current.labels.get(k) != v}
    if not annotations and not labels:
        return Nothing()
    # An apply would own alone what is as it was asked for again, and take it away some day.
    back = asked_for.keys() - to_note.keys()
    if back or None in [*annotations.values(), *labels.values()]:
        maps = {"annotations": has, "labels": current.labels}
        bare = frozenset(name for name, found in maps.items() if not found)
        return Amend(current.uid, annotations, labels, current.version, bare)
    own = {key: target[key] for key in sorted(OWN) if key in target}
    return Apply(current.uid, {**decided, **own}, decision.labels, current.version)


def _difference(has: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str | None]:
    gone: dict[str, str | None] = {key: None for key in has if key not in target}
    return gone | {key: value for key, value in target.items() if has.get(key) != value}
