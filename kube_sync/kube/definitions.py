"""CustomResourceDefinitions: what an API server is told to serve, and the schemas of it.

Keeps true: a definition that cannot be read stays what it was, with a log line, and harms no other.
Unlike discovery this is what is stored: a definition that is not there is not there. Nothing is
held but what somebody is interested in, since schemas are large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NO_JSON, Terminal
from kube_sync.kube import presence
from kube_sync.kube.collection import Event, Item
from kube_sync.kube.served import preference
from kube_sync.objects import GroupVersionResource

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DEFINITIONS = presence.DEFINITIONS
_ESTABLISHED = "Established"
_SLICE = 20  # of a LIST, before others may run: a definition may have a megabyte


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version that is served, with its schema (openAPIV3Schema)."""

    name: str
    schema: Mapping[str, Any]

    def type_of(self, *path: str) -> str | None:
        """Return the type of a field, as `object`; "" of any, None where there is no such field."""
        found: object = self.schema
        for name in path:
            properties = found.get("properties") if isinstance(found, Mapping) else None
            found = properties.get(name) if isinstance(properties, Mapping) else None
        if not isinstance(found, Mapping):
            return None
        said = found.get("type")
        return said if isinstance(said, str) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """One CustomResourceDefinition; two are the same if the API server's uid and version are."""

    name: str
    uid: str
    group: str
    kind: str
    plural: str
    namespaced: bool
    established: bool  # it is served, or will be in a moment
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    versions: tuple[Version, ...]  # those that are served, the one to prefer first
    body: Mapping[str, Any] = field(repr=False)

    @property
    def gvr(self) -> GroupVersionResource | None:
        """The resource in the version to prefer; None where none is served."""
        if not self.established or not self.versions:
            return None
        return GroupVersionResource(self.group, self.versions[0].name, self.plural)

    def version(self, name: str) -> Version | None:
        """Return a version that is served."""
        return next((version for version in self.versions if version.name == name), None)


class _Names(msgspec.Struct):
    kind: str
    plural: str


class _Schema(msgspec.Struct):
    openAPIV3Schema: dict[str, Any] | None = None  # noqa: N815 - as on the wire


class _Version(msgspec.Struct):
    name: str
    served: bool
    schema: _Schema | None = None


class _Spec(msgspec.Struct):
    group: str
    names: _Names
    scope: str
    versions: list[_Version]


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Metadata(msgspec.Struct):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Definition(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def definition_of(body: Mapping[str, Any]) -> Definition:
    """Read a CustomResourceDefinition (apiextensions.k8s.io/v1). Raises Terminal."""
    try:
        read = msgspec.convert(body, _Definition)
    except (msgspec.ValidationError, RecursionError) as error:
        msg = f"a CustomResourceDefinition cannot be read: {error}"
        raise Terminal(msg) from error
    metadata, spec = read.metadata, read.spec
    conditions = (read.status and read.status.conditions) or ()
    return Definition(
        metadata.name,
        metadata.uid,
        spec.group,
        spec.names.kind,
        spec.names.plural,
        spec.scope == "Namespaced",
        any(c.type == _ESTABLISHED and c.status == "True" for c in conditions),
        metadata.labels or {},
        metadata.annotations or {},
        tuple(_served(spec.versions)),
        body,
    )


def _served(versions: list[_Version]) -> Iterator[Version]:
    for version in sorted(versions, key=lambda version: preference(version.name)):
        if version.served:
            schema = version.schema.openAPIV3Schema if version.schema else None
            yield Version(version.name, schema or {})


class Definitions:
    """The Store of the CustomResourceDefinitions that matter."""

    def __init__(
        self,
        news: Callable[[], None],
        matters: Callable[[Definition], bool] = lambda _definition: True,
    ) -> None:
        """`news` is called after each change of what matters, and after each LIST."""
        self.listed = False
        self._news = news
        self._matters = matters
        self._held: dict[str, Definition] = {}
        self._listing: dict[str, Definition] = {}

    def __iter__(self) -> Iterator[Definition]:
        """Yield them by name."""
        return (self._held[name] for name in sorted(self._held))

    def of(self, group: str, resource: str) -> Definition | None:
        """Return the definition of a resource: its name is made of these two."""
        return self._held.get(f"{resource}.{group}")

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for number, item in enumerate(items, 1):
            if (found := self._read(item)) is not None:
                self._listing[found.name] = found
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held; an API server that lacks even these says nothing."""
        if not known:
            return
        self._held, self._listing = self._listing, {}
        self.listed = True
        self._news()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        name = event.item.key.name
        before = self._held.get(name)
        found = None if event.type == "DELETED" else self._read(event.item)
        if found is before:
            return
        if found is None:
            del self._held[name]
        else:
            self._held[name] = found
        self._news()

    def _read(self, item: Item) -> Definition | None:
        try:
            definition = definition_of(msgspec.json.decode(item.body))
        except (*NO_JSON, Terminal) as error:
            log.warning("definition_not_read", key=str(item.key), error=str(error))
            return self._held.get(item.key.name)  # what it was is nearer to the truth than nothing
        return definition if self._matters(definition) else None
