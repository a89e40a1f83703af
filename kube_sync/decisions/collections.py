"""The collections that decisions are about or look at, and what their state means to readers.

Readers act on nothing while a collection is loaded or the API server does not know its kind: it
looks empty, and would move objects. Of an object that cannot be read there is no decision but a
failure that says so, and where others may be decided by such an object, what decisions stand on is
not current.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Protocol

from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import report_unreadable
from kube_sync.decisions.sharing import Objects
from kube_sync.objects import GroupVersionResource, ObjectKey


class Collection_(Objects, Protocol):  # noqa: N801 - collections.abc has the plain name
    """What OPA holds of one collection."""

    gvr: GroupVersionResource | None  # None: it is not of the API server
    known: bool
    learning: bool  # the classes of its objects will soon be known

    @property
    def loaded(self) -> bool:
        """Whether OPA holds what was listed first."""
        ...

    @property
    def pending(self) -> int:
        """How many changes OPA does not hold yet."""
        ...

    @property
    def unreadable(self) -> Mapping[ObjectKey, tuple[str, str]]:
        """The uid of each object that cannot be read, and why; OPA may hold a past state of it."""
        ...

    def turned(self) -> Collection[ObjectKey]:
        """Which objects became readable or unreadable since this was asked last."""
        ...

    def keys(self) -> Iterable[ObjectKey]:
        """Every object that OPA holds."""
        ...


class TrackedCollections:
    """The collections by name, with their holds in a DecisionHub."""

    def __init__(
        self,
        hub: DecisionHub,
        targets: Mapping[str, GroupVersionResource],
        collections: Iterable[Collection_],
    ) -> None:
        """`targets` are the collections that decisions are about, by name in OPA."""
        self._hub = hub
        self.targets = dict(targets)
        self.found = {found.name: found for found in collections}
        self._loading: set[str] = set()  # added while others are in, and not decided on yet

    def expect(self, found: Collection_, target: GroupVersionResource | None) -> bool:
        """Hold until this collection, new or in place of its namesake, is in and decided on.

        Returns what `retarget` does.
        """
        # Before the target: no reader may act on what is forgotten of the old one.
        self._hub.hold(f"load {found.name}", f"{found.name}: is being loaded")
        self._loading.add(found.name)
        self.found[found.name] = found
        return self.retarget(found.name, target)

    def is_loading(self, name: str) -> bool:
        """Tell whether a collection was added, and is not decided on yet."""
        return name in self._loading

    def retarget(self, name: str, target: GroupVersionResource | None) -> bool:
        """Have decisions be about this collection, or not any more; returns whether that is new."""
        old = self.targets.pop(name, None)
        if target is not None:
            self.targets[name] = target
        self._tell_unreadable(name)
        if old is not None and old not in self.targets.values():
            self._hub.retain(old, ())
        return old != target

    def forget(self, name: str) -> bool:
        """Forget a collection; returns what `retarget` does."""
        self.found.pop(name, None)
        was_target = self.retarget(name, None)
        self._loading.discard(name)
        for hold in ("load", "missing"):
            self._hub.release(f"{hold} {name}")
        return was_target

    def keys(self, name: str) -> Collection[ObjectKey]:
        """Return all objects of a collection that there is something to say of."""
        found = self.found[name]
        return dict.fromkeys(chain(found.keys(), found.unreadable)).keys()

    @property
    def learning(self) -> bool:
        """Whether one LIST will save most of the evaluations of a sweep."""
        return any(self.found[name].learning for name in self.targets)

    def turned(self) -> Iterator[tuple[str, Collection[ObjectKey]]]:
        """Yield what became readable or not since the last call, of each target.

        What others may be decided by, and cannot be read, is told in the hub.
        """
        for name, found in self.found.items():
            turned = found.turned()
            if name in self.targets:
                yield name, turned
            if turned:
                self._tell_unreadable(name)

    def hold_missing(self) -> None:
        """Hold for every kind that the API server lacks: it looks empty, and moves nothing."""
        for found in self.found.values():
            if not found.known:
                reason = f"{found.name}: the API server does not know this resource"
                self._hub.hold(f"missing {found.name}", reason)

    def release_decided(self) -> None:
        """Release what is loaded or known again; the decisions are made on all that OPA holds."""
        for found in self.found.values():
            if found.known and not found.pending:
                self._hub.release(f"missing {found.name}")
        for name in sorted(self._loading):
            if self.found[name].loaded and not self.found[name].pending:
                self._loading.discard(name)
                if name in self.targets:
                    self._forget_deleted(name)
                self._hub.release(f"load {name}")

    def forget_deleted(self) -> None:
        """Forget the decisions on objects that are not there any more."""
        for name in self.targets:
            self._forget_deleted(name)

    def _forget_deleted(self, name: str) -> None:
        self._hub.retain(self.targets[name], self.keys(name))

    def _tell_unreadable(self, name: str) -> None:
        found = None if name in self.targets else self.found.get(name)
        if found is None:
            report_unreadable(self._hub.freshness, name, None, {})
        else:
            report_unreadable(self._hub.freshness, name, found.gvr, found.unreadable)
