"""Which removals operators approved: an annotation of the ConfigMaps with the parameters.

Whoever may change what is synced may approve what that takes away; nobody else.
"""

from __future__ import annotations

from kube_sync.kube.approvals import APPROVED, approved
from kube_sync.objects import ObjectKey
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.parameters import reference
from kube_sync.topology.shapes import UNREADABLE, text


def approved_in(state: HubState, now: float) -> frozenset[str]:
    """Return the names that are approved now (Unix seconds)."""
    found: set[str] = set()
    for body in state.classes.objects.values():
        key = reference(body)
        configmap = state.configmaps.get(key) if isinstance(key, ObjectKey) else None
        try:
            said = text(configmap or {}, "metadata", "annotations", APPROVED)
        except UNREADABLE:
            continue
        found |= approved(said, now).keys()
    return frozenset(found)
