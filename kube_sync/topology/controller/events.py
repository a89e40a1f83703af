"""What differs between two states of the world, one difference for each object.

Keeps true: an event tells of a whole step, from the state that was taken last to the one that is
taken now, however many changes there were between; so no two events of one step are of one object.
No event is lost that no reconcile has succeeded with, and none is told twice once one has: what
waits grows with the objects and not with time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kube_sync.topology.identity import GroupKind, Locator, locator
from kube_sync.topology.nodes import Body
from kube_sync.topology.raw_json import same

# Written by the API server about a write, not by anybody who wants something. The generation is
# not among them: it tells of a spec that changed and changed back, which its status has to follow.
_BOOKKEEPING = frozenset({"resourceVersion", "managedFields", "selfLink"})
_APART = frozenset({"status", "metadata"})


class EventType(StrEnum):
    """What became of an object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ResourceEvent:
    """One object in two states; `old` is None of what came, `new` of what is gone.

    An object that was replaced by another one of its name is an UPDATE, of another uid. An UPDATE
    without `meaning` changes the status or the resourceVersion alone.
    """

    kind: GroupKind
    namespace: str  # "" for what lies in none
    name: str
    old: Body | None
    new: Body | None
    meaning: bool = True

    @property
    def type(self) -> EventType:
        """What became of the object."""
        if self.new is None:
            return EventType.DELETE
        return EventType.CREATE if self.old is None else EventType.UPDATE

    @property
    def locator(self) -> Locator:
        """The object, as the topology calls it."""
        return locator(self.kind, self.namespace, self.name)


def means_the_same(old: Body, new: Body) -> bool:
    """Tell whether two states of an object differ in nothing but its status and bookkeeping."""
    return same(_without(old, _APART), _without(new, _APART)) and same(
        _without(old["metadata"], _BOOKKEEPING), _without(new["metadata"], _BOOKKEEPING)
    )


def _without(body: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in fields}


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
