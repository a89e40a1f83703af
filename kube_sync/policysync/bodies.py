"""Objects of one collection of the hub, as JSON, with news of what differs in them.

Keeps true: what was there stays when a LIST fails, and when the API server says that it does not
know the kind: it says so for a moment after a start, and a definition that somebody has deleted by
mistake is no reason to take everything back that stood on it. What is no object is not held; of one
that is nested too deeply it is held that it cannot be read, since it is there. What a write was
answered with counts until the watch has come so far, so that nothing is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER
from kube_sync.topology.sameness import same
from kube_sync.topology.shapes import is_deeper

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Body = Mapping[str, Any]
# Of what an object was and is; None: it was not there, or is not.
Changed = Callable[[ObjectKey, Body | None, Body | None], None]

_ABSENT_SECONDS: Final = 30.0
# Nested deeper than this no object is compared: what compares JSON calls itself for each level.
_DEEPEST: Final = 200
# Stands where something was that is read by nobody; whoever expects fields there finds none.
TOO_DEEP: Final = "nested too deeply"


class Bodies:
    """The Store of one collection."""

    def __init__(
        self,
        changed: Changed,
        settled: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell `changed` of every object that differs, and `settled` when a LIST has ended."""
        self.listed = False
        self._changed = changed
        self._settled = settled
        self._clock = clock
        self._unknown_since: float | None = None
        self._objects: dict[ObjectKey, Body] = {}
        self._listing: dict[ObjectKey, Body] = {}

    @property
    def complete(self) -> bool:
        """Whether it is known what there is: also nothing, of a kind long not served."""
        since = self._unknown_since
        absent = since is not None and self._clock() - since >= _ABSENT_SECONDS
        return self.listed or absent

    @property
    def objects(self) -> Mapping[ObjectKey, Body]:
        """All of them."""
        return self._objects

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(list(self._objects))

    def get(self, key: ObjectKey) -> Body | None:
        """Return one of them."""
        return self._objects.get(key)

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for item in items:
            if (body := decoded(item)) is not None:
                self._listing[item.key] = body

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held; nothing changes while the kind is unknown."""
        listing, self._listing = self._listing, {}
        if not known:
            if self._unknown_since is None:
                self._unknown_since = self._clock()
        else:
            self.listed, self._unknown_since = True, None
            for key in self._objects.keys() - listing.keys():
                self._put(key, None)
            for key, body in listing.items():
                self._put(key, body)
        self._settled()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def wrote(self, key: ObjectKey, answer: Body) -> None:
        """Hold what a write of ours was answered with; that is no news to anybody."""
        before, found = self._objects.get(key), _bare(answer)
        if before is not None and found is not None and _is_older(before, found):
            self._objects[key] = found

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is not None:
            gone = event.type == "DELETED"
            self._put(event.item.key, None if gone else decoded(event.item))

    def _put(self, key: ObjectKey, body: Body | None) -> None:
        before = self._objects.get(key)
        if before is not None and body is not None and _is_older(body, before):
            return  # the answer to a write was here first
        self._objects.pop(key, None)
        if body is not None:
            self._objects[key] = body
        if not same(before, body):
            self._changed(key, before, body)


def _is_older(one: Body, other: Body) -> bool:
    """Tell whether one is an earlier state of the same object than the other."""
    mine, its = one["metadata"], other["metadata"]
    if mine.get("uid") != its.get("uid"):
        return False
    versions = mine.get("resourceVersion"), its.get("resourceVersion")
    numbers = [int(v) for v in versions if isinstance(v, str) and v.isdecimal()]
    return len(numbers) == len(versions) and numbers[0] < numbers[1]


def decoded(item: Item) -> Body | None:
    """Return an object without what others manage of it, None for what cannot be read."""
    try:
        body = _bare(msgspec.json.decode(item.body)) if item.whole else _unreadable(item)
    except msgspec.DecodeError:
        body = None
    except RecursionError:
        body = _unreadable(item)
    if body is None:
        log.warning("hub_object_left_out", key=str(item.key))
    return body


def _bare(body: Any) -> Body | None:  # noqa: ANN401 - whatever JSON there is
    """Keep of who manages what only what we do: it tells which conditions are ours."""
    try:
        metadata = dict(body["metadata"])
        managed = metadata.pop("managedFields", None) or ()
        if ours := [one for one in managed if one["manager"] == MANAGER]:
            metadata["managedFields"] = ours
        found = {**body, "metadata": metadata}
    except (KeyError, TypeError, ValueError):
        return None
    return {k: TOO_DEEP if is_deeper(one, _DEEPEST) else one for k, one in found.items()}


def _unreadable(item: Item) -> Body:
    """Return an object of which nothing but its name is known: nobody takes it for one gone."""
    metadata = {
        "name": item.key.name,
        "namespace": item.key.namespace,
        "uid": item.uid,
        "resourceVersion": str(item.version),
    }
    return {
        "metadata": {**metadata, "labels": TOO_DEEP, "annotations": TOO_DEEP},
        "spec": TOO_DEEP,
        "status": TOO_DEEP,
    }
