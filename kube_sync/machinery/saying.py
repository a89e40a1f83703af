"""What a step says, to be compared with what another one says of the same object.

Keeps true: neither the time of a write nor what others have in the same list makes a difference.
"""

from __future__ import annotations

from kube_sync.machinery.conditions import CONTROLLER, Json, untimed
from kube_sync.machinery.plan import Replace, Step
from kube_sync.topology.shapes import items


def saying(step: Step) -> object:
    """Return what a step says."""
    if isinstance(step, Replace):
        return [
            {**entry, "conditions": _untimed(entry)}
            for entries in step.status.values()
            for entry in entries
            if isinstance(entry, dict) and entry.get("controllerName") == CONTROLLER
        ]
    listeners = [(one["name"], _untimed(one)) for one in items(step.status, "listeners")]
    return len(step.removals), _untimed(step.status), listeners


def _untimed(said: Json) -> list[Json]:
    return [untimed(condition) for condition in items(said, "conditions")]
