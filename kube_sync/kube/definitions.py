"""Cache of CustomResourceDefinitions: the kinds they define, and their schemas.

Invariant: if a definition cannot be read its last state is kept, a warning is logged, and no other
is affected. Unlike discovery, this is what etcd stores: a definition that is missing here does not
exist. Only definitions that `matters` selects are cached, since schemas are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_not
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NO_JSON, Terminal, json_errors_as
from kube_sync.kube import availability
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Item
from kube_sync.kube.discovery import preference
from kube_sync.kube.meta import NamedObjectMeta
from kube_sync.objects import GroupVersionResource, ObjectKey

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DEFINITIONS = availability.DEFINITIONS
_ESTABLISHED = "Established"


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version that is served, with its schema (openAPIV3Schema)."""

    name: str
    schema: Mapping[str, Any]

    def type_of(self, *path: str) -> str | None:
        """Return the type of a field, as `object`; "" for any, None if there is no such field."""
        found: object = self.schema
        for name in path:
            properties = found.get("properties") if isinstance(found, Mapping) else None
            found = properties.get(name) if isinstance(properties, Mapping) else None
        if not isinstance(found, Mapping):
            return None
        declared = found.get("type")
        return declared if isinstance(declared, str) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """One CustomResourceDefinition; compared by identity, not by content."""

    name: str
    uid: str
    group: str
    kind: str
    plural: str
    namespaced: bool
    established: bool  # it is served, or will be in a moment
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    versions: tuple[Version, ...]  # the served ones, by Kubernetes' version priority
    body: Mapping[str, Any] = field(repr=False)

    @property
    def gvr(self) -> GroupVersionResource | None:
        """The resource in its preferred version; None if no version is served."""
        if not self.established or not self.versions:
            return None
        return GroupVersionResource(self.group, self.versions[0].name, self.plural)

    def version(self, name: str) -> Version | None:
        """Return a served version."""
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


class _Definition(msgspec.Struct):
    metadata: NamedObjectMeta
    spec: _Spec
    status: _Status | None = None


def definition_of(body: Mapping[str, Any]) -> Definition:
    """Read a CustomResourceDefinition (apiextensions.k8s.io/v1). Raises Terminal."""
    with json_errors_as(Terminal, "a CustomResourceDefinition cannot be read"):
        read = msgspec.convert(body, _Definition)
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


class Definitions(Cache[Definition]):
    """Caches the CustomResourceDefinitions that `matters` selects, by name."""

    def __init__(
        self,
        on_change: Callable[[], None],
        matters: Callable[[Definition], bool] = lambda _definition: True,
    ) -> None:
        """Call `on_change` after each change of a definition, and at the end of each LIST."""
        # By identity: comparing whole schemas costs more than a needless call.
        super().__init__(self._read, lambda _changes: on_change(), differs=is_not)
        self._matters = matters

    def __iter__(self) -> Iterator[Definition]:
        """Yield the definitions ordered by name."""
        return iter(sorted(self.objects.values(), key=lambda found: found.name))

    def of(self, group: str, resource: str) -> Definition | None:
        """Return the definition of a resource, whose name is `<resource>.<group>`."""
        return self.get(ObjectKey("", f"{resource}.{group}"))

    def _read(self, item: Item) -> Definition | None:
        try:
            definition = definition_of(msgspec.json.decode(item.body))
        except (*NO_JSON, Terminal) as error:
            log.warning("definition_not_read", key=str(item.key), error=str(error))
            return self.get(item.key)  # its last state is a better guess than none
        return definition if self._matters(definition) else None
