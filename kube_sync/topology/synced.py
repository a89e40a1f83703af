"""Policies that were brought from a hub, as the annotations of their copies tell.

Keeps true: what the annotations say can only lower a policy: a synced one gives way to every
policy of its kind that was made here for the same target, however old it claims to be.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from kube_sync.topology.nodes import Body
from kube_sync.topology.raw_json import mapping, text, text_if_any

SYNCED = "kuadrant.io/policy-synced"  # whatever its value: it is a copy of a policy on the hub
ORIGIN = "kuadrant.io/origin-creation"  # when that policy was created
POLICY = "kube-sync.io/policy"  # which one, as `group/version/resource:namespace/name`
_NAME = re.compile(r"[^:]*:(?P<name>(?:[a-z0-9.-]*/)?[a-z0-9.-]+)")
# RFC 3339, section 5.6: more than `fromisoformat` takes would mean one thing here, another there.
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", flags=re.ASCII
)


def hub_policy(body: Body) -> str:
    """Return the `namespace/name` of the hub's policy that a copy is of, "" if it does not say."""
    match = _NAME.fullmatch(text_if_any(body, "metadata", "annotations", POLICY))
    return "" if match is None else match["name"].removeprefix("/")


class Origin(NamedTuple):
    """Where a policy is from; `created` is None where that does not say since when it is."""

    synced: bool = False
    created: datetime | None = None
    remark: str = ""  # what cannot be read, and what counts instead


def is_synced(body: Body) -> bool:
    """Tell whether a policy is a copy: the annotation is there (RFC 0007). Raises Malformed."""
    notes = mapping(body, "metadata", "annotations")
    text(notes, SYNCED)
    return SYNCED in notes


def origin_of(body: Body) -> Origin:
    """Read where a policy is from. Raises Malformed."""
    if not is_synced(body):
        return Origin()
    said = mapping(body, "metadata", "annotations").get(ORIGIN)
    if said is None:
        return Origin(synced=True)
    created = _time(said)
    if created is None:
        remark = f"annotation {ORIGIN} is no time (RFC 3339), so creationTimestamp counts"
        return Origin(synced=True, remark=remark)
    return Origin(synced=True, created=created)


def _time(said: object) -> datetime | None:
    if not isinstance(said, str) or not _RFC3339.fullmatch(said):
        return None
    try:
        return datetime.fromisoformat(said.upper())
    except ValueError:  # the 30th of February
        return None
