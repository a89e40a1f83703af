"""What to do about one object, given what was decided and what it has. Pure.

A decision is applied only where the policy gave one without errors, to the very object that it
was made for, and only the keys that differ. An empty placement is never written: emptying a
workload is not something a policy does by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.placement import PLACEMENT, is_empty_placement


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was decided of an object; no decision and no failure: nothing (any more)."""

    uid: str
    decision: Decision | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """What the API server holds of an object."""

    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Apply:
    """Give the object `uid` these annotations: all that were decided, since an apply owns them."""

    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """Leave the object as it is, although it may not be as it should."""

    reason: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The object is as it should be, or gone, or nothing was decided of it."""


Step = Apply | Held | Nothing


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
    decided = decision.annotations
    if all(current.annotations.get(key) == value for key, value in decided.items()):
        return Nothing()
    if PLACEMENT in decided and is_empty_placement(decided[PLACEMENT]):
        return Held("the decided placement is empty")
    return Apply(current.uid, decided)
