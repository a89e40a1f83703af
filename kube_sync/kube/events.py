"""Create and update Events (events.k8s.io/v1); a repetition raises the count of its series.

Shapes and limits are those of Kubernetes' own `pkg/apis/core/validation/events.go`: a note has at
most 1,024 bytes, a series begins at two, and an Event is in the namespace of its object, or in
`default` if the object is cluster-scoped (a Namespace included).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kube_sync.kube.client import KubeClient
from kube_sync.kube.meta import micro_time
from kube_sync.objects import GroupVersionResource

EVENTS = GroupVersionResource("events.k8s.io", "v1", "events")
_NOTE_BYTES = 1024
_NAME_BYTES = 253  # a DNS subdomain (RFC 1123)
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an object in an Event (core/v1 ObjectReference)."""

    api_version: str
    kind: str
    namespace: str  # empty if cluster-scoped
    name: str
    uid: str = ""  # empty if unknown


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What happened, without the time: equal occurrences are one series."""

    regarding: Reference
    related: Reference | None
    reason: str
    action: str
    note: str  # at most 1,024 bytes, see `cut`
    warns: bool = True  # type Warning: somebody has to look at it

    @property
    def namespace(self) -> str:
        """The namespace in which the API server requires the Event."""
        return self.regarding.namespace or "default"


@dataclass(frozen=True, slots=True)
class Reporter:
    """The reporting controller and instance."""

    controller: str
    instance: str


def event_name(occurrence: Occurrence, nanoseconds: int) -> str:
    """Return `<name>.<hexadecimal time>`, as client-go does, as a valid name of an object."""
    end = f".{nanoseconds:x}"
    # Some object names are invalid for an Event, as a role's `system:node`.
    name = re.sub(r"[^a-z0-9.-]+|[.-]{2,}", "-", occurrence.regarding.name.lower())
    return (re.sub(r"[.-]{2,}", "-", name)[: _NAME_BYTES - len(end)].strip("-.") or "it") + end


def cut(note: str) -> str:
    """Truncate a note to its maximum length, between two characters."""
    whole = note.encode()
    if len(whole) <= _NOTE_BYTES:
        return note
    return whole[: _NOTE_BYTES - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


async def create_event(
    client: KubeClient,
    name: str,
    occurrence: Occurrence,
    reporter: Reporter,
    *,
    first: datetime,
    last: datetime,
    count: int,
) -> None:
    """Create an Event. Raises SyncError; Conflict if one of that name exists."""
    event: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": name, "namespace": occurrence.namespace},
        "eventTime": micro_time(first),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "type": "Warning" if occurrence.warns else "Normal",
        "reason": occurrence.reason,
        "action": occurrence.action,
        "note": occurrence.note,
        "regarding": _reference(occurrence.regarding),
    }
    if occurrence.related is not None:
        event["related"] = _reference(occurrence.related)
    if count > 1:
        event |= _series(last, count)
    path = EVENTS.path(occurrence.namespace)
    await client.request("POST", path, body=msgspec.json.encode(event))


async def count_event(
    client: KubeClient, name: str, occurrence: Occurrence, last: datetime, count: int
) -> None:
    """Update an Event's series count. Raises SyncError; NotFound if the Event has expired."""
    await client.request(
        "PATCH",
        EVENTS.path(occurrence.namespace, name),
        body=msgspec.json.encode(_series(last, count)),
        content_type="application/merge-patch+json",
    )


def _series(last: datetime, count: int) -> dict[str, Any]:
    return {"series": {"count": count, "lastObservedTime": micro_time(last)}}


def _reference(found: Reference) -> dict[str, str]:
    fields = {
        "apiVersion": found.api_version,
        "kind": found.kind,
        "namespace": found.namespace,
        "name": found.name,
        "uid": found.uid,
    }
    return {name: value for name, value in fields.items() if value}
