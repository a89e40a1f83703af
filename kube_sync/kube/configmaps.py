"""ConfigMaps that mean something to us, as the API server holds them.

A Cache of what a Reflector finds in one namespace, or in all, each ConfigMap read by `read`; one
that it reads as None is not held and counts for nothing.
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
# kube-mgmt's name, so that people and tools that read it go on working.
STATUS = "openpolicyagent.org/kube-mgmt-status"


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """One ConfigMap, and of binary data the names alone."""

    key: ObjectKey
    version: str
    labels: Mapping[str, str]
    data: Mapping[str, str]
    status: str | None  # what its status annotation says
    born: str = ""  # creationTimestamp (RFC 3339, in UTC): sorts as text
    binary: frozenset[str] = frozenset()

    def carries(self, label: str) -> bool:
        """Whether it has a label, spelt `name=value`."""
        name, _, value = label.partition("=")
        return self.labels.get(name) == value


class _Object(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, msgspec.Raw] | None = None


_objects = msgspec.json.Decoder(_Object)


def read_configmap(item: Item) -> ConfigMap:
    """Return what a ConfigMap says.

    Raises Retriable for one that is none: it may be policy, so that what is known stands.
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
    """The ConfigMaps in one namespace (`*`: in all) that `selector` lets through."""

    def __init__(
        self,
        namespace: str,
        news: Callable[[], None],
        read: Callable[[Item], M | None],
        selector: str | None = None,
    ) -> None:
        """Call `news` after each change and at the end of each LIST."""
        super().__init__(read, lambda _changes: news())
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
        """The namespace, in words."""
        return "all namespaces" if self.scope is None else self.namespace
