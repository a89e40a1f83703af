"""Ask an API server's discovery which resources it serves.

Results are not cached: a CustomResourceDefinition may be created, deleted, and created again with
other content. The API server refreshes discovery every few seconds, and just after a start it lacks
existing custom resources, so a missing resource is no proof (`availability.py`). A 404 is believed
only if the list of all groups was read and lacks the group and version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from kube_sync.errors import NotFound, Retriable, Terminal, decoded
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource

_AGED = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {None: 0, "beta": 1, "alpha": 2}
_FOLLOWED = frozenset({"list", "watch"})


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of a version of an API group."""

    gvr: GroupVersionResource
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()  # what people call it, in lower case

    @property
    def can_be_followed(self) -> bool:
        """Whether it supports list and watch, permissions aside."""
        return self.verbs >= _FOLLOWED


class _Info(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = []
    singularName: str = ""  # noqa: N815 - as the API has it
    shortNames: list[str] = []  # noqa: N815


class _ResourceList(msgspec.Struct):
    kind: Literal["APIResourceList"]
    resources: list[_Info]


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]


class _GroupList(msgspec.Struct):
    kind: Literal["APIGroupList"]
    groups: list[_Group]


class _Core(msgspec.Struct):
    versions: list[str]


_Shape = TypeVar("_Shape")


async def kind_of(client: KubeClient, gvr: GroupVersionResource) -> str:
    """Ask discovery for the kind of a resource. Raises SyncError; NotFound for an unknown one."""
    if (found := await _find(client, gvr)) is None:
        raise Terminal(_unknown(gvr))
    return found.kind


async def names_of(client: KubeClient, gvr: GroupVersionResource) -> frozenset[str]:
    """Ask discovery what people call a resource; an unknown one nothing. Raises SyncError."""
    try:
        found = await _find(client, gvr)
    except NotFound:
        return frozenset()
    return frozenset() if found is None else found.names


async def is_namespaced(client: KubeClient, gvr: GroupVersionResource) -> bool:
    """Ask discovery whether a resource is namespaced.

    Raises SyncError; NotFound when the API server lacks the resource.
    """
    try:
        found = await _find(client, gvr)
    except NotFound as error:
        raise NotFound(_unknown(gvr)) from error
    if found is None:
        raise NotFound(_unknown(gvr))
    return found.namespaced


async def is_served(client: KubeClient, gvr: GroupVersionResource) -> bool:
    """Return whether discovery has a resource. Raises SyncError."""
    try:
        return await _find(client, gvr) is not None
    except NotFound:
        return False


async def served(client: KubeClient, group: str) -> tuple[Resource, ...]:
    """Return the resources of an API group ("": the core group), ordered by version priority.

    A group that is not served has none. Raises SyncError.
    """
    found: list[Resource] = []
    for version in sorted(await _versions(client, group), key=preference):
        try:
            found += await _resources(client, group, version)
        except NotFound:
            continue  # removed between two requests
    return tuple(found)


def preference(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for the versions of an API, the preferred one first.

    The order of Kubernetes (Versions in CustomResourceDefinitions, "Version priority"): stable,
    then beta, then alpha, each by descending numbers, then all others by name.
    """
    match = _AGED.fullmatch(version)
    if match is None:
        return len(_STAGES), 0, 0, version
    return _STAGES[match[2]], -int(match[1]), -int(match[3] or 0), version


async def _find(client: KubeClient, gvr: GroupVersionResource) -> Resource | None:
    resources = await _resources(client, gvr.group, gvr.version)
    return next((found for found in resources if found.gvr == gvr), None)


async def _resources(client: KubeClient, group: str, version: str) -> list[Resource]:
    """Return the resources of one version. Raises SyncError; NotFound: there is no such version."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        infos = (await _read(client, path, _ResourceList)).resources
    except NotFound as error:
        if version in await _listed(client, group):
            raise _not_served(path) from error
        raise
    return [
        Resource(
            GroupVersionResource(group, version, info.name),
            info.kind,
            info.namespaced,
            frozenset(info.verbs),
            frozenset({info.name, info.kind.lower(), info.singularName, *info.shortNames} - {""}),
        )
        for info in infos
        if "/" not in info.name  # no subresources
    ]


async def _versions(client: KubeClient, group: str) -> list[str]:
    """Return the versions of a group, none if there is no such group. Raises SyncError."""
    if not group:
        return await _listed(client, group)
    path = f"/apis/{group}"
    try:
        return [found.version for found in (await _read(client, path, _Group)).versions]
    except NotFound as error:
        if await _listed(client, group):
            raise _not_served(path) from error
        return []


async def _listed(client: KubeClient, group: str) -> list[str]:
    """Return a group's versions from the list of all groups. Raises SyncError."""
    path = "/apis" if group else "/api"
    try:
        if not group:
            return (await _read(client, path, _Core)).versions
        groups = (await _read(client, path, _GroupList)).groups
    except NotFound as error:  # every API server serves both lists
        raise _not_served(path) from error
    return [one.version for found in groups if found.name == group for one in found.versions]


async def _read(client: KubeClient, path: str, shape: type[_Shape]) -> _Shape:
    body = await client.request("GET", path)
    return decoded(body, shape, f"{path} of the API server is not what discovery says")


def _not_served(path: str) -> Retriable:
    return Retriable(f"{path} of the API server is there, but not served now")


def _unknown(gvr: GroupVersionResource) -> str:
    return f"{gvr}: the API server does not know this resource (is its CRD there?)"
