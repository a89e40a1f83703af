"""Objects that are ours as a whole: made, marked, and deleted again.

Keeps true: an object that was read is changed or deleted only while it is that very one (its uid),
and one that was not is never taken from somebody else by force.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from kube_sync.errors import Conflict, NotFound
from kube_sync.kube.client import KubeClient
from kube_sync.kube.patch import gone_if_another
from kube_sync.objects import GroupVersionResource, ObjectKey

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")


async def read_object(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey
) -> bytes | None:
    """Return an object as JSON, None where there is none. Raises SyncError."""
    try:
        return await client.request("GET", gvr.path(key.namespace, key.name))
    except NotFound:
        return None


async def apply_object(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    body: Mapping[str, Any],
    manager: str,
    uid: str | None = None,
) -> bytes:
    """Make `manager` own these fields, and no others, of the object with this uid, or of a new one.

    Returns what is there then. Raises SyncError: NotFound when there is no longer one with the
    uid; Conflict without a uid, where somebody else owns what differs.
    """
    metadata = dict(body["metadata"]) | ({"uid": uid} if uid else {})
    with gone_if_another():
        return await client.request(
            "PATCH",
            gvr.path(key.namespace, key.name),
            params={"fieldManager": manager, "force": "true" if uid else "false"},
            body=msgspec.json.encode({**body, "metadata": metadata}),
            content_type="application/apply-patch+yaml",
        )


async def mark_object(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    uid: str,
    annotations: Mapping[str, str | None],
    manager: str,
) -> bytes:
    """Set annotations of the object with this uid, or remove them (None).

    Returns what is there then. Raises SyncError: NotFound when there is no longer one with the uid.
    """
    with gone_if_another():
        return await client.request(
            "PATCH",
            gvr.path(key.namespace, key.name),
            params={"fieldManager": manager},
            body=msgspec.json.encode({"metadata": {"uid": uid, "annotations": dict(annotations)}}),
            content_type="application/merge-patch+json",
        )


async def delete_object(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey, uid: str
) -> None:
    """Delete the object with this uid; one that is gone is fine. Raises SyncError."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    # A Conflict: the name is another one's by now, and that one is not ours to delete.
    with suppress(NotFound, Conflict):
        await client.request(
            "DELETE", gvr.path(key.namespace, key.name), body=msgspec.json.encode(options)
        )


async def ensure_namespace(client: KubeClient, name: str, labels: Mapping[str, str]) -> None:
    """Create a namespace with these labels; one that is there stays as it is. Raises SyncError."""
    metadata = {"name": name, "labels": dict(labels)}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    with suppress(Conflict):
        await client.request("POST", NAMESPACES.path(), body=msgspec.json.encode(body))
