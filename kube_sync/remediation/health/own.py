"""Health as the object itself has it: an annotation for each cluster, a field, or an admission.

A cluster is healthy if its value is `true`, or the text `true` or `healthy` in upper or lower case.
Everything else, and no value at all, is not healthy. Of a Workload of Kueue it is the cluster that
has admitted it. The cache of objects reads it (`ReadHealth`). A PATCH of the object is bound to the
resourceVersion that was read: what takes a cluster away by this health fails if it has changed
since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.kueue import WORKLOADS, admitted_to
from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current
from kube_sync.remediation.planner import ReadHealth

_HEALTHY: Final = frozenset(["true", "healthy"])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(dict[str, object] | str)


class OwnHealth:
    """Health that was read from the object."""

    def __init__(self, read: ReadHealth) -> None:
        self._read = read

    @property
    def trouble(self) -> str | None:
        """Nothing: it is as current as the object."""
        return None

    def healthy(self, key: Key, current: Current, clusters: frozenset[str]) -> frozenset[str]:
        """Return which of these clusters are healthy for the object."""
        del key
        return clusters & current.healthy

    def unmatched(self, key: Key) -> str | None:
        """Return nothing: it has the names of clusters."""
        del key
        return None

    def reader(self, gvr: GroupVersionResource) -> ReadHealth:
        """Return what reads the health from the objects of a collection."""
        del gvr
        return self._read


class KueueHealth(OwnHealth):
    """Health from Kueue's admission, which the cache of objects has read; else from annotations.

    A Workload runs in one cluster: if that is one of several, it lacks nothing in the others.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__(healthy_by(prefix))

    def healthy(self, key: Key, current: Current, clusters: frozenset[str]) -> frozenset[str]:
        """Return which of these clusters are healthy for the object: all or none of a Workload."""
        found = super().healthy(key, current, clusters)
        return clusters if found and key[0] == WORKLOADS else found

    def reader(self, gvr: GroupVersionResource) -> ReadHealth:
        """Return what reads the health from the objects of a collection."""
        return _admitted if gvr == WORKLOADS else super().reader(gvr)


def _admitted(_annotations: Mapping[str, str], body: bytes) -> frozenset[str]:
    return admitted_to(body)


def healthy_by(prefix: str) -> ReadHealth:
    """Return a reader of the annotations `<prefix>/<cluster>`."""
    begin = f"{prefix}/"

    def read(annotations: Mapping[str, str], _body: bytes) -> frozenset[str]:
        found = (key for key, text in annotations.items() if is_healthy(text))
        return frozenset(key.removeprefix(begin) for key in found if key.startswith(begin))

    return read


def healthy_at(path: str) -> ReadHealth:
    """Return a reader of the map at `path` (names separated by dots) in the JSON of an object.

    It returns the clusters that are healthy there, none if there is no such map. A text instead is
    the name of the one cluster.
    """
    names = path.split(".")

    def read(_annotations: Mapping[str, str], body: bytes) -> frozenset[str]:
        found: bytes | msgspec.Raw = body
        try:
            for name in names:
                found = _fields.decode(found)[name]
            values = _values.decode(found)
        except (*NO_JSON, KeyError):
            return frozenset()
        if isinstance(values, str):
            return frozenset([values] if values else [])
        return frozenset(cluster for cluster, value in values.items() if is_healthy(value))

    return read


def is_healthy(value: object) -> bool:
    """Return whether a value says that a cluster is healthy."""
    return value is True or (isinstance(value, str) and value.lower() in _HEALTHY)
