"""Which resources an API server serves, as its discovery says.

Asked each time and never remembered. Discovery is made by the API server every few seconds, and
just after a start it may lack custom resources that are there: what it does not say is no proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from kube_sync.errors import NO_JSON, NotFound, Retriable
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

    @property
    def can_be_followed(self) -> bool:
        """Whether it can be listed and watched at all, whoever may."""
        return self.verbs >= _FOLLOWED


class _Named(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Named]


class _Core(msgspec.Struct):
    versions: list[str]


class _Info(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    resources: list[_Info]


_Shape = TypeVar("_Shape")


async def served(client: KubeClient, group: str) -> tuple[Resource, ...]:
    """Return the resources of an API group, "" the core, by preference of their versions.

    A group that is not there has none. Raises SyncError.
    """
    try:
        versions = await _versions(client, group)
    except NotFound:
        return ()
    return tuple([found for version in versions for found in await _of(client, group, version)])


def preference(version: str) -> tuple[int, int, int, str]:
    """Return what versions of an API are ordered by, the one to prefer first.

    As Kubernetes does (Versions in CustomResourceDefinitions, "Version priority"): stable ones,
    then beta, then alpha, each by falling numbers, then whatever else by its name.
    """
    match = _AGED.fullmatch(version)
    if match is None:
        return len(_STAGES), 0, 0, version
    return _STAGES[match[2]], -int(match[1]), -int(match[3] or 0), version


async def _versions(client: KubeClient, group: str) -> list[str]:
    if group:
        path = f"/apis/{group}"
        found = [v.version for v in _read(path, await client.request("GET", path), _Group).versions]
    else:
        found = _read("/api", await client.request("GET", "/api"), _Core).versions
    return sorted(found, key=preference)


async def _of(client: KubeClient, group: str, version: str) -> list[Resource]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        body = await client.request("GET", path)
    except NotFound:
        return []  # it went between two requests
    return list(_resources(group, version, _read(path, body, _Resources)))


def _resources(group: str, version: str, answer: _Resources) -> Iterator[Resource]:
    for info in answer.resources:
        if "/" not in info.name:  # no subresources
            gvr = GroupVersionResource(group, version, info.name)
            yield Resource(gvr, info.kind, info.namespaced, frozenset(info.verbs))


def _read(path: str, body: bytes, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(body, type=shape)
    except NO_JSON as error:
        msg = f"{path} of the API server is not what discovery says: {error}"
        raise Retriable(msg) from error
