"""What decisions stand on, and is not current: since when, and why.

Decisions stand on what OPA holds. While a collection cannot be watched or listed, or OPA takes
nothing, they are made of what was, and nothing else tells so: the stream goes on. It says that
something is late at once, and how long it has been; how much of that is too much, readers decide.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kube_sync.decisions.records import Stale, Target, Unreadable
from kube_sync.objects import GroupVersionResource, ObjectKey

_NAMED = 100  # objects of a collection that cannot be read: who makes many fills no stream


@dataclass(frozen=True, slots=True)
class Late:
    """One source that is not current, since `since` on the clock of its Currency."""

    source: str
    since: float
    reason: str
    unreadable: tuple[Unreadable, ...] = ()


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

    def tell(
        self, source: str, reason: str | None, unreadable: tuple[Unreadable, ...] = ()
    ) -> None:
        """Take note of why a source is not current, and for which objects; None: it is."""
        known = self._late.pop(source, None)
        late = None
        if reason is not None:
            since = self._clock() if known is None else known.since
            late = self._late[source] = Late(source, since, reason, unreadable)
        if late != known:
            self._changed()

    def unread(
        self,
        name: str,
        gvr: GroupVersionResource | None,
        found: Mapping[ObjectKey, tuple[str, str]],
    ) -> None:
        """Take note of what cannot be read of a collection: the uid of each object, and why."""
        source, keys = f"{name} that cannot be read", heapq.nsmallest(_NAMED, found)
        if not keys:
            self.tell(source, None)
            return
        more = f"; {len(found) - 1} more" if len(found) > 1 else ""
        named = () if gvr is None else (Unreadable(Target.of(gvr, k), *found[k]) for k in keys)
        self.tell(source, f"{keys[0]}: {found[keys[0]][1]}{more}", tuple(named))

    def begin(self) -> None:
        """Forget all: another load begins, which ends with everything current."""
        if self._late:
            self._late.clear()
            self._changed()

    def told(self, late: tuple[Late, ...]) -> tuple[Stale, ...]:
        """Return these as a reader is told of them now."""
        now = self._clock()
        return tuple(Stale(one.source, now - one.since, one.reason, one.unreadable) for one in late)
