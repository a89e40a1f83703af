"""Tracks which sources are stale, since when, and why.

A source that is current again may still have to deliver what it missed. So with `settle_seconds`
it counts as stale for that long, and one that is stale again by then was so all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SETTLE_SECONDS: Final = 5.0  # until the missed changes of a source have arrived, and are decided on

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stale:
    """A source that has not been current for `age` seconds, and why."""

    source: str
    age: float
    reason: str


@dataclass(frozen=True, slots=True)
class StaleSource(Generic[_T]):
    """A source that has not been current since `since` on the clock of its Freshness."""

    source: str
    since: float
    reason: str
    details: tuple[_T, ...] = ()


class Freshness(Generic[_T]):
    """The stale sources; a report may have details of type `_T` beside the reason."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        settle_seconds: float = 0.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock` is monotonic (seconds).

        `on_change` is called when a report changes `sources`; not when a source has settled.
        """
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._on_change = on_change
        self._sources: dict[str, StaleSource[_T]] = {}
        self._ended: dict[str, float] = {}  # the sources that are current again, but not settled

    @property
    def sources(self) -> tuple[StaleSource[_T], ...]:
        """Every stale source, by name."""
        self._drop_settled(self._clock())
        return tuple(one for _, one in sorted(self._sources.items()))

    def stale(self) -> list[Stale]:
        """Return every stale source with its age, the oldest first."""
        now = self._clock()
        found = sorted(self.sources, key=lambda one: one.since)
        return [Stale(one.source, now - one.since, one.reason) for one in found]

    def age(self, stale: StaleSource[_T]) -> float:
        """Return for how many seconds a source has not been current."""
        return self._clock() - stale.since

    def report(
        self, source: str, reason: str | None, details: tuple[_T, ...] = (), *, age: float = 0.0
    ) -> None:
        """Record why a source is stale, for `age` seconds at least; None: it is current."""
        now = self._clock()
        self._drop_settled(now)
        known = self._sources.get(source)
        if reason is None:
            self._end(source, now)
        else:
            since = now - age if known is None else min(known.since, now - age)
            self._sources[source] = StaleSource(source, since, reason, details)
            self._ended.pop(source, None)
        if self._sources.get(source) != known:
            self._on_change()

    def reporter(self, source: str) -> Callable[[str | None], None]:
        """Return a function that takes why a source is stale; None: it is current."""
        return lambda reason: self.report(source, reason)

    def replace(self, stale: Iterable[Stale]) -> None:
        """Record that these sources are stale, and all others are current."""
        found = {one.source: one for one in stale}
        for source in self._sources.keys() - found.keys():
            self.report(source, None)
        for one in found.values():
            self.report(one.source, one.reason, age=one.age)

    def clear(self) -> None:
        """Drop all sources, as if none had been reported."""
        if self._sources:
            self._sources.clear()
            self._ended.clear()
            self._on_change()

    def _end(self, source: str, now: float) -> None:
        if not self._settle_seconds:
            self._sources.pop(source, None)
        elif source in self._sources:
            self._ended.setdefault(source, now)

    def _drop_settled(self, now: float) -> None:
        for source, ended in list(self._ended.items()):
            if now - ended > self._settle_seconds:
                del self._ended[source], self._sources[source]


def oldest(*freshness: Freshness[_T]) -> Stale | None:
    """Return the source that has been stale for longest; None: all are current."""
    return max((s for one in freshness for s in one.stale()), key=lambda s: s.age, default=None)
