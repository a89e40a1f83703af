"""The metadata of an object (meta/v1 ObjectMeta), for whoever reads a few objects.

Keeps true: the types are those that the API server guarantees of what it stores; a field that is
missing has its zero value. An object whose metadata has other types is not decoded at all. So what
reads objects by the thousand (every field costs) or objects that no API server has looked at yet
(every field may be of another type) declares the few fields that it needs itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

_SECONDS: Final = "%Y-%m-%dT%H:%M:%S"


def time_text(moment: datetime) -> str:
    """Return a moment as meta/v1 Time."""
    return moment.astimezone(UTC).strftime(f"{_SECONDS}Z")


def micro_time(moment: datetime) -> str:
    """Return a moment as meta/v1 MicroTime."""
    return moment.astimezone(UTC).strftime(f"{_SECONDS}.%fZ")


class State(NamedTuple):
    """A state of an object."""

    uid: str
    version: int  # resourceVersion; 0 where it is no number

    def is_later(self, other: State) -> bool:
        """Tell whether it is a later state of the same object."""
        return self.uid == other.uid and 0 < other.version < self.version


def state_of(uid: object, version: object) -> State:
    """Return a state by its uid and resourceVersion, whatever they are."""
    known = isinstance(version, str) and version.isdecimal()
    return State(str(uid or ""), int(str(version)) if known else 0)


class OwnerReference(msgspec.Struct, rename="camel"):
    """An object on which this one depends."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(msgspec.Struct, rename="camel"):
    """The fields that are read somewhere; null is None, as it is of Go's maps and times."""

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
    """The metadata of an object that is refused where it has no name."""

    name: str


class PartialObjectMetadata(msgspec.Struct):
    """An object of any kind, and of it the metadata alone."""

    metadata: ObjectMeta


_objects = msgspec.json.Decoder(PartialObjectMetadata)


def object_meta(body: bytes) -> ObjectMeta:
    """Return the metadata of an object as JSON. Raises what `errors.NO_JSON` names."""
    return _objects.decode(body).metadata
