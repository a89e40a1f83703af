"""Give a Store a whole LIST at once, as a Reflector would page by page, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.reflector import ListerWatcher, Store
from kube_sync.replicator.bulk_load import FirstLoad


@dataclass(frozen=True)
class Listing:
    """A whole collection at one resourceVersion."""

    items: list[Item]
    version: ResourceVersion


def listed(store: Store, listing: Listing, *, known: bool = True) -> None:
    """Make `store` hold exactly these objects."""
    at_once(store.page(listing.items))
    store.finish(known=known)


async def whole(source: ListerWatcher) -> Listing:
    """Return all pages of one LIST together."""
    items: list[Item] = []
    version = ResourceVersion("")
    async with aclosing(source.list()) as pages:
        async for page in pages:
            items += page.items
            version = page.version
    return Listing(items, version)


def document(first: FirstLoad) -> bytes:
    """Return the whole document of a first LIST that has ended."""
    chunks: list[bytes] = []

    async def read() -> None:
        chunks.extend([chunk async for chunk in first.chunks()])

    at_once(read())
    return b"".join(chunks)


def at_once(steps: Coroutine[Any, Any, None]) -> None:
    """Run what does not have to wait, although it may let others run (`asyncio.sleep(0)`)."""
    waits = None
    try:
        while waits is None:
            waits = steps.send(None)
    except StopIteration:
        return
    steps.close()
    msg = "it waits"
    raise AssertionError(msg)
