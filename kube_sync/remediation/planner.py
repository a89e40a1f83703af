"""Plans the step of an object once for the same decision on the same state of the object.

A step is planned when the object may have changed, since all changes are weighed first, and is
needed again when a worker gets its key. Invariant: a kept step is used only for the very decision
and state that it was planned from, and once, so that a later try plans anew. A bounded number of
steps is kept; the others are planned again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Step, Wanted

_KEPT: Final = 10_000  # steps, of about a kilobyte each


@dataclass(frozen=True, slots=True)
class Planned:
    """The step of an object, and the decision and state that it was planned from."""

    wanted: Wanted | None
    current: Current | None
    step: Step


class Planner:
    """Plans steps, and keeps those of enqueued objects."""

    def __init__(
        self,
        wanted: Callable[[Key], Wanted | None],
        current: Callable[[Key], Current | None],
        plan: Callable[[Key, Wanted | None, Current | None], Step],
    ) -> None:
        """Plan by `plan` from what `wanted` and `current` return for a key."""
        self._wanted = wanted
        self._current = current
        self._step = plan
        self._kept: dict[Key, Planned] = {}

    def plan(self, key: Key) -> Planned:
        """Plan the step of an object."""
        return self._plan(key, self._wanted(key), self._current(key))

    def keep(self, key: Key, planned: Planned) -> None:
        """Keep a planned step until it is taken or dropped, or another is kept."""
        if key in self._kept or len(self._kept) < _KEPT:
            self._kept[key] = planned

    def take(self, key: Key) -> Planned:
        """Return the step of an object; it is planned unless it was kept."""
        wanted, current = self._wanted(key), self._current(key)
        kept = self._kept.pop(key, None)
        if kept is not None and kept.wanted is wanted and kept.current is current:
            return kept
        return self._plan(key, wanted, current)

    def drop(self, key: Key) -> None:
        """Drop the kept step of an object."""
        self._kept.pop(key, None)

    def _plan(self, key: Key, wanted: Wanted | None, current: Current | None) -> Planned:
        return Planned(wanted, current, self._step(key, wanted, current))
