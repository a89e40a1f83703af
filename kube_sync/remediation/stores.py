"""Stores that wrap others: one watch for two Stores, and verified bodies of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kube_sync.kube.collection import Event, Item
from kube_sync.kube.reflector import Store


class Both:
    """Two Stores of one collection, fed by one watch."""

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
        """Drop an incomplete LIST."""
        for store in self._stores:
            store.abandon()

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        for store in self._stores:
            store.apply(event)


class Proven:
    """A Store that passes on the JSON that `proven` returns for each object."""

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
        """Drop an incomplete LIST."""
        self._store.abandon()

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        item = event.item
        self._store.apply(event if item is None else replace(event, item=self._of(item)))

    def _of(self, item: Item) -> Item:
        body = self._proven(item)
        return item if body is item.body else replace(item, body=body)
