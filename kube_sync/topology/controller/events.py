"""Events: the difference of each object between two states of the World, and their backlog.

Invariant: an event covers a whole step, from the state taken last to the present one, however many
changes were between; so a step has at most one event per object. An event is kept until a reconcile
has succeeded with it, and not delivered again after that: the backlog grows with the objects and
not with time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kube_sync.topology.nodes import Body, GroupKind, Locator, locator
from kube_sync.topology.raw_json import is_same

# Written by the API server itself. Not the generation: it shows a spec that changed and changed
# back, whose observedGeneration a status has to follow.
_BOOKKEEPING = frozenset({"resourceVersion", "managedFields", "selfLink"})
_APART = frozenset({"status", "metadata"})


class EventType(StrEnum):
    """The type of a change."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ResourceEvent:
    """One object in two states; `old` is None for a new one, `new` for a deleted one.

    An object that was replaced by another one of its name is an UPDATE, with another uid. An UPDATE
    without `meaning` changes only the status or the resourceVersion.
    """

    kind: GroupKind
    namespace: str  # "" if cluster-scoped
    name: str
    old: Body | None
    new: Body | None
    meaning: bool = True

    @property
    def type(self) -> EventType:
        """The type of the change."""
        if self.new is None:
            return EventType.DELETE
        return EventType.CREATE if self.old is None else EventType.UPDATE

    @property
    def locator(self) -> Locator:
        """The locator of the object in the topology."""
        return locator(self.kind, self.namespace, self.name)


def means_the_same(old: Body, new: Body) -> bool:
    """Return whether two states of an object differ only in status and bookkeeping."""
    return is_same(_without(old, _APART), _without(new, _APART)) and is_same(
        _without(old["metadata"], _BOOKKEEPING), _without(new["metadata"], _BOOKKEEPING)
    )


def _without(body: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in fields}


class Backlog:
    """One event per object, from the state of the last successful reconcile to the newest."""

    def __init__(self) -> None:
        self._events: dict[Locator, ResourceEvent] = {}
        self._shown: set[Locator] = set()  # to reconciles that have failed
        self._affected: frozenset[Locator] = frozenset()

    def add(self, events: Iterable[ResourceEvent], affected: frozenset[Locator]) -> None:
        """Add events, and the nodes that they affect."""
        self._affected |= affected
        for event in events:
            before = self._events.pop(event.locator, None)
            joined = event if before is None else self._joined(before, event)
            if joined is not None:
                self._events[event.locator] = joined

    def show(self) -> tuple[Sequence[ResourceEvent], frozenset[Locator]]:
        """Return all events, sorted by locator, and the nodes that they affect."""
        self._shown.update(self._events)
        return [self._events[name] for name in sorted(self._events)], self._affected

    def clear(self) -> None:
        """Drop everything: a reconcile has succeeded with it."""
        self._events.clear()
        self._shown.clear()
        self._affected = frozenset()

    def _joined(self, first: ResourceEvent, then: ResourceEvent) -> ResourceEvent | None:
        old, kind = first.old, first.kind
        if old is None and then.new is None:
            if first.locator not in self._shown:
                return None  # created and deleted, and no reconcile has seen it
            # A failed reconcile may have acted on it, which has to be undone.
            old = then.old
        meaning = first.meaning or then.meaning
        return ResourceEvent(kind, first.namespace, first.name, old, then.new, meaning)
