"""A Store that wraps another, and passes on verified bodies of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kube_sync.kube.collection import Event, Item
from kube_sync.kube.reflector import Store


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
