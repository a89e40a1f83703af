"""The metadata of an object (meta/v1 ObjectMeta), for code that reads a few objects; its changes.

Invariant: the types are those that the API server guarantees for stored objects; a missing field
has its zero value. An object whose metadata has other types is not decoded at all. Code that reads
thousands of objects (each field costs time), or objects that no API server has validated yet (each
field may have another type), declares the few fields that it needs itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

_SECONDS: Final = "%Y-%m-%dT%H:%M:%S"


def time_text(moment: datetime) -> str:
    """Format a moment as meta/v1 Time."""
    return moment.astimezone(UTC).strftime(f"{_SECONDS}Z")


def micro_time(moment: datetime) -> str:
    """Format a moment as meta/v1 MicroTime."""
    return moment.astimezone(UTC).strftime(f"{_SECONDS}.%fZ")


class State(NamedTuple):
    """The uid and resourceVersion of an object."""

    uid: str
    version: int  # resourceVersion; 0 if it is not a number

    def is_later(self, other: State) -> bool:
        """Return whether it is a later state of the same object."""
        return self.uid == other.uid and 0 < other.version < self.version


def state_of(uid: object, version: object) -> State:
    """Return a State from a uid and a resourceVersion of any type."""
    known = isinstance(version, str) and version.isdecimal()
    return State(str(uid or ""), int(str(version)) if known else 0)


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of annotations and labels to the object `uid` at `version` ("": any).

    The field manager owns all of them from then on, and no others.
    """

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Amend:
    """JSON Patch that sets these annotations and labels of `uid` at `version`; None removes one.

    An apply cannot: it leaves what nobody owns, such as what the webhook wrote, and gives up what
    the owner of the object wants back. `bare` names the maps that the object does not have.
    """

    uid: str
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""
    bare: frozenset[str] = frozenset()


class OwnerReference(msgspec.Struct, rename="camel", frozen=True):
    """An owner of the object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    def is_same(self, other: OwnerReference) -> bool:
        """Return whether both are the same resource, which has one kind, in the same version."""
        return (self.api_version, self.name, self.uid) == (other.api_version, other.name, other.uid)


class ObjectMeta(msgspec.Struct, rename="camel"):
    """The ObjectMeta fields that are used here; a JSON null is None, as for Go's maps and times."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None  # RFC 3339, in UTC: sorts as text
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class NamedObjectMeta(ObjectMeta, kw_only=True):
    """The metadata of an object that must have a name."""

    name: str


class PartialObjectMetadata(msgspec.Struct):
    """The metadata of an object of any kind."""

    metadata: ObjectMeta


_objects = msgspec.json.Decoder(PartialObjectMetadata)


def object_meta(body: bytes) -> ObjectMeta:
    """Decode the metadata of an object. Raises the errors in `errors.NO_JSON`."""
    return _objects.decode(body).metadata
