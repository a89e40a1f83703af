"""What came of the steps that were tried, and which steps are not to be tried now.

Keeps true: a step that was done, or that the API server refused, is not repeated for the same
object, decision and state; one that is forbidden is tried again every minute; one that somebody
else keeps undoing is left to them until a truce ends (`guard.rivals`). What merely failed is no
business of this module: the queue tries it again.
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
    """The last step of each object that is no use to try again, or not yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rivals = Rivals()
        self._done: dict[Key, Write] = {}
        self._forbidden: dict[Key, tuple[str, float]] = {}  # the step's name, and until when

    def begin(self) -> None:
        """Let everything be tried once more."""
        self._done.clear()
        self._forbidden.clear()

    def is_done(self, key: Key, step: Write) -> bool:
        """Tell whether a step is no use to repeat: the watch will tell, or somebody change it."""
        return self._done.get(key) == step

    def is_open(self, key: Key, wanted: Wanted, current: Current, step: Write) -> bool:
        """Tell whether nothing is known that stops a step now."""
        return (
            not self.is_done(key, step)
            and self.forbidden_until(key, step) is None
            and self.rival_until(key, wanted, current) is None
        )

    def rival_until(self, key: Key, wanted: Wanted, current: Current) -> float | None:
        """Return until when an object is left to somebody else, None: it is not."""
        return self._rivals.truce(key, _about(wanted, current), self._clock())

    def forbidden_until(self, key: Key, step: Write) -> float | None:
        """Return when to try again what was forbidden, None: now."""
        if key not in self._forbidden:  # to name a step takes long, and most are not
            return None
        name, until = self._forbidden[key]
        return until if name == name_of(step) and self._clock() < until else None

    def applied(self, key: Key, wanted: Wanted, current: Current) -> None:
        """Take note of a write, which somebody else may undo."""
        self._rivals.wrote(key, _about(wanted, current), self._clock())

    def done(self, key: Key, step: Write) -> None:
        """Take note that a step is no use to repeat."""
        self._done[key] = step

    def forbid(self, key: Key, step: Write) -> None:
        """Take note that a step is forbidden."""
        self._forbidden[key] = name_of(step), self._clock() + FORBIDDEN_SECONDS

    def release(self, key: Key) -> bool:
        """Let what was forbidden be tried again; tell whether anything was."""
        return self._forbidden.pop(key, None) is not None

    def settled(self, key: Key, *, gone: bool) -> None:
        """Forget the steps of an object of which none is wanted."""
        self._done.pop(key, None)
        self._forbidden.pop(key, None)
        if gone:
            self._rivals.forget(key)


def _about(wanted: Wanted, current: Current) -> tuple[str, Decision | None]:
    # Of this very object: another one of its name may have rivals of its own.
    return (current.uid, wanted.decision)
