"""What operators approved: the annotation `kube-sync.io/approved` of policy ConfigMaps.

Its value is names with commas between them, each with the time at which it was given (`name@Unix
seconds`); an approval lapses after a day, one without a time does not. It stands on an object that
only those may write who may change the policy, and the API server's audit log says who wrote it.
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
    """What one ConfigMap approves."""

    key: ObjectKey
    text: str


def approvals(namespaces: Iterable[str], news: Callable[[], None]) -> list[ConfigMaps[Approval]]:
    """Return a Store for each place where approvals may be."""
    return [ConfigMaps(name, news, _read) for name in namespaces]


def approved(text: str, now: float) -> dict[str, float | None]:
    """Return the names that are approved now (Unix seconds), each with its time."""
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, at = part.strip().partition("@")
        if name and not at:
            found[name] = None
        elif name and at.isdecimal() and now - float(at) < LAPSE_SECONDS:
            found[name] = float(at)
    return found


def with_approved(annotations: Mapping[str, str], names: Iterable[str], now: float) -> str:
    """Return the annotation's value with these names too, without what has lapsed."""
    known = approved(annotations.get(APPROVED, ""), now) | dict.fromkeys(names, now)
    return ",".join(name if at is None else f"{name}@{at:.0f}" for name, at in known.items())


def _read(item: Item) -> Approval | None:
    text = (object_meta(item.body).annotations or {}).get(APPROVED, "")
    return Approval(item.key, text) if text else None
