"""Operator approvals: the annotation `kube-sync.io/approved` of policy ConfigMaps.

Its value is a comma-separated list of names, each with the time of the approval (`name@Unix
seconds`). An approval expires after a day; one without a time does not expire. Only those who may
change the policy may write the ConfigMap, and the API server's audit log records who wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import ConfigMaps
from kube_sync.kube.meta import object_meta
from kube_sync.objects import ObjectKey

APPROVED = "kube-sync.io/approved"
LAPSE_SECONDS = 86_400.0


class Approval(msgspec.Struct, frozen=True):
    """The value of the approval annotation of one ConfigMap."""

    key: ObjectKey
    text: str


def approvals(
    namespaces: Iterable[str], on_change: Callable[[], None]
) -> list[ConfigMaps[Approval]]:
    """Return one Cache for each namespace that may hold approvals."""
    return [ConfigMaps(name, on_change, _read) for name in namespaces]


def approved(text: str, now: float) -> dict[str, float | None]:
    """Return the names that are approved at `now` (Unix seconds), each with its approval time."""
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, at = part.strip().partition("@")
        if name and not at:
            found[name] = None
        elif name and at.isdecimal() and now - float(at) < LAPSE_SECONDS:
            found[name] = float(at)
    return found


def with_approved(annotations: Mapping[str, str], names: Iterable[str], now: float) -> str:
    """Return the annotation's value with `names` added and expired approvals removed."""
    known = approved(annotations.get(APPROVED, ""), now) | dict.fromkeys(names, now)
    return ",".join(name if at is None else f"{name}@{at:.0f}" for name, at in known.items())


def _read(item: Item) -> Approval | None:
    text = (object_meta(item.body).annotations or {}).get(APPROVED, "")
    return Approval(item.key, text) if text else None
