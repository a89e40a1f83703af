"""In-memory cache of one collection, kept current by a Reflector (client-go: cache.Store).

Invariant: only a complete LIST replaces the cache; one that broke off changes nothing. When the API
server does not know the kind the cache keeps its objects, unless `when_unknown` is "empty".
`availability.py` asks discovery first, but a definition that was deleted by mistake is no reason to
undo what was decided from its objects. The cache is updated before a callback runs, so a callback
reads the new state.

A subclass may add ways to read the cache, and never changes what it stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import ne
from typing import Generic, Literal, TypeVar

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey

T = TypeVar("T")
# By key: the cached value before and after; None: no object.
Changes = Mapping[ObjectKey, tuple[T | None, T | None]]

_SLICE = 20  # objects parsed between two yields to other tasks: one may have a megabyte


@dataclass(eq=False, slots=True)
class Write:
    """A write request whose answer has not arrived yet."""

    key: ObjectKey
    overtaken: bool = False  # since it was sent, the object was deleted or the collection listed


class Cache(Generic[T]):
    """Caches the value that `parse` returns for each object of a collection, by the object's key.

    An object is not cached if `parse` returns None for it. `parse` may raise SyncError: the
    Reflector reports it and retries, and the cache stays as it is.
    """

    def __init__(
        self,
        parse: Callable[[Item], T | None],
        on_change: Callable[[Changes[T]], None] = lambda _changes: None,
        on_list: Callable[[], None] = lambda: None,
        *,
        when_unknown: Literal["keep", "empty"] = "keep",
        merge: Callable[[T | None, T], T] = lambda _old, found: found,
        differs: Callable[[T | None, T | None], bool] = ne,
    ) -> None:
        """Call `on_change` with the changed values (`differs`) of each watch event and each LIST.

        `on_list` is called at the end of each LIST, also if the kind is unknown. `merge` combines
        the cached value and the new one into the value to cache.
        """
        self.listed = False  # a LIST of the whole collection has succeeded once
        self.served = False  # the API server knew the kind at the last LIST
        self._parse = parse
        self._on_change = on_change
        self._on_list = on_list
        self._empties = when_unknown == "empty"
        self._merge = merge
        self._differs = differs
        self._objects: dict[ObjectKey, T] = {}
        self._listing: dict[ObjectKey, T] = {}
        self._writes: list[Write] = []

    def get(self, key: ObjectKey) -> T | None:
        """Return the cached value of an object, None if there is no such object."""
        return self._objects.get(key)

    @property
    def objects(self) -> Mapping[ObjectKey, T]:
        """All cached values, by key; a new mapping after each LIST."""
        return self._objects

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, key: ObjectKey, value: T | None, *, notify: bool = True) -> None:
        """Cache the answer to a write before its watch event arrives; None: it was deleted."""
        before = self._objects.pop(key, None)
        if value is not None:
            self._objects[key] = value
        if notify and self._differs(before, value):
            self._on_change({key: (before, value)})

    @contextmanager
    def writing(self, key: ObjectKey) -> Iterator[Write]:
        """Yield a write to send now; `overtaken` tells if the watch got ahead of its answer.

        Do not `put` the answer to an overtaken write: the object may be gone, and would be cached
        forever.
        """
        write = Write(key)
        self._writes.append(write)
        try:
            yield write
        finally:
            self._writes.remove(write)

    # The Store of a Reflector

    async def page(self, items: Sequence[Item]) -> None:
        """Parse one page of a LIST."""
        for number, item in enumerate(items, 1):
            if (found := self._parse(item)) is not None:
                self._listing[item.key] = found
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def finish(self, *, known: bool) -> None:
        """Replace the cache with the result of the LIST."""
        listing, self._listing = self._listing, {}
        self.served = known
        if known or self._empties:
            self.listed = True
            self._overtake(self._writes)
            self._replace({key: self._merged(key, found) for key, found in listing.items()})
        self._on_list()

    def abandon(self) -> None:
        """Discard a LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        if event.item is None:
            return
        found = None if event.type == "DELETED" else self._parse(event.item)
        if found is None:
            self._overtake(write for write in self._writes if write.key == event.item.key)
        self.put(event.item.key, None if found is None else self._merged(event.item.key, found))

    @staticmethod
    def _overtake(writes: Iterable[Write]) -> None:
        for write in writes:
            write.overtaken = True

    def _merged(self, key: ObjectKey, found: T) -> T:
        return self._merge(self._objects.get(key), found)

    def _replace(self, now: dict[ObjectKey, T]) -> None:
        before, self._objects = self._objects, now
        both = {key: (before.get(key), now.get(key)) for key in {**before, **now}}
        self._on_change({key: pair for key, pair in both.items() if self._differs(*pair)})
