"""What the API server says of a resource itself: its kind, and whether it lies in namespaces.

Asked each time and never remembered: a CRD may come, go, and come back as something else. A 404 is
believed only when the list of all groups was read and lacks the group and version.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Retriable, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource


class _ResourceInfo(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ResourceList(msgspec.Struct):
    kind: Literal["APIResourceList"]
    resources: list[_ResourceInfo]


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]


class _GroupList(msgspec.Struct):
    kind: Literal["APIGroupList"]
    groups: list[_Group]


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
    try:
        body = await client.request("GET", root)
    except NotFound as error:
        if await _is_listed(client, gvr):
            msg = f"{root} of the API server is there, but not served now"
            raise Retriable(msg) from error
        raise
    try:
        known = msgspec.json.decode(body, type=_ResourceList).resources
    except NO_JSON as error:
        msg = f"{root} of the API server is not a list of resources: {error}"
        raise Retriable(msg) from error
    return next((info for info in known if info.name == gvr.resource), None)


async def _is_listed(client: KubeClient, gvr: GroupVersionResource) -> bool:
    """Tell whether the API server has a group in this version. Raises SyncError."""
    if not gvr.group:
        return True  # every API server has the core
    try:
        groups = msgspec.json.decode(await client.request("GET", "/apis"), type=_GroupList).groups
    except NotFound as error:
        msg = "/apis of the API server is there, but not served now"
        raise Retriable(msg) from error
    except NO_JSON as error:
        msg = f"/apis of the API server is not a list of groups: {error}"
        raise Retriable(msg) from error
    found = {(group.name, one.version) for group in groups for one in group.versions}
    return (gvr.group, gvr.version) in found


def _unknown(gvr: GroupVersionResource) -> str:
    return f"{gvr}: the API server does not know this resource (is its CRD there?)"
