"""Placement annotations: what their values mean to a workload. Pure.

A placement that names no cluster empties the workload. A policy that says so because the fleet it
sees is empty has not decided anything: nothing here or elsewhere takes it for an order.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_sync.errors import NO_JSON

PLACEMENT = "federation.kubernetes.io/replica-set-preferences"


def empties(wanted: Mapping[str, str], current: Mapping[str, str]) -> bool:
    """Tell whether `wanted` would take away every cluster that a workload may run on now.

    One without a placement runs wherever its federation puts it.
    """
    return (
        PLACEMENT in wanted
        and is_empty_placement(wanted[PLACEMENT])
        and not (PLACEMENT in current and is_empty_placement(current[PLACEMENT]))
    )


def is_empty_placement(preferences: str) -> bool:
    """Tell whether replica-set-preferences name no cluster, or only clusters of weight 0."""
    try:
        clusters = msgspec.json.decode(preferences)["clusters"]
        entries = list(clusters.values())
    except (*NO_JSON, KeyError, TypeError, AttributeError):
        return False  # not the shape that says where to run: nothing can be concluded
    return not any(_has_weight(entry) for entry in entries)


def _has_weight(entry: object) -> bool:
    if not isinstance(entry, dict):
        return True
    if entry.get("maxReplicas") == 0:
        return False
    return bool(entry.get("weight", 1) or entry.get("minReplicas", 0))
