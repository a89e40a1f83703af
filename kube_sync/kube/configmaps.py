"""Caches of the ConfigMaps in one namespace or in all.

A Cache parses each ConfigMap by `read`; a ConfigMap for which `read` returns None is not cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import ObjectMeta
from kube_sync.objects import GroupVersionResource, ObjectKey

CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
ALL_NAMESPACES = "*"
# kube-mgmt's name, so that people and tools that read it need no change.
STATUS = "openpolicyagent.org/kube-mgmt-status"


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """One ConfigMap; of binary data only the names."""

    key: ObjectKey
    version: str
    labels: Mapping[str, str]
    data: Mapping[str, str]
    status: str | None  # the value of its status annotation
    born: str = ""  # creationTimestamp (RFC 3339, in UTC): sorts as text
    binary: frozenset[str] = frozenset()

    def carries(self, label: str) -> bool:
        """Return whether it has a label, written `name=value`."""
        name, _, value = label.partition("=")
        return self.labels.get(name) == value


class _Object(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, msgspec.Raw] | None = None


_objects = msgspec.json.Decoder(_Object)


def read_configmap(item: Item) -> ConfigMap:
    """Parse a ConfigMap.

    Raises Retriable if it cannot be parsed: it may be policy, so the cache keeps its last state.
    """
    try:
        decoded = _objects.decode(item.body)
    except NO_JSON as error:
        msg = f"ConfigMap {item.key} cannot be read: {error}"
        raise Retriable(msg) from error
    metadata = decoded.metadata
    status = (metadata.annotations or {}).get(STATUS)
    return ConfigMap(
        item.key,
        item.version,
        metadata.labels or {},
        decoded.data or {},
        status,
        metadata.creation_timestamp or "",
        frozenset(decoded.binary_data or ()),
    )


M = TypeVar("M")


class ConfigMaps(Cache[M]):
    """Caches the ConfigMaps of one namespace (`*`: of all) that match `selector`."""

    def __init__(
        self,
        namespace: str,
        on_change: Callable[[], None],
        read: Callable[[Item], M | None],
        selector: str | None = None,
    ) -> None:
        """Call `on_change` after each change and at the end of each LIST."""
        super().__init__(read, lambda _changes: on_change())
        self.namespace = namespace
        self.selector = selector

    def __iter__(self) -> Iterator[M]:
        return iter(self.objects.values())

    @property
    def scope(self) -> str | None:
        """The namespace to list and watch, None for all."""
        return None if self.namespace == ALL_NAMESPACES else self.namespace

    @property
    def where(self) -> str:
        """The namespace, for messages."""
        return "all namespaces" if self.scope is None else self.namespace
