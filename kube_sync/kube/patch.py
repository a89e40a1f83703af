"""The two ways in which annotations are written.

Server-side apply for what a decision wants (the field manager owns exactly these keys, and the
uid makes sure that it is the object that was decided on); a merge patch, bound to the
resourceVersion that was read, for a status on somebody else's object.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource, ObjectKey


async def apply_annotations(
    client: KubeClient,
    gvr: GroupVersionResource,
    kind: str,
    key: ObjectKey,
    uid: str,
    annotations: Mapping[str, str],
    manager: str,
) -> None:
    """Make `manager` own these annotations with these values, whoever wrote them before.

    Raises SyncError: NotFound when the object is gone, Conflict or Terminal when another object
    has its name.
    """
    body = {
        "apiVersion": f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version,
        "kind": kind,
        "metadata": {"name": key.name, "uid": uid, "annotations": dict(annotations)},
    }
    await client.request(
        "PATCH",
        gvr.path(key.namespace, key.name),
        # Forced, since the policy's value replaces the existing one (design, "Initial Placement").
        params={"fieldManager": manager, "force": "true"},
        body=msgspec.json.encode(body),
        content_type="application/apply-patch+yaml",
        # The answer is not needed: ask for the smallest there is.
        accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )


async def annotate(
    client: KubeClient,
    gvr: GroupVersionResource,
    key: ObjectKey,
    version: str,
    annotations: Mapping[str, str],
    manager: str,
) -> None:
    """Set annotations if the object is still at `version`. Raises SyncError; Conflict if not."""
    body = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
    await client.request(
        "PATCH",
        gvr.path(key.namespace, key.name),
        params={"fieldManager": manager},
        body=msgspec.json.encode(body),
        content_type="application/merge-patch+json",
        accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )
