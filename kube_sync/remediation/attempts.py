"""Results of earlier attempts on each object, which suppress or delay the next one.

Invariant: a step that succeeded, or that the API server refused, is not repeated for the same
object, decision and state; a forbidden one (403) is retried every minute; one that another writer
keeps reverting waits until a truce ends (`guard.rivals`). Other failures are requeued by the work
queue, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kube_sync.decisions.decision import Decision
from kube_sync.guard.rivals import Rivals
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import name_of
from kube_sync.remediation.plan import Current, Wanted, Write

FORBIDDEN_SECONDS: Final = 60.0


class Attempts:
    """The last step of each object that must not be retried, or not yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rivals = Rivals()
        self._done: dict[Key, Write] = {}
        self._forbidden: dict[Key, tuple[str, float]] = {}  # the step's name, and until when

    def begin(self) -> None:
        """Allow every step to be tried again."""
        self._done.clear()
        self._forbidden.clear()

    def is_done(self, key: Key, step: Write) -> bool:
        """Return whether a step must not be repeated until the object or its decision changes."""
        return self._done.get(key) == step

    def is_open(self, key: Key, wanted: Wanted, current: Current, step: Write) -> bool:
        """Return whether no earlier attempt suppresses or delays a step."""
        return (
            not self.is_done(key, step)
            and self.forbidden_until(key, step) is None
            and self.rival_until(key, wanted, current) is None
        )

    def rival_until(self, key: Key, wanted: Wanted, current: Current) -> float | None:
        """Return until when an object is left to another writer, or None."""
        return self._rivals.truce(key, _about(wanted, current), self._clock())

    def forbidden_until(self, key: Key, step: Write) -> float | None:
        """Return when to retry a forbidden step, or None."""
        if key not in self._forbidden:  # fast path: a step's name is expensive
            return None
        name, until = self._forbidden[key]
        return until if name == name_of(step) and self._clock() < until else None

    def applied(self, key: Key, wanted: Wanted, current: Current) -> None:
        """Record a successful write, which another writer may revert."""
        self._rivals.wrote(key, _about(wanted, current), self._clock())

    def done(self, key: Key, step: Write) -> None:
        """Record a step that must not be repeated."""
        self._done[key] = step

    def forbid(self, key: Key, step: Write) -> None:
        """Record a forbidden step."""
        self._forbidden[key] = name_of(step), self._clock() + FORBIDDEN_SECONDS

    def release(self, key: Key) -> bool:
        """Allow a forbidden step to be retried; return whether there was one."""
        return self._forbidden.pop(key, None) is not None

    def settled(self, key: Key, *, gone: bool) -> None:
        """Forget the steps of an object that needs none."""
        self._done.pop(key, None)
        self._forbidden.pop(key, None)
        if gone:
            self._rivals.forget(key)


def _about(wanted: Wanted, current: Current) -> tuple[str, Decision | None]:
    # With the uid: a new object of the same name has no rivals yet.
    return (current.uid, wanted.decision)
