"""What the API server says of a resource itself: its kind, and whether it lies in namespaces.

Asked each time and never remembered: a CRD may come, go, and come back as something else.
"""

from __future__ import annotations

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Retriable, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource


class _ResourceInfo(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ResourceList(msgspec.Struct):
    resources: list[_ResourceInfo]


async def kind_of(client: KubeClient, gvr: GroupVersionResource) -> str:
    """Ask discovery for the kind of a resource. Raises SyncError; NotFound for an unknown one."""
    if (info := await _discover(client, gvr)) is None:
        raise Terminal(_unknown(gvr))
    return info.kind


async def is_namespaced(client: KubeClient, gvr: GroupVersionResource) -> bool:
    """Ask discovery whether the objects of a resource lie in namespaces.

    Raises SyncError; NotFound when the API server lacks the resource.
    """
    try:
        info = await _discover(client, gvr)
    except NotFound as error:
        raise NotFound(_unknown(gvr)) from error
    if info is None:
        raise NotFound(_unknown(gvr))
    return info.namespaced


async def _discover(client: KubeClient, gvr: GroupVersionResource) -> _ResourceInfo | None:
    root = f"/apis/{gvr.group}/{gvr.version}" if gvr.group else f"/api/{gvr.version}"
    body = await client.request("GET", root)
    try:
        known = msgspec.json.decode(body, type=_ResourceList).resources
    except NO_JSON as error:
        msg = f"{root} of the API server is not a list of resources: {error}"
        raise Retriable(msg) from error
    return next((info for info in known if info.name == gvr.resource), None)


def _unknown(gvr: GroupVersionResource) -> str:
    return f"{gvr}: the API server does not know this resource (is its CRD there?)"
