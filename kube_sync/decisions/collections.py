"""The collections that decisions are made for or read, with their holds in the hub.

While a collection is loading, or the API server does not know its kind, readers must not act: it
looks empty, and would move objects. For an object that cannot be read there is a failure in place
of a decision; if it may influence decisions on others, their data is reported as stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from itertools import chain
from typing import Protocol

from kube_sync.decisions.classes import Objects
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import report_unreadable
from kube_sync.objects import GroupVersionResource, ObjectKey


class Collection_(Objects, Protocol):  # noqa: N801 - collections.abc has the plain name
    """OPA's content of one collection."""

    gvr: GroupVersionResource | None  # None: not from the API server
    known: bool
    learning: bool  # its objects' classes will be known soon

    @property
    def loaded(self) -> bool:
        """Whether OPA holds the first LIST."""

    @property
    def pending(self) -> int:
        """The number of changes that OPA does not hold yet."""

    @property
    def unreadable(self) -> Mapping[ObjectKey, tuple[str, str]]:
        """The uid of each unreadable object, and why; OPA may hold an outdated state of it."""

    def take_readability_changes(self) -> Collection[ObjectKey]:
        """Return the objects that became readable or unreadable since the last call."""

    def keys(self) -> Iterable[ObjectKey]:
        """Return the keys of all objects in OPA."""


class TrackedCollections:
    """The collections by name, with their holds in a DecisionHub."""

    def __init__(
        self,
        hub: DecisionHub,
        targets: Mapping[str, GroupVersionResource],
        collections: Iterable[Collection_],
    ) -> None:
        """`targets` are the collections that decisions are made for, by name in OPA."""
        self._hub = hub
        self.targets = dict(targets)
        self.by_name = {collection.name: collection for collection in collections}
        self._loading: set[str] = set()  # added after the first load, and not decided on yet

    def expect(self, collection: Collection_, target: GroupVersionResource | None) -> bool:
        """Hold until this collection, new or a replacement, is loaded and decided on.

        Returns the result of `retarget`.
        """
        # Before the target: no reader may act on what is dropped of the old one.
        self._hub.hold(f"load {collection.name}", f"{collection.name}: is being loaded")
        self._loading.add(collection.name)
        self.by_name[collection.name] = collection
        return self.retarget(collection.name, target)

    def is_loading(self, name: str) -> bool:
        """Return whether a collection was added, and is not decided on yet."""
        return name in self._loading

    def retarget(self, name: str, target: GroupVersionResource | None) -> bool:
        """Make a collection a target of decisions, None: no longer one; return if it changed."""
        old = self.targets.pop(name, None)
        if target is not None:
            self.targets[name] = target
        self._report_unreadable(name)
        if old is not None and old not in self.targets.values():
            self._hub.retain(old, ())
        return old != target

    def forget(self, name: str) -> bool:
        """Remove a collection; return the result of `retarget`."""
        self.by_name.pop(name, None)
        was_target = self.retarget(name, None)
        self._loading.discard(name)
        for hold in ("load", "missing"):
            self._hub.release(f"{hold} {name}")
        return was_target

    def keys(self, name: str) -> Collection[ObjectKey]:
        """Return all objects of a collection that get a decision or a failure, as they are now."""
        collection = self.by_name[name]
        keys = collection.keys()
        if not collection.unreadable and isinstance(keys, KeysView):
            return keys  # a view, not a copy: it may be half a million
        return dict.fromkeys(chain(keys, collection.unreadable)).keys()

    @property
    def learning(self) -> bool:
        """Whether a running LIST will save most of the evaluations of a sweep."""
        return any(self.by_name[name].learning for name in self.targets)

    def take_readability_changes(self) -> Iterator[tuple[str, Collection[ObjectKey]]]:
        """Yield the objects of each target that became readable or unreadable since the last call.

        Unreadable objects of other collections are reported in the hub.
        """
        for name, collection in self.by_name.items():
            changed = collection.take_readability_changes()
            if name in self.targets:
                yield name, changed
            if changed:
                self._report_unreadable(name)

    def hold_missing(self) -> None:
        """Hold for every kind that the API server lacks: it looks empty, and must move nothing."""
        for collection in self.by_name.values():
            if not collection.known:
                reason = f"{collection.name}: the API server does not know this resource"
                self._hub.hold(f"missing {collection.name}", reason)

    def release_decided(self) -> None:
        """Release collections that are loaded or known again; all decisions are current now."""
        for collection in self.by_name.values():
            if collection.known and not collection.pending:
                self._hub.release(f"missing {collection.name}")
        for name in sorted(self._loading):
            if self.by_name[name].loaded and not self.by_name[name].pending:
                self._loading.discard(name)
                if name in self.targets:
                    self._forget_deleted(name)
                self._hub.release(f"load {name}")

    def forget_deleted(self) -> None:
        """Delete the decisions on objects that do not exist any more."""
        for name in self.targets:
            self._forget_deleted(name)

    def _forget_deleted(self, name: str) -> None:
        self._hub.retain(self.targets[name], self.keys(name))

    def _report_unreadable(self, name: str) -> None:
        collection = None if name in self.targets else self.by_name.get(name)
        if collection is None:
            report_unreadable(self._hub.freshness, name, None, {})
        else:
            report_unreadable(self._hub.freshness, name, collection.gvr, collection.unreadable)
