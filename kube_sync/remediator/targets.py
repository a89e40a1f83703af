"""What the API server holds of the target resources: uid, annotations and labels, nothing more.

A metadata-only watch of the remediator's own, so that it compares decisions with the truth and
not with what the replicator believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey
from kube_sync.remediator.plan import Current


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_objects = msgspec.json.Decoder(_Object)


class Targets:
    """The Store of one target collection."""

    def __init__(self, changed: Callable[[ObjectKey], None]) -> None:
        """Tell `changed` each key that may differ from before."""
        self._changed = changed
        self._objects: dict[ObjectKey, Current] = {}
        self._listing: dict[ObjectKey, Current] = {}

    def get(self, key: ObjectKey) -> Current | None:
        """Return what the API server holds at `key`."""
        return self._objects.get(key)

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        self._listing.update({item.key: _current(item) for item in items})

    def finish(self, *, known: bool) -> None:  # noqa: ARG002 - a Store's shape
        """Hold exactly the objects of the LIST."""
        before = self._objects.keys()
        self._objects, self._listing = self._listing, {}
        for key in before | self._objects.keys():
            self._changed(key)

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        if event.type == "DELETED":
            self._objects.pop(event.item.key, None)
        else:
            self._objects[event.item.key] = _current(event.item)
        self._changed(event.item.key)


def _current(item: Item) -> Current:
    metadata = _objects.decode(item.body).metadata
    return Current(item.uid, metadata.annotations or {}, metadata.labels or {}, item.version)
