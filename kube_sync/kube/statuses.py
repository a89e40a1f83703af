"""Patch statuses that several controllers write, by the status subresource.

- Server-side apply for lists that are maps: the field manager owns exactly what it names.
- Merge patch for atomic lists, bound to the resourceVersion that was read.
- JSON Patch for removals, bound to it too: an apply removes neither fields that others own as well
  nor the last element of a list that must exist.

Each returns the object that results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_sync.errors import decoded
from kube_sync.kube.client import KubeClient
from kube_sync.kube.patch import ObjectReference, apply_status, changed_if_untrue, patch
from kube_sync.objects import GroupVersionResource, ObjectKey

Json = Mapping[str, Any]
_WHOLE = "application/json"


async def apply_shared(client: KubeClient, of: ObjectReference, status: Json, manager: str) -> Json:
    """Apply these fields of the status (server-side apply), and own no others of it.

    Raises SyncError: NotFound when the object is gone or replaced by another of its name.
    """
    return json_object(await apply_status(client, of, status, manager, accept=_WHOLE))


async def replace_lists(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    version: str,
    status: Json,
    manager: str,
) -> Json:
    """Set fields of the status if the object is still at resourceVersion `version`.

    Raises SyncError: Conflict when it is not.
    """
    body = {"metadata": {"resourceVersion": version}, "status": dict(status)}
    path = gvr.path(key.namespace, key.name) + "/status"
    return json_object(await patch(client, path, body, "merge", manager, accept=_WHOLE))


async def remove_at(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    version: str,
    pointers: Sequence[str],
    manager: str,
) -> Json:
    """Remove what these JSON pointers name, in order, if the object is still at `version`.

    Raises SyncError: Conflict when it is not.
    """
    body = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    body += [{"op": "remove", "path": pointer} for pointer in pointers]
    path = gvr.path(key.namespace, key.name) + "/status"
    with changed_if_untrue():
        return json_object(await patch(client, path, body, "json", manager, accept=_WHOLE))


def json_object(answer: bytes) -> Json:
    """Decode an object in an answer of the API server. Raises Retriable if it is none."""
    return decoded(answer, dict[str, Any], "what answers is no object")
