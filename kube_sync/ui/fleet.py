"""The clusters in OPA's data: names, labels and attributes, nothing else of an object.

Invariant: many pages query OPA no more often than one; while OPA does not answer, the last
answer is returned with the reason. The number of clusters and the length of each value are bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from kube_sync.config import CLUSTERS
from kube_sync.errors import SyncError
from kube_sync.opa.paths import DataPath

MOST: Final = 2_000

_FRESH_SECONDS: Final = 2.0
_LONGEST: Final = 256  # characters of a label or an attribute
_MANY: Final = 64  # labels, and attributes


class Data(Protocol):
    """The data of OPA."""

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return a document, None if there is none. Raises SyncError."""


class Cluster(msgspec.Struct, frozen=True):
    """One cluster."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    attributes: Mapping[str, str]


class Fleet(msgspec.Struct, frozen=True):
    """All clusters; `failure` is why they may be outdated, `left_out` how many are missing."""

    clusters: tuple[Cluster, ...] = ()
    left_out: int = 0
    failure: str | None = None


class FleetReader:
    """Reads the fleet of one OPA."""

    def __init__(self, opa: Data, root: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`root` is the path of the replicated data."""
        self._opa = opa
        self._path = (root, CLUSTERS)
        self._clock = clock
        self._turn = asyncio.Lock()
        self._read: tuple[float, Fleet] | None = None

    async def read(self) -> Fleet:
        """Return the clusters, cached for two seconds."""
        async with self._turn:
            if self._read is None or self._clock() - self._read[0] >= _FRESH_SECONDS:
                self._read = self._clock(), await self._fetch()
            return self._read[1]

    async def _fetch(self) -> Fleet:
        try:
            body = await self._opa.get_data(self._path)
        except SyncError as error:
            before = Fleet() if self._read is None else self._read[1]
            return msgspec.structs.replace(before, failure=str(error))
        # In a thread: to decode thousands of clusters would block the event loop noticeably.
        return await asyncio.to_thread(fleet, body or b"{}")


def fleet(body: bytes) -> Fleet:
    """Return the clusters in a document of OPA."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return Fleet(failure="what OPA holds of the clusters cannot be read")
    found = sorted(map(_cluster, _objects(document)), key=lambda one: (one.name, one.namespace))
    return Fleet(tuple(found[:MOST]), max(0, len(found) - MOST))


def _objects(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a collection, namespaced or not."""
    for value in _members(document).values():
        if "name" in _members(_members(value).get("metadata")):
            yield value
        else:
            inside = (_members(one) for one in _members(value).values())
            yield from (one for one in inside if "name" in _members(one.get("metadata")))


def _cluster(found: Mapping[str, Any]) -> Cluster:
    metadata = _members(found["metadata"])
    labels = {str(k): _short(v) for k, v in [*_members(metadata.get("labels")).items()][:_MANY]}
    attributes = dict([*_attributes(found)][:_MANY])
    return Cluster(str(metadata["name"]), str(metadata.get("namespace", "")), labels, attributes)


def _attributes(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the properties of a ClusterProfile (SIG Multicluster, KEP-4322)."""
    spec, status = _members(found.get("spec")), _members(found.get("status"))
    if "displayName" in spec:
        yield "displayName", _short(spec["displayName"])
    if "name" in _members(spec.get("clusterManager")):
        yield "clusterManager", _short(spec["clusterManager"]["name"])
    if "kubernetes" in _members(status.get("version")):
        yield "kubernetes", _short(status["version"]["kubernetes"])
    for one in map(_members, _elements(status.get("properties"))):
        if "name" in one:
            yield _short(one["name"]), _short(one.get("value", ""))
    for one in map(_members, _elements(status.get("conditions"))):
        if "type" in one:
            yield _short(one["type"]), _short(one.get("status", ""))


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _elements(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _short(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
