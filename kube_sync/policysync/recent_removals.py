"""Encodes the recent removals as text, so that the brakes of the next process know them.

It is an annotation of the Lease, written with each renewal, so the next leader has read it.
Removals of one policy for the same reasons are one entry, with the time of the last of them: an
entry counts for no shorter than when it was written. Malformed entries are ignored, and times in
the future count as now.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import CopyKey, PolicyId

log: structlog.stdlib.BoundLogger = structlog.get_logger()

WINDOW: Final = "kube-sync.io/let-go"
_MOST: Final = 128 * 1024  # bytes; all annotations of an object may have 256 KiB

# When each copy was last removed (Unix seconds), and the sources it had.
RecentRemovals = Mapping[CopyKey, tuple[float, frozenset[str]]]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    at: int
    policy: tuple[str, str, str, str, str]  # group, version, resource, namespace, name
    sources: tuple[str, ...]
    clusters: tuple[str, ...]


_entries = msgspec.json.Decoder(tuple[_Entry, ...])


def encode(removals: RecentRemovals) -> str:
    """Encode the removals, the latest as far as there is room; "" for none."""
    kept: list[str] = []
    size, entries = 2, sorted(_grouped(removals), key=lambda one: (-one.at, *_sort_key(one)))
    for entry in entries:
        text = msgspec.json.encode(entry).decode()
        size += len(text.encode()) + 1
        if size > _MOST:
            log.warning("let_go_cut", policies=len(entries), kept=len(kept))
            break
        kept.append(text)
    return f"[{','.join(kept)}]" if kept else ""


def decode(text: str, now: float) -> dict[CopyKey, tuple[float, frozenset[str]]]:
    """Decode the removals of a text; `now` is Unix seconds."""
    try:
        entries = _entries.decode(text or "[]")
    except NO_JSON as error:
        log.warning("let_go_unreadable", error=str(error))
        return {}
    found: dict[CopyKey, tuple[float, frozenset[str]]] = {}
    for one in entries:
        group, version, resource, namespace, name = one.policy
        policy = PolicyId(GroupVersionResource(group, version, resource), namespace, name)
        removal = min(float(one.at), now), frozenset(one.sources)
        found |= {CopyKey(policy, cluster): removal for cluster in one.clusters}
    return found


def _grouped(removals: RecentRemovals) -> list[_Entry]:
    alike: dict[tuple[PolicyId, frozenset[str]], dict[str, float]] = {}
    for key, (at, sources) in removals.items():
        alike.setdefault((key.policy, sources), {})[key.cluster] = at
    return [
        _Entry(
            # Rounded up: rounding must not let it expire earlier.
            ceil(max(clusters.values())),
            (gvr.group, gvr.version, gvr.resource, namespace, name),
            tuple(sorted(sources)),
            tuple(sorted(clusters)),
        )
        for ((gvr, namespace, name), sources), clusters in alike.items()
    ]


def _sort_key(entry: _Entry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return entry.policy, entry.sources
