"""Writes to the hub's own objects: annotations of copies, conditions, and entries of ancestors.

Conditions use server-side apply, so that no other owner's are taken over. `ancestors`
(PolicyStatus of the Gateway API) is one atomic value: others' entries stay as they are, in their
places, and there are never more than 16.

Invariant: a value that is right is not written, and an object is written only at the
resourceVersion that was read; our outdated values are removed. An unreadable object is left as it
is, which is logged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

import structlog

from kube_sync.guard import Withheld
from kube_sync.kube.client import KubeClient
from kube_sync.kube.conditions import Condition, are_right, dated, message
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import time_text
from kube_sync.kube.patch import ObjectReference
from kube_sync.kube.statuses import apply_shared, json_object, replace_lists
from kube_sync.kube.wholeobjects import mark_object
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.aggregate import SYNCED
from kube_sync.policysync.copies import MANAGER
from kube_sync.policysync.object_cache import Body
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, number, reason, text
from kube_sync.topology.statuslists import ANCESTORS, Entry, StatusContext, merge_entries

log: structlog.stdlib.BoundLogger = structlog.get_logger()

TYPE: Final = "kube-sync.io/PolicySync"  # of GatewayClasses
HELD: Final = "kube-sync.io/RemovalsHeld"
CONTROLLER: Final = "kube-sync.io/policy-sync"
_MOMENTARY: Final = frozenset(["unseen"])

Json = dict[str, Any]
Operation = Literal["status", "annotations", "class"]  # label of the metric of writes


def conditions(body: Body, wanted: Iterable[Condition], now: str) -> list[Json] | None:
    """Return the conditions to apply, None if they are in place. Raises Malformed."""
    found = list(items(body, "status", "conditions"))
    new = dated(sorted(wanted), found, generation(body), now)
    if are_right(found, new) and owned(body) <= {one["type"] for one in new}:
        return None
    return new


def owned(body: Body) -> frozenset[str]:
    """Return the types of our own conditions on an object. Raises Malformed."""
    types = {text(one, "type") for one in items(body, "status", "conditions")}
    # Types that no other controller uses, whatever manager owns them.
    return frozenset(types & {SYNCED, HELD, TYPE, *_managed(body)})


def is_ours(gateway_class: Body) -> bool:
    """Return whether a class is our controller's, or its status shows that we have followed it."""
    try:
        types = {text(one, "type") for one in items(gateway_class, "status", "conditions")}
        return TYPE in types or text(gateway_class, "spec", "controllerName") == CONTROLLER
    except UNREADABLE:
        return False


def entries(
    body: Body, gateways: Iterable[ObjectKey], wanted: Sequence[Condition], now: str
) -> list[Any] | None:
    """Return the new value of `status.ancestors`, None if it is in place. Raises Malformed."""
    raw = mapping(body, "status").get("ancestors")
    found = raw if isinstance(raw, list) else []
    about = StatusContext(generation(body), now, CONTROLLER)
    named = [Entry(_reference(key), tuple(wanted)) for key in gateways] if wanted else []
    result = merge_entries(ANCESTORS, found, named, about, lambda _type: True).entries
    return None if result == found else result


def removals_held(held: Mapping[str, Withheld]) -> tuple[Condition, ...]:
    """Return the condition that removals of copies are held, by cluster; none if none are."""
    alike: dict[str, list[str]] = {}
    for cluster, one in sorted(held.items()):
        if not is_momentary(one):
            alike.setdefault(f"{one.reason} (released by: {one.release})", []).append(cluster)
    if not alike:
        return ()
    text = message(f"{', '.join(clusters)}: {why}" for why, clusters in alike.items())
    return (Condition(HELD, "True", "Held", text),)


def is_momentary(held: Withheld) -> bool:
    """Return whether the next round ends a hold."""
    return held.kind in _MOMENTARY


def generation(body: Body) -> int:
    """Return the generation of an object. Raises Malformed."""
    return number(body, "metadata", "generation") or 0


def _reference(gateway: ObjectKey) -> Json:
    return {**GATEWAY._asdict(), "namespace": gateway.namespace, "name": gateway.name}


def _managed(body: Body) -> Iterable[str]:
    """Yield the types of the conditions that are ours by managedFields."""
    for entry in items(body, "metadata", "managedFields"):
        if text(entry, "manager") != MANAGER:
            continue
        for key in mapping(entry, "fieldsV1", "f:status", "f:conditions"):
            if key.startswith("k:"):
                try:
                    yield str(json.loads(key[2:])["type"])
                except (ValueError, KeyError, TypeError):
                    continue


class HubStatusWriter:
    """Writes objects of the hub; each method returns the object after the write."""

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
            return _log_unreadable(gvr, body, error)
        if not changed:
            return body
        request = partial(mark_object, self._client, gvr, key, uid, changed, MANAGER)
        return json_object(await self._fenced.send("annotations", request))

    async def conditions(
        self,
        gvr: GroupVersionResource,
        body: Body,
        desired: Iterable[Condition],
        operation: Operation = "status",
        kind: str = "",
    ) -> Body:
        """Apply these as our conditions of its status, and no others. Raises SyncError."""
        try:
            wanted = conditions(body, desired, self._time)
            key, uid = _key(body), text(body, "metadata", "uid")
        except UNREADABLE as error:
            return _log_unreadable(gvr, body, error)
        if wanted is None:
            return body
        status: Body = {"conditions": wanted} if wanted else {}
        kind = kind or str(body.get("kind", ""))
        target = ObjectReference(gvr, kind, key, uid)
        request = partial(apply_shared, self._client, target, status, MANAGER)
        return await self._fenced.send(operation, request)

    async def ancestors(
        self,
        gvr: GroupVersionResource,
        body: Body,
        gateways: Iterable[ObjectKey],
        desired: Sequence[Condition],
    ) -> Body:
        """Set these conditions for each Gateway in `status.ancestors`. Raises SyncError."""
        try:
            wanted = entries(body, gateways, desired, self._time)
            key, version = _key(body), text(body, "metadata", "resourceVersion")
        except UNREADABLE as error:
            return _log_unreadable(gvr, body, error)
        if wanted is None:
            return body
        status = {"ancestors": wanted}
        request = partial(replace_lists, self._client, gvr, key, version, status, MANAGER)
        return await self._fenced.send("status", request)

    @property
    def _time(self) -> str:
        return time_text(self._now())


def _log_unreadable(gvr: GroupVersionResource, body: Body, error: Exception) -> Body:
    log.warning("hub_object_not_told", gvr=str(gvr), reason=reason(error))
    return body


def _key(body: Body) -> ObjectKey:
    return ObjectKey(text(body, "metadata", "namespace"), text(body, "metadata", "name"))
