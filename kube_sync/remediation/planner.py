"""Plans the step of an object once for the same decision on the same state of the object.

A step is planned when the object may have changed, since all changes are weighed first, and is
needed again when a worker gets its key. Invariant: a kept step is used only for the very decision
and state that it was planned from, and once, so that a later try plans anew; one that depends on
more than these is not kept. A bounded number of steps is kept; the others are planned again.

`Moves` divides moves into steps, or does not (`Together`; `add_first` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Step, Wanted, Write

_KEPT: Final = 10_000  # steps, of about a kilobyte each


# Returns the clusters where an object is healthy, by its annotations and by its JSON.
ReadHealth = Callable[[Mapping[str, str], bytes], frozenset[str]]
PlanStep = Callable[[Wanted], Step]  # returns the step of a decision


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Why a move is not carried out whole yet, and its whole change.

    `kind` is that of a hold; `until` is Unix seconds.
    """

    kind: str
    reason: str
    release: str
    move: Write
    until: float | None = None
    approve: str | None = None

    def seconds(self, now: float) -> float | None:
        """Return the seconds until the next step is due, None if time alone brings none."""
        return None if self.until is None else max(0.0, self.until - now)


@dataclass(frozen=True, slots=True)
class Parts:
    """A step of a move that has several.

    `wanted`: the decision with the placement that this step leads to. `weighed`: what the brakes
    weigh. `left`: why the step is not the whole move, None if it is the last one.
    """

    wanted: Wanted
    weighed: Step
    left: Unfinished | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The step of an object, and the decision and state that it was planned from.

    `parts` is set if it depends on more than these: the step is one of a move that has several.
    """

    wanted: Wanted | None
    current: Current | None
    step: Step
    parts: Parts | None = None

    @property
    def carried_out(self) -> Wanted | None:
        """The decision that the step carries out."""
        return self.wanted if self.parts is None else self.parts.wanted

    @property
    def weighed(self) -> Step:
        """What the brakes weigh."""
        return self.step if self.parts is None else self.parts.weighed

    @property
    def left(self) -> Unfinished | None:
        """Why the step is not the whole change, None if it is."""
        return None if self.parts is None else self.parts.left


class Moves(Protocol):
    """Divides moves into steps."""

    def read_health(self, gvr: GroupVersionResource) -> ReadHealth | None:
        """Return what reads the clusters where an object is healthy from it; None: nothing."""

    @property
    def in_steps(self) -> bool:
        """Whether a move may have several steps, whose record names the spec of the object."""

    def planned(self, key: Key, wanted: Wanted, current: Current, plan_step: PlanStep) -> Planned:
        """Return what to write now for a decision."""


class Together:
    """Makes each move in one step."""

    in_steps = False

    def read_health(self, gvr: GroupVersionResource) -> ReadHealth | None:
        """Return nothing: no step waits for it."""
        del gvr
        return None

    def planned(self, key: Key, wanted: Wanted, current: Current, plan_step: PlanStep) -> Planned:
        """Return the whole change."""
        del key
        return Planned(wanted, current, plan_step(wanted))


class Planner:
    """Plans steps, and keeps those of enqueued objects."""

    def __init__(
        self,
        wanted: Callable[[Key], Wanted | None],
        current: Callable[[Key], Current | None],
        plan: Callable[[Key, Wanted | None, Current | None], Step],
        moves: Moves | None = None,
    ) -> None:
        """Plan by `plan` from what `wanted` and `current` return for a key.

        `moves` divides moves into steps, None: each is one.
        """
        self._moves = moves or Together()
        self._wanted = wanted
        self._current = current
        self._step = plan
        self._kept: dict[Key, Planned] = {}

    def plan(self, key: Key) -> Planned:
        """Plan the step of an object."""
        return self._plan(key, self._wanted(key), self._current(key))

    def keep(self, key: Key, planned: Planned) -> None:
        """Keep a planned step until it is taken or dropped, or another is kept."""
        if planned.parts is not None:
            self.drop(key)
        elif key in self._kept or len(self._kept) < _KEPT:
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
        if wanted is None or current is None:
            return Planned(wanted, current, self._step(key, wanted, current))

        def plan_step(wanted: Wanted) -> Step:
            return self._step(key, wanted, current)

        return self._moves.planned(key, wanted, current, plan_step)
