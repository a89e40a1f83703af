"""The rules by which kstatus judges an object of a custom kind, restated.

Their source is `Compute` in sigs.k8s.io/cli-utils v0.37.2, pkg/kstatus/status (status.go and
generic.go; Flux's fork github.com/fluxcd/cli-utils has the same text). Tests that are marked
`built("kstatus")` compare this with that code itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CURRENT, IN_PROGRESS, FAILED = "Current", "InProgress", "Failed"
TERMINATING = "Terminating"


def computed(found: Mapping[str, Any]) -> str:
    """Return the status that kstatus computes for an object of a custom kind."""
    if found["metadata"].get("deletionTimestamp"):
        return TERMINATING
    status = found.get("status", {})
    observed = status.get("observedGeneration")
    if observed is not None and observed != found["metadata"]["generation"]:
        return IN_PROGRESS
    conditions = [(one["type"], one["status"]) for one in status.get("conditions", ())]
    for one in conditions:
        if one == ("Reconciling", "True"):
            return IN_PROGRESS
        if one == ("Stalled", "True"):
            return FAILED
    ready = [value for kind, value in conditions if kind == "Ready"]
    return IN_PROGRESS if ready and ready[0] != "True" else CURRENT
