"""What the decisions or the count of clusters stand on, and is not current: for how long.

A source that is current again has still to tell what it missed, and decisions have to be made on
that: those on the state before are what is wanted until then. So it counts as late for a moment
more; and one that is late again by then was late all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kube_sync.decisions.records import Stale as Told
from kube_sync.safety import Stale

STEADY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Late:
    since: float
    reason: str
    ended: float | None = None


class Staleness:
    """The sources that are late: those the stream tells of, and those watched here."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` never goes back (seconds)."""
        self._clock = clock
        self._told: dict[str, _Late] = {}
        self._own: dict[str, _Late] = {}

    def told(self, stale: Iterable[Told]) -> None:
        """Take in what the stream says of all its sources."""
        now = self._clock()
        said = {one.source: _Late(now - one.seconds, one.reason) for one in stale}
        for source in self._told.keys() - said.keys():
            _end(self._told, source, now)
        for source, late in said.items():
            _begin(self._told, source, late, now)

    def reporter(self, source: str) -> Callable[[str | None], None]:
        """Return a function that takes why a source watched here is not current, None: it is."""

        def report(reason: str | None) -> None:
            now = self._clock()
            if reason is None:
                _end(self._own, source, now)
            else:
                late = self._own.get(source)
                since = now if late is None or late.ended is not None else late.since
                _begin(self._own, source, _Late(since, reason), now)

        return report

    def longest(self, now: float) -> Stale | None:
        """Return what has been late for longest, None: all is current."""
        late = [
            (one.since, source, one.reason)
            for sources in (self._told, self._own)
            for source, one in sources.items()
            if not _is_over(one, now)
        ]
        if not late:
            return None
        since, source, reason = min(late)
        return Stale(source, now - since, reason)


def _begin(sources: dict[str, _Late], source: str, late: _Late, now: float) -> None:
    known = sources.get(source)
    if known is not None and not _is_over(known, now):
        late = replace(late, since=min(known.since, late.since))
    sources[source] = late


def _end(sources: dict[str, _Late], source: str, now: float) -> None:
    known = sources.get(source)
    if known is not None and known.ended is None:
        sources[source] = replace(known, ended=now)


def _is_over(late: _Late, now: float) -> bool:
    return late.ended is not None and now - late.ended > STEADY_SECONDS
