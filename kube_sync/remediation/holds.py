"""Holds: the objects that are not written although a step is wanted, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from kube_sync.decisions.decision import compact
from kube_sync.guard import Withheld as Braked
from kube_sync.guard.digests import digest
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import OWN, Current, Unusable, Write
from kube_sync.remediation.planner import Unfinished

_Changes = Mapping[str, tuple[str | None, str | None]]

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Wait:
    """The hold on one object.

    `changes` are the values of annotations and labels, before and after (None: absent); `until` and
    `since` are Unix seconds; `name` is that of the step, where a person has to approve it.
    """

    uid: str
    kind: str
    reason: str
    release: str
    changes: Mapping[str, tuple[str | None, str | None]]
    name: str = ""
    approve: str | None = None
    until: float | None = None
    since: float = 0.0


class Waiting:
    """All objects that are held."""

    def __init__(
        self,
        notify: Callable[[Key], None],
        now: Callable[[], float],
        held: Callable[[Key, Wait], None] = lambda _key, _wait: None,
    ) -> None:
        """Call `notify` with each object whose hold has a new reason, `held` with the hold too."""
        self._notify = notify
        self._held = held
        self._now = now
        self._waits: dict[Key, Wait] = {}
        self._counts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[Key, Wait]]:
        # Sorted for people; a copy, since it changes during iteration.
        return iter(sorted(self._waits.items(), key=lambda item: (str(item[0][0]), item[0][1])))

    def get(self, key: Key) -> Wait | None:
        """Return the hold on an object, or None."""
        return self._waits.get(key)

    def put(self, key: Key, wait: Wait) -> bool:
        """Set the hold on an object, and report a new one once; return whether it is new."""
        before = self._waits.get(key)
        same = before is not None and (before.uid, before.kind) == (wait.uid, wait.kind)
        since = before.since if before is not None and same else self._now()
        self._waits[key] = replace(wait, since=since)
        if not same:
            self._count(before, -1)
            self._count(wait, 1)
            self._notify(key)
            self._held(key, wait)
            metrics.remediations.labels("dry-run" if wait.kind == "dry-run" else "held").inc()
            reason = {"reason": wait.reason, "release": wait.release}
            log.info("remediation_held", gvr=str(key[0]), key=str(key[1]), kind=wait.kind, **reason)
        return not same

    def of(self, kind: str) -> list[Key]:
        """Return the objects with holds of one kind, unsorted."""
        if not self._counts[kind]:
            return []
        return [key for key, wait in self._waits.items() if wait.kind == kind]

    def drop(self, key: Key, kind: str | None = None) -> bool:
        """Remove the hold on an object, if it is of this kind; return whether there was one."""
        wait = self._waits.get(key)
        if wait is None or kind not in (None, wait.kind):
            return False
        del self._waits[key]
        self._count(wait, -1)
        return True

    def _count(self, wait: Wait | None, by: int) -> None:
        if wait is not None:
            self._counts[wait.kind] += by
            metrics.remediation_held.labels(wait.kind).set(self._counts[wait.kind])


def name_of(step: Write) -> str:
    """Return a digest of what a step sets on an object, whatever its state before."""
    return digest([step.uid, compact(step.annotations), compact(step.labels)])


def unusable(current: Current, held: Unusable) -> Wait:
    """Return the hold on an object without a usable decision."""
    return Wait(current.uid, held.kind, held.reason, "the policy decides otherwise", {})


def manual(key: Key, current: Current, step: Write) -> Wait:
    """Return the hold on an object that a person has to approve."""
    where = f" -n {key[1].namespace}" if key[1].namespace else ""
    name = f"kube-sync remediate apply {key[1].name}{where}"
    reason = "remediation is manual here"
    return Wait(current.uid, "manual", reason, name, changes_of(current, step), name_of(step))


def dry_run(current: Current, step: Write, held: Braked | None = None) -> Wait:
    """Return the hold on an object in dry run: it would be written, or held."""
    changes, enforce = changes_of(current, step), "remediate.mode: enforce"
    if held is None:
        return Wait(current.uid, "dry-run", "it would be written", enforce, changes)
    reason, release = f"it would wait ({held.kind}): {held.reason}", f"{enforce}; {held.release}"
    approve, until = held.approve, held.until
    return Wait(current.uid, "dry-run", reason, release, changes, approve=approve, until=until)


def rival(current: Current, step: Write, until: float) -> Wait:
    """Return the hold on an object that another writer keeps reverting."""
    reason = "somebody else keeps changing it back"
    release = "another decision, or the end of a truce of one to ten minutes"
    return Wait(current.uid, "rival", reason, release, changes_of(current, step), until=until)


def postponed(current: Current, step: Write, why: Braked | Unfinished) -> Wait:
    """Return the hold of the guard, or of the next step of a move, on an object."""
    changes, approve = changes_of(current, step), why.approve
    return Wait(
        current.uid, why.kind, why.reason, why.release, changes, approve=approve, until=why.until
    )


def refused(current: Current, step: Write, error: str) -> Wait:
    """Return the hold on an object whose PATCH was refused."""
    release = "the object or its decision changes"
    return Wait(current.uid, "refused", error, release, changes_of(current, step))


def forbidden(current: Current, step: Write, error: str) -> Wait:
    """Return the hold on an object that this process has no permission to PATCH."""
    release = "the remediator is granted it; tried again every minute"
    return Wait(current.uid, "forbidden", error, release, changes_of(current, step))


def changes_of(current: Current, step: Write) -> _Changes:
    """Return every key that differs with its value before and after, without our own (`OWN`)."""
    pairs = ((current.annotations, step.annotations), (current.labels, step.labels))
    return {
        key: (before.get(key), value)
        for before, values in pairs
        for key, value in values.items()
        if before.get(key) != value and key not in OWN
    }
