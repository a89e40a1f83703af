"""ConfigMaps that mean something to us, as the API server holds them.

A Store of what a Reflector finds in one namespace, or in all, each ConfigMap read by `read`; one
that it reads as None is not held and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.collection import Event, Item
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


class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Metadata
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


class Keyed(Protocol):
    """Whatever has a place in a collection."""

    @property
    def key(self) -> ObjectKey:
        """Where it is."""
        ...


M = TypeVar("M", bound=Keyed)


class ConfigMaps(Generic[M]):
    """The Store of the ConfigMaps in one namespace (`*`: in all) that `selector` lets through."""

    def __init__(
        self,
        namespace: str,
        news: Callable[[], None],
        read: Callable[[Item], M | None],
        selector: str | None = None,
    ) -> None:
        self.namespace = namespace
        self.selector = selector
        self.listed = False
        self._news = news
        self._read = read
        self._maps: dict[ObjectKey, M] = {}
        self._listing: dict[ObjectKey, M] = {}

    def __iter__(self) -> Iterator[M]:
        return iter(self._maps.values())

    def __len__(self) -> int:
        return len(self._maps)

    @property
    def scope(self) -> str | None:
        """The namespace to list and watch, None for all."""
        return None if self.namespace == ALL_NAMESPACES else self.namespace

    @property
    def where(self) -> str:
        """The namespace, in words."""
        return "all namespaces" if self.scope is None else self.namespace

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        found = (self._read(item) for item in items)
        self._listing.update({one.key: one for one in found if one is not None})

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held; ConfigMaps are built in, so there is no LIST without."""
        if not known:
            self._listing = {}
            return
        self._maps, self._listing = self._listing, {}
        self.listed = True
        self._news()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        found = None if event.type == "DELETED" else self._read(event.item)
        if found is None:
            self._maps.pop(event.item.key, None)
        else:
            self._maps[found.key] = found
        self._news()
