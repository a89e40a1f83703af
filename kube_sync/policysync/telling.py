"""What is written on the hub's own objects: statuses, and where copies are.

Keeps true: what is right is not written; an object is written only while it is the one that was
read. An object that cannot be read is left as it is, which is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import structlog

from kube_sync.kube.client import KubeClient
from kube_sync.kube.conditions import Condition
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import time_text
from kube_sync.kube.statuses import apply_shared, decoded, replace_lists
from kube_sync.kube.wholeobjects import mark_object
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.bodies import Body
from kube_sync.policysync.copies import MANAGER
from kube_sync.policysync.statuses import conditions, entries
from kube_sync.topology.shapes import UNREADABLE, mapping, reason, text

log: structlog.stdlib.BoundLogger = structlog.get_logger()


Operation = Literal["status", "annotations", "class"]  # how a write is counted


class Telling:
    """Writes on objects of the hub; each of its methods returns the object as it is then."""

    def __init__(
        self,
        client: KubeClient,
        fenced: FencedWriter,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._fenced = fenced
        self._now = now

    async def annotate(
        self, gvr: GroupVersionResource, body: Body, wanted: Mapping[str, str | None]
    ) -> Body:
        """Set annotations, or remove them (None). Raises SyncError."""
        try:
            found = mapping(body, "metadata", "annotations")
            changed = {name: value for name, value in wanted.items() if found.get(name) != value}
            key, uid = _key(body), text(body, "metadata", "uid")
        except UNREADABLE as error:
            return _left(gvr, body, error)
        if not changed:
            return body
        request = partial(mark_object, self._client, gvr, key, uid, changed, MANAGER)
        return decoded(await self._fenced.send("annotations", request))

    async def conditions(
        self,
        gvr: GroupVersionResource,
        body: Body,
        said: Iterable[Condition],
        operation: Operation = "status",
        kind: str = "",
    ) -> Body:
        """Make these our conditions in its status, and no others. Raises SyncError."""
        try:
            wanted = conditions(body, said, self._time)
            key, uid = _key(body), text(body, "metadata", "uid")
        except UNREADABLE as error:
            return _left(gvr, body, error)
        if wanted is None:
            return body
        status: Body = {"conditions": wanted} if wanted else {}
        kind = kind or str(body.get("kind", ""))
        request = partial(apply_shared, self._client, gvr, kind, key, uid, status, MANAGER)
        return await self._fenced.send(operation, request)

    async def ancestors(
        self,
        gvr: GroupVersionResource,
        body: Body,
        gateways: Iterable[ObjectKey],
        said: Sequence[Condition],
    ) -> Body:
        """Say it of each of these Gateways among its status' ancestors. Raises SyncError."""
        try:
            wanted = entries(body, gateways, said, self._time)
            key, version = _key(body), text(body, "metadata", "resourceVersion")
        except UNREADABLE as error:
            return _left(gvr, body, error)
        if wanted is None:
            return body
        status = {"ancestors": wanted}
        request = partial(replace_lists, self._client, gvr, key, version, status, MANAGER)
        return await self._fenced.send("status", request)

    @property
    def _time(self) -> str:
        return time_text(self._now())


def _left(gvr: GroupVersionResource, body: Body, error: Exception) -> Body:
    log.warning("hub_object_not_told", gvr=str(gvr), reason=reason(error))
    return body


def _key(body: Body) -> ObjectKey:
    return ObjectKey(text(body, "metadata", "namespace"), text(body, "metadata", "name"))
