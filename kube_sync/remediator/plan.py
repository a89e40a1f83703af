"""What to do about one object, given what was decided and what it has. Pure.

A decision is applied only where the policy gave one without errors, to the very object that it
was made for, and only where something differs. An empty placement is never written: emptying a
workload is not something a policy does by accident. What was asked for is noted beside what is
written, as it follows from what the object has (`decisions.requested`); so whatever is written is
bound to the state of the object that it follows from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.placement import PLACEMENT, is_empty_placement
from kube_sync.decisions.requested import note, put_back, requests


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was decided of an object; no decision and no failure: nothing (any more)."""

    uid: str
    decision: Decision | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """What the API server holds of an object, and of which state of it that is known."""

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""  # resourceVersion


@dataclass(frozen=True, slots=True)
class Apply:
    """Give the object `uid`, if it is still at `version`, these annotations and labels.

    They are all that were decided, since an apply owns them, and the note.
    """

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """Take the note off an object that is still at `version`: it has what was asked for.

    An apply cannot do that where the webhook wrote the note, which makes nobody its owner.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Held:
    """Leave the object as it is, although it may not be as it should."""

    reason: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The object is as it should be, or gone, or nothing was decided of it."""


Step = Apply | Forget | Held | Nothing


def plan(wanted: Wanted | None, current: Current | None) -> Step:
    """Return the one step that brings `current` closer to `wanted`."""
    if wanted is None or current is None or wanted.uid not in ("", current.uid):
        return Nothing()
    if wanted.failure is not None:
        return Held(f"no usable decision: {wanted.failure}")
    # Undefined never means that what an earlier decision wrote should go.
    decision = wanted.decision or Decision()
    if decision.errors:
        return Held("the policy objects: " + "; ".join(decision.errors))
    if not (decision.annotations or decision.labels):
        return Nothing()
    return _step(decision, current)


def _step(decision: Decision, current: Current) -> Step:
    asked_for = requests(current.annotations)
    found = note(put_back(current.annotations, asked_for), decision.annotations, asked_for)
    annotations = dict(decision.annotations) | ({} if found is None else {REQUESTED: found})
    if _has(current.annotations, annotations) and _has(current.labels, decision.labels):
        forgotten = found is None and REQUESTED in current.annotations
        return Forget(current.version) if forgotten else Nothing()
    if is_empty_placement(decision.annotations.get(PLACEMENT, "")):
        return Held("the decided placement is empty")
    # What an earlier policy wrote stays too, and would go if it were left out.
    earlier = {key: current.annotations[key] for key in asked_for if key in current.annotations}
    return Apply(current.uid, earlier | annotations, decision.labels, current.version)


def _has(current: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(current.get(key) == value for key, value in wanted.items())
