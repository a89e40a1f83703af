"""Events that no reconcile has succeeded with yet.

Keeps true: no event is lost, and none is told twice once a reconcile has succeeded with it. There
is one event for each object however many came, so it grows with the objects and not with time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.identity import Locator


class Backlog:
    """One event for each object, from the state that was last reconciled to the newest."""

    def __init__(self) -> None:
        self._events: dict[Locator, ResourceEvent] = {}
        self._shown: set[Locator] = set()  # to reconciles that have failed
        self._affected: frozenset[Locator] = frozenset()

    def add(self, events: Iterable[ResourceEvent], affected: frozenset[Locator]) -> None:
        """Take in the next events, and the nodes that they have affected."""
        self._affected |= affected
        for event in events:
            before = self._events.pop(event.locator, None)
            joined = event if before is None else self._joined(before, event)
            if joined is not None:
                self._events[event.locator] = joined

    def show(self) -> tuple[Sequence[ResourceEvent], frozenset[Locator]]:
        """Return all events, in the order of locators, and the nodes that they have affected."""
        self._shown.update(self._events)
        return [self._events[name] for name in sorted(self._events)], self._affected

    def clear(self) -> None:
        """Forget everything: a reconcile has succeeded with it."""
        self._events.clear()
        self._shown.clear()
        self._affected = frozenset()

    def _joined(self, first: ResourceEvent, then: ResourceEvent) -> ResourceEvent | None:
        old, kind = first.old, first.kind
        if old is None and then.new is None:
            if first.locator not in self._shown:
                return None  # it came and went, and nobody has heard of it
            # Whoever failed may have done something about it already, which is to be undone.
            old = then.old
        meaning = first.meaning or then.meaning
        return ResourceEvent(kind, first.namespace, first.name, old, then.new, meaning)
