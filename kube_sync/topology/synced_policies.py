"""Copies of a hub's policies, by their annotations.

Invariant: the annotations can only lower the precedence of a policy: a copy gives way to every
local policy of its kind for the same target, however old it claims to be.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from kube_sync.topology.nodes import Body
from kube_sync.topology.raw_json import mapping, text, text_if_any

SYNCED = "kuadrant.io/policy-synced"  # with any value: it is a copy of a policy on the hub
ORIGIN = "kuadrant.io/origin-creation"  # when that policy was created
POLICY = "kube-sync.io/policy"  # that policy, as `group/version/resource:namespace/name`
_NAME = re.compile(r"[^:]*:(?P<name>(?:[a-z0-9.-]*/)?[a-z0-9.-]+)")
# RFC 3339, section 5.6: what else `fromisoformat` accepts, other readers may read otherwise.
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", flags=re.ASCII
)


def hub_policy(body: Body) -> str:
    """Return the `namespace/name` of the hub's policy that a copy is of, "" if unknown."""
    match = _NAME.fullmatch(text_if_any(body, "metadata", "annotations", POLICY))
    return "" if match is None else match["name"].removeprefix("/")


class Origin(NamedTuple):
    """Whether a policy is a copy, and the creation time of the original, None if unknown."""

    synced: bool = False
    created: datetime | None = None
    remark: str = ""  # what is invalid, and what is used instead


def is_synced(body: Body) -> bool:
    """Return whether a policy is a copy: it has the annotation (RFC 0007). Raises Malformed."""
    annotations = mapping(body, "metadata", "annotations")
    text(annotations, SYNCED)
    return SYNCED in annotations


def origin_of(body: Body) -> Origin:
    """Parse the origin of a policy. Raises Malformed."""
    if not is_synced(body):
        return Origin()
    annotation = mapping(body, "metadata", "annotations").get(ORIGIN)
    if annotation is None:
        return Origin(synced=True)
    created = _time(annotation)
    if created is None:
        remark = f"annotation {ORIGIN} is no time (RFC 3339), so creationTimestamp counts"
        return Origin(synced=True, remark=remark)
    return Origin(synced=True, created=created)


def _time(annotation: object) -> datetime | None:
    if not isinstance(annotation, str) or not _RFC3339.fullmatch(annotation):
        return None
    try:
        return datetime.fromisoformat(annotation.upper())
    except ValueError:  # the 30th of February
        return None
