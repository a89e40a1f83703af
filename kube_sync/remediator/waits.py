"""In words: what an object waits for, and what releases it."""

from __future__ import annotations

from collections.abc import Mapping

from kube_sync.decisions.decision import compact
from kube_sync.remediator.decision_cache import Key
from kube_sync.remediator.plan import OWN, Current, Held, Write
from kube_sync.remediator.waiting import Wait
from kube_sync.safety import Held as Braked
from kube_sync.safety.digests import digest

_Changes = Mapping[str, tuple[str | None, str | None]]


def name_of(step: Write) -> str:
    """Name what a step makes of an object, whatever state it is made in."""
    return digest([step.uid, compact(step.annotations), compact(step.labels)])


def unusable(current: Current, held: Held) -> Wait:
    """Return the wait of an object without a usable decision."""
    return Wait(current.uid, held.kind, held.reason, "the policy decides otherwise", {})


def manual(key: Key, current: Current, step: Write) -> Wait:
    """Return the wait of an object that a person has to let through."""
    where = f" -n {key[1].namespace}" if key[1].namespace else ""
    name = f"kube-sync remediate apply {key[1].name}{where}"
    reason = "remediation is manual here"
    return Wait(current.uid, "manual", reason, name, changes_of(current, step), name_of(step))


def dry_run(current: Current, step: Write, held: Braked | None = None) -> Wait:
    """Return the wait of an object that would be written, or be held then."""
    changes, enforce = changes_of(current, step), "remediate.mode: enforce"
    if held is None:
        return Wait(current.uid, "dry-run", "it would be written", enforce, changes)
    reason, release = f"it would wait ({held.kind}): {held.reason}", f"{enforce}; {held.release}"
    approve, until = held.approve, held.until
    return Wait(current.uid, "dry-run", reason, release, changes, approve=approve, until=until)


def rival(current: Current, step: Write, until: float) -> Wait:
    """Return the wait of an object that somebody else keeps changing back."""
    reason = "somebody else keeps changing it back"
    release = "another decision, or the end of a truce of one to ten minutes"
    return Wait(current.uid, "rival", reason, release, changes_of(current, step), until=until)


def braked(current: Current, step: Write, held: Braked) -> Wait:
    """Return the wait of an object that the guard holds."""
    changes = changes_of(current, step)
    return Wait(
        current.uid,
        held.kind,
        held.reason,
        held.release,
        changes,
        approve=held.approve,
        until=held.until,
    )


def refused(current: Current, step: Write, error: str) -> Wait:
    """Return the wait of an object whose PATCH cannot succeed."""
    release = "the object or its decision changes"
    return Wait(current.uid, "refused", error, release, changes_of(current, step))


def forbidden(current: Current, step: Write, error: str) -> Wait:
    """Return the wait of an object that this process may not PATCH."""
    release = "the remediator is granted it; tried again every minute"
    return Wait(current.uid, "forbidden", error, release, changes_of(current, step))


def changes_of(current: Current, step: Write) -> _Changes:
    """Return every key that differs with its value before and after; not what is kept beside it."""
    pairs = ((current.annotations, step.annotations), (current.labels, step.labels))
    return {
        key: (before.get(key), value)
        for before, values in pairs
        for key, value in values.items()
        if before.get(key) != value and key not in OWN
    }
