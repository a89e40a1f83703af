"""The objects of one collection in memory, kept current by a Reflector (client-go: cache.Store).

Keeps true: a LIST counts when it is whole, and one that broke off changes nothing. A kind that the
API server does not know takes nothing away, unless the cache is made to be empty then
(`when_unknown`): `availability.py` asks discovery first, but a definition that somebody
deleted by mistake is no reason to undo what stood on its objects. The cache holds the new state
before a callback runs, so a callback reads what is true.

A class of this module may be derived from to add ways to read it, never to change what it keeps.
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
# By key: what was held before and what is now, None: no object.
Changes = Mapping[ObjectKey, tuple[T | None, T | None]]

_SLICE = 20  # objects that are parsed before other tasks may run: one may have a megabyte


@dataclass(eq=False, slots=True)
class Write:
    """A write on its way."""

    key: ObjectKey
    overtaken: bool = False  # the object was deleted, or the collection listed, since it was sent


class Cache(Generic[T]):
    """What `parse` makes of each object of a collection, by the object's key.

    An object that `parse` returns None for is not held. `parse` may raise SyncError: the Reflector
    reports it and tries again, and what is held stands.
    """

    def __init__(
        self,
        parse: Callable[[Item], T | None],
        on_change: Callable[[Changes[T]], None] = lambda _changes: None,
        on_list: Callable[[], None] = lambda: None,
        *,
        when_unknown: Literal["keep", "empty"] = "keep",
        merge: Callable[[T | None, T], T] = lambda _held, found: found,
        differs: Callable[[T | None, T | None], bool] = ne,
    ) -> None:
        """Call `on_change` with what an event changed, and once a LIST with what `differs` by it.

        `on_list` is called at the end of each LIST, also of a kind that is unknown. `merge` makes
        what is to be held of what was held and what was found.
        """
        self.listed = False  # the whole collection was known once
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
        """Return what is held of an object, None if there is no such object."""
        return self._objects.get(key)

    @property
    def objects(self) -> Mapping[ObjectKey, T]:
        """What is held of all objects, by key; another mapping after each LIST."""
        return self._objects

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, key: ObjectKey, value: T | None, *, notify: bool = True) -> None:
        """Hold what a write was answered with, before the watch brings it; None: it is deleted."""
        before = self._objects.pop(key, None)
        if value is not None:
            self._objects[key] = value
        if notify and self._differs(before, value):
            self._on_change({key: (before, value)})

    @contextmanager
    def writing(self, key: ObjectKey) -> Iterator[Write]:
        """Yield a write to be sent now: the watch may be further than the answer is.

        Whoever would hold the answer to one that was overtaken holds what is gone, for ever.
        """
        write = Write(key)
        self._writes.append(write)
        try:
            yield write
        finally:
            self._writes.remove(write)

    # The Store of a Reflector

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for number, item in enumerate(items, 1):
            if (found := self._parse(item)) is not None:
                self._listing[item.key] = found
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held."""
        listing, self._listing = self._listing, {}
        self.served = known
        if known or self._empties:
            self.listed = True
            self._overtake(self._writes)
            self._replace({key: self._merged(key, found) for key, found in listing.items()})
        self._on_list()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
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
