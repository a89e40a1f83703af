"""The two ways in which annotations are written.

Server-side apply for what a decision wants (the field manager owns exactly these keys; the uid
makes sure that it is the object that was decided on, the resourceVersion that it is the state of
it that was read); a merge patch, bound to the resourceVersion too, for a status on somebody else's
object, and to take away what no field manager owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource, ObjectKey


class Applied(Protocol):
    """What an object is to have, and in which state it was when that was found out."""

    @property
    def uid(self) -> str:
        """The object's."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """All of them that the manager owns from now on."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The same of labels."""
        ...

    @property
    def version(self) -> str:
        """The resourceVersion of that state; empty: any."""
        ...


async def apply_metadata(
    client: KubeClient,
    gvr: GroupVersionResource,
    kind: str,
    key: ObjectKey,
    wanted: Applied,
    manager: str,
) -> None:
    """Make `manager` own these annotations and labels, whoever wrote them before.

    Raises SyncError: NotFound when the object is gone, Conflict when it has changed, Conflict or
    Terminal when another object has its name.
    """
    metadata: dict[str, Any] = {"name": key.name, "uid": wanted.uid}
    metadata["annotations"] = dict(wanted.annotations)
    # Left out where there are none: an apply gives up what it does not name, and so they go.
    metadata |= {"labels": dict(wanted.labels)} if wanted.labels else {}
    metadata |= {"resourceVersion": wanted.version} if wanted.version else {}
    body = {
        "apiVersion": f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version,
        "kind": kind,
        "metadata": metadata,
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
    annotations: Mapping[str, str | None],
    manager: str,
) -> None:
    """Set annotations, or remove them (None), if the object is still at `version`.

    Raises SyncError: Conflict when it is not.
    """
    body = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
    await client.request(
        "PATCH",
        gvr.path(key.namespace, key.name),
        params={"fieldManager": manager},
        body=msgspec.json.encode(body),
        content_type="application/merge-patch+json",
        accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )
