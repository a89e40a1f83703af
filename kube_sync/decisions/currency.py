"""What decisions stand on, and is not current: since when, and why.

Decisions stand on what OPA holds. While a collection cannot be watched or listed, or OPA takes
nothing, they are made of what was, and nothing else tells so: the stream goes on. It says that
something is late at once, and how long it has been; how much of that is too much, readers decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kube_sync.decisions.records import Stale


@dataclass(frozen=True, slots=True)
class Late:
    """One source that is not current, since `since` on the clock of its Currency."""

    source: str
    since: float
    reason: str


class Currency:
    """All sources of decisions that are late."""

    def __init__(self, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        """Tell `changed` when there are others; `clock` never goes back (seconds)."""
        self._changed = changed
        self._clock = clock
        self._late: dict[str, Late] = {}

    @property
    def late(self) -> tuple[Late, ...]:
        """Every source that is late, by name."""
        return tuple(one for _, one in sorted(self._late.items()))

    def tell(self, source: str, reason: str | None) -> None:
        """Take note of why a source is not current, None: it is."""
        known = self._late.get(source)
        if reason == (known.reason if known is not None else None):
            return
        if reason is None:
            del self._late[source]
        else:
            since = self._clock() if known is None else known.since
            self._late[source] = Late(source, since, reason)
        self._changed()

    def begin(self) -> None:
        """Forget all: another load begins, which ends with everything current."""
        if self._late:
            self._late.clear()
            self._changed()

    def told(self, late: tuple[Late, ...]) -> tuple[Stale, ...]:
        """Return these as a reader is told of them now."""
        now = self._clock()
        return tuple(Stale(one.source, now - one.since, one.reason) for one in late)
