"""Create, annotate and delete objects that belong to us as a whole.

Invariant: an object that was read is changed or deleted only if it still has the uid that was read.
An object that was not read is never taken from another field manager by force.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from kube_sync.errors import Conflict, NotFound
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item, KubeCollection
from kube_sync.kube.patch import gone_if_another, patch
from kube_sync.kube.reflector import items_of
from kube_sync.objects import GroupVersionResource, ObjectKey

_WHOLE: Final = "application/json"
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


async def read_object(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey
) -> bytes | None:
    """Return an object as JSON, None if there is none. Raises SyncError."""
    try:
        return await client.request("GET", gvr.path(key.namespace, key.name))
    except NotFound:
        return None


async def listed_object(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey, *, metadata_only: bool = False
) -> Item | None:
    """Return an object, None if there is none, by a LIST: it needs no permission to get.

    Raises SyncError.
    """
    source = KubeCollection(
        client,
        gvr,
        namespace=key.namespace or None,
        metadata_only=metadata_only,
        field_selector=f"metadata.name={key.name}",
    )
    return next(iter([item async for item in items_of(source)]), None)


async def apply_object(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    body: Mapping[str, Any],
    manager: str,
    uid: str | None = None,
) -> bytes:
    """Apply these fields (server-side apply), to the object with this uid or to a new one.

    The manager owns exactly these fields. Returns the object that results. Raises SyncError:
    NotFound when no object has the uid; Conflict without a uid, if another manager owns what
    differs.
    """
    metadata = dict(body["metadata"]) | ({"uid": uid} if uid else {})
    path, whole = gvr.path(key.namespace, key.name), {**body, "metadata": metadata}
    with gone_if_another():
        return await patch(client, path, whole, "apply", manager, force=bool(uid), accept=_WHOLE)


async def put_object(
    client: KubeClient, gvr: GroupVersionResource, body: Mapping[str, Any], version: str
) -> bytes:
    """Create an object, or replace the whole of it as it was at resourceVersion `version`.

    Without `version` it is created. Returns the object that results. Raises SyncError: Conflict if
    it has changed, or is there already.
    """
    namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
    if not version:
        return await client.request("POST", gvr.path(namespace), body=msgspec.json.encode(body))
    bound = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    path = gvr.path(namespace, name)
    return await client.request("PUT", path, body=msgspec.json.encode(bound))


async def mark_object(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    uid: str,
    annotations: Mapping[str, str | None],
    manager: str,
) -> bytes:
    """Set annotations of the object with this uid, or remove them (None).

    Returns the object that results. Raises SyncError: NotFound when no object has the uid.
    """
    path = gvr.path(key.namespace, key.name)
    body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    with gone_if_another():
        return await patch(client, path, body, "merge", manager, accept=_WHOLE)


async def delete_object(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey, uid: str
) -> None:
    """Delete the object with this uid; no error if it is gone. Raises SyncError."""
    # A Conflict: the name belongs to another object now, which is not ours to delete.
    with suppress(Conflict):
        await delete_unchanged(client, gvr, key, {"uid": uid})


async def delete_unchanged(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey, conditions: Mapping[str, str]
) -> None:
    """Delete an object if it still has this uid or resourceVersion; no error if it is gone.

    Raises SyncError: Conflict if it has not.
    """
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    path = gvr.path(key.namespace, key.name)
    with suppress(NotFound):
        await client.request("DELETE", path, body=msgspec.json.encode(options))


async def ensure_namespace(client: KubeClient, name: str, labels: Mapping[str, str]) -> None:
    """Create a namespace with these labels; an existing one stays as it is. Raises SyncError."""
    metadata = {"name": name, "labels": dict(labels)}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    with suppress(Conflict):
        await client.request("POST", NAMESPACES.path(), body=msgspec.json.encode(body))
