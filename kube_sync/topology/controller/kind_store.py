"""The Store of one kind's Reflector: decodes objects and hands them to the World.

Invariant: a LIST takes effect whole or not at all. An object that cannot be decoded keeps its last
state, with a log line. A store that was replaced changes nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Event, Item
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.topology.nodes import Body, GroupKind, Kind, Locator, locator
from kube_sync.topology.raw_json import is_deeper

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SLICE = 100  # objects that are decoded before the loop yields
# Deeper objects are refused: comparing and merging JSON is recursive, and the author of one object
# must not be able to stop the processing of all others.
_DEEPEST = 100


class World(Protocol):
    """Holds the objects of all kinds."""

    def get(self, locator: Locator) -> Body | None:
        """Return the present state of an object."""

    def listens(self, store: Store, kind: GroupKind) -> bool:
        """Return whether a store is still that of its kind."""

    def replace(self, kind: GroupKind, objects: Mapping[Locator, tuple[ObjectKey, Body]]) -> None:
        """Hold exactly these objects of a kind."""

    def absent(self, kind: GroupKind) -> None:
        """Record that the API server does not know a kind."""

    def change(self, kind: GroupKind, name: Locator, key: ObjectKey, body: Body | None) -> None:
        """Set the state of an object, None: it is deleted."""


class KindStore:
    """The Store of one Reflector.

    No `kube.cache.Cache`: the World holds the objects of all kinds together.
    """

    def __init__(self, world: World, kind: Kind) -> None:
        self._world = world
        self._kind = kind
        self._listing: dict[Locator, tuple[ObjectKey, Body]] = {}
        self._listed = False  # the objects in the World were decoded here, in this version

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST; it is not visible before the LIST is complete."""
        for number, item in enumerate(items, 1):
            name, key = self._names(item)
            body = self._read(name, item)
            if body is not None:
                self._listing[name] = key, body
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def finish(self, *, known: bool) -> None:
        """Hold exactly the objects of the pages, or keep those of a kind that is not known."""
        listing, self._listing = self._listing, {}
        if not self._world.listens(self, self._kind.id):
            return
        if known:
            self._listed = True
            self._world.replace(self._kind.id, listing)
        else:
            self._world.absent(self._kind.id)

    def abandon(self) -> None:
        """Drop the pages of an incomplete LIST."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        if event.item is None or not self._world.listens(self, self._kind.id):
            return
        name, key = self._names(event.item)
        if event.type == "DELETED":
            self._world.change(self._kind.id, name, key, None)
        elif (body := self._read(name, event.item)) is not None:
            self._world.change(self._kind.id, name, key, body)

    def _names(self, item: Item) -> tuple[Locator, ObjectKey]:
        key = item.key if self._kind.namespaced else ObjectKey("", item.key.name)
        return locator(self._kind.id, key.namespace, key.name), key

    def _read(self, name: Locator, item: Item) -> Body | None:
        """Return an object; one that cannot be decoded in its last state, if any."""
        held = self._world.get(name)
        if self._listed and held is not None and _version(held) == (item.uid, item.version):
            return held
        try:
            return _decoded(item)
        except (*NO_JSON, ValueError) as error:
            log.warning(
                "object_left_out", kind=str(self._kind.id), key=str(item.key), error=str(error)
            )
            return held


def _decoded(item: Item) -> Body:
    """Decode an object. Raises ValueError: it has no name, or is nested too deeply."""
    if not item.key.name:
        msg = "metadata.name: an object needs a name"
        raise ValueError(msg)
    body: dict[str, Any] = msgspec.json.decode(item.body)
    body["metadata"].pop("managedFields", None)  # half of an object, and not used here
    brackets = item.body.count(b"{") + item.body.count(b"[")
    if brackets > _DEEPEST and is_deeper(body, _DEEPEST):
        msg = f"nested more than {_DEEPEST} levels deep"
        raise ValueError(msg)
    return body


def _version(body: Body) -> tuple[str, str]:
    metadata = body["metadata"]
    return metadata.get("uid", ""), metadata.get("resourceVersion", "")
