"""Cache of one collection of the hub, as JSON objects, with a callback for differences.

Invariant: objects stay when a LIST fails, and when the API server does not know the kind: it may
say so for a moment after a start, and a definition that was deleted by mistake is no reason to
remove all copies that depend on it. An item that is no object is not cached; one that is nested too
deeply is cached as unreadable, since it exists. The response to a write counts until the watch has
caught up, so that nothing is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog

from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import State, state_of
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER
from kube_sync.topology.raw_json import is_deeper, is_same

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Body = Mapping[str, Any]
# Takes the old and the new object; None: it did not, or does not, exist.
Changed = Callable[[ObjectKey, Body | None, Body | None], None]

_ABSENT_SECONDS: Final = 30.0
# Objects that are nested deeper are not compared: a comparison recurses for each level.
_DEEPEST: Final = 200
# Replaces an unreadable part; readers that expect fields there find none.
TOO_DEEP: Final = "nested too deeply"


class ObjectCache(Cache[Body]):
    """The objects of one collection, without the managedFields of others."""

    def __init__(
        self,
        changed: Changed,
        on_list_end: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `changed` with each object that differs, and `on_list_end` when a LIST has ended."""
        super().__init__(
            decoded, self._report_changes, self._list_ended, merge=_newer, differs=_differs
        )
        self._changed = changed
        self._on_list_end = on_list_end
        self._clock = clock
        self._unknown_since: float | None = None

    @property
    def complete(self) -> bool:
        """Whether the content is known; also that it is empty, for a kind long not served."""
        since = self._unknown_since
        absent = since is not None and self._clock() - since >= _ABSENT_SECONDS
        return self.listed or absent

    def record_write(self, key: ObjectKey, response: Body) -> None:
        """Cache the response to our own write; this runs no callback."""
        before, found = self.get(key), _without_managed_fields(response)
        if before is not None and found is not None and _state(found).is_later(_state(before)):
            self.put(key, found, notify=False)

    def _report_changes(self, changes: Changes[Body]) -> None:
        for key, (before, after) in changes.items():
            self._changed(key, before, after)

    def _list_ended(self) -> None:
        if self.served:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = self._clock()
        self._on_list_end()


def _newer(cached: Body | None, found: Body) -> Body:
    """Return the object found, unless the cached response to a write is newer."""
    return cached if cached is not None and _state(cached).is_later(_state(found)) else found


def _differs(one: Body | None, other: Body | None) -> bool:
    return not is_same(one, other)


def _state(body: Body) -> State:
    metadata = body["metadata"]
    return state_of(metadata.get("uid"), metadata.get("resourceVersion"))


def decoded(item: Item) -> Body | None:
    """Parse an object without the managedFields of others, None if that fails."""
    try:
        body = (
            _without_managed_fields(msgspec.json.decode(item.body))
            if item.whole
            else _unreadable(item)
        )
    except (msgspec.DecodeError, UnicodeError):
        body = None
    except RecursionError:
        body = _unreadable(item)
    if body is None:
        log.warning("hub_object_left_out", key=str(item.key))
    return body


def _without_managed_fields(body: Any) -> Body | None:  # noqa: ANN401 - whatever JSON there is
    """Keep only our own managedFields: they show which conditions are ours."""
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
    """Return an object that has nothing but a name: it exists, but cannot be read."""
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
