"""Which kinds are read on spokes that are written to directly. Pure.

Keeps true: a copy is found again, whatever has become of the list of kinds since it was made: also
by a process that began after its kind had left the list. What tells of copies is their label on the
spokes alone, so every kind is read there that could have been synced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.spokesteps import Fields


def spoke_kinds(
    synced: Mapping[GroupVersionResource, Fields],
    read: Mapping[GroupVersionResource, Fields],
    held: Iterable[PolicyId],
    possible: Iterable[GroupVersionResource],
) -> dict[GroupVersionResource, Fields]:
    """Return the kinds to read on spokes, and what of each.

    `read` are those that were read until now, of which there are the copies `held`; of `possible`
    ones, which may not be synced at all, only the copies are looked for.
    """
    copied = {_same(policy.gvr) for policy in held}
    found = {gvr: fields for gvr, fields in read.items() if _same(gvr) in copied} | dict(synced)
    known = {_same(gvr) for gvr in found}
    return found | {gvr: read.get(gvr, ()) for gvr in possible if _same(gvr) not in known}


def _same(gvr: GroupVersionResource) -> tuple[str, str]:
    return gvr.group, gvr.resource
