"""Events (events.k8s.io/v1): one object for what happened, counted while it happens again.

Shapes and limits are those of Kubernetes' own `pkg/apis/core/validation/events.go`: a note of at
most 1,024 bytes, a series that begins at two, and an Event that lies where its object lies, or in
`default` where its object lies in no namespace, a Namespace included.
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
    """An object as an Event names it (core/v1 ObjectReference)."""

    api_version: str
    kind: str
    namespace: str  # empty for what lies in none
    name: str
    uid: str = ""  # where it is known


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What happened, without when: two that are equal are one series."""

    regarding: Reference
    related: Reference | None
    reason: str
    action: str
    note: str  # see `cut`
    warns: bool = True  # somebody has to look at it

    @property
    def namespace(self) -> str:
        """Where the API server wants the Event."""
        return self.regarding.namespace or "default"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who tells."""

    controller: str
    instance: str


def event_name(occurrence: Occurrence, nanoseconds: int) -> str:
    """Return `<name>.<hexadecimal time>`, as client-go does, as a valid name of an object."""
    end = f".{nanoseconds:x}"
    # What has a name already may have one that is none for an Event, as `system:node` is a role's.
    name = re.sub(r"[^a-z0-9.-]+|[.-]{2,}", "-", occurrence.regarding.name.lower())
    return (re.sub(r"[.-]{2,}", "-", name)[: _NAME_BYTES - len(end)].strip("-.") or "it") + end


def cut(note: str) -> str:
    """Return a text that is short enough for a note, with no half of a character in it."""
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
    """Create an Event. Raises SyncError; Conflict where there is one of that name."""
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
    """Say how often it has happened by now. Raises SyncError; NotFound when it has expired."""
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
