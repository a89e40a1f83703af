"""A Store that keeps of each object what one reader makes of it, and says what became different."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from kube_sync.kube.collection import Event, Item
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey

T = TypeVar("T")

# By key: before and after, None for nothing.
Differences = Mapping[ObjectKey, tuple[T | None, T | None]]


class Kept(Generic[T]):
    """What `read` makes of each object of a collection; an object of which it makes None is none.

    `listed` is false until the whole collection is known, and while the API server lacks its kind:
    what was there before that is kept, since nobody deleted it.
    """

    def __init__(
        self,
        read: Callable[[Item], T | None],
        changed: Callable[[Differences[T]], None],
        listed: Callable[[], None],
    ) -> None:
        """Tell `changed` what is different, and `listed` each time that all of it is known."""
        self._read = read
        self._changed = changed
        self._was_listed = listed
        self._objects: dict[ObjectKey, T] = {}
        self._listing: dict[ObjectKey, T] = {}
        self.listed = False

    def get(self, key: ObjectKey) -> T | None:
        """Return what is kept of one object."""
        return self._objects.get(key)

    def put(self, key: ObjectKey, value: T | None) -> None:
        """Take in what is known before the watch tells it; None: the object is gone."""
        if (before := self._objects.get(key)) == value:
            return
        if value is None:
            del self._objects[key]
        else:
            self._objects[key] = value
        self._changed({key: (before, value)})

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        read = ((item.key, self._read(item)) for item in items)
        self._listing.update({key: value for key, value in read if value is not None})

    def finish(self, *, known: bool) -> None:
        """Hold exactly the objects of the LIST, unless there is no such kind."""
        self.listed = known
        if not known:
            self.abandon()
            return
        before, self._objects, self._listing = self._objects, self._listing, {}
        self._changed(_differences(before, self._objects))
        self._was_listed()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is not None:
            gone = event.type == "DELETED"
            self.put(event.item.key, None if gone else self._read(event.item))


class Both:
    """Two Stores of one collection, so that it is watched once."""

    def __init__(self, *stores: Store) -> None:
        self._stores = stores

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for store in self._stores:
            await store.page(items)

    def finish(self, *, known: bool) -> None:
        """Hold exactly the objects of the LIST."""
        for store in self._stores:
            store.finish(known=known)

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        for store in self._stores:
            store.abandon()

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        for store in self._stores:
            store.apply(event)


class Proven:
    """A Store that takes objects in as `proven` returns their JSON."""

    def __init__(self, store: Store, proven: Callable[[Item], bytes]) -> None:
        self._store = store
        self._proven = proven

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        await self._store.page([self._of(item) for item in items])

    def finish(self, *, known: bool) -> None:
        """Hold exactly the objects of the LIST."""
        self._store.finish(known=known)

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._store.abandon()

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        item = event.item
        self._store.apply(event if item is None else replace(event, item=self._of(item)))

    def _of(self, item: Item) -> Item:
        body = self._proven(item)
        return item if body is item.body else replace(item, body=body)


def _differences(before: Mapping[ObjectKey, T], after: Mapping[ObjectKey, T]) -> Differences[T]:
    keys: Iterable[ObjectKey] = before.keys() | after.keys()
    both = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: pair for key, pair in both.items() if pair[0] != pair[1]}
