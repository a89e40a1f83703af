"""What a step says, to be compared with what another one says of the same object.

Keeps true: neither the time of a write nor what others have in the same list makes a difference.
"""

from __future__ import annotations

from kube_sync.kube.conditions import Json, untimed
from kube_sync.machinery.conditions import CONTROLLER, stands
from kube_sync.machinery.plan import Replace, Step
from kube_sync.topology.shapes import items


def saying(step: Step) -> object:
    """Return what a step says."""
    if isinstance(step, Replace):
        plain = [one for one in _untimed(step.status) if stands(one.get("type"))]
        return plain + [
            {**entry, "conditions": _untimed(entry)}
            for name, entries in step.status.items()
            for entry in entries
            if name != "conditions" and entry.get("controllerName") == CONTROLLER
        ]
    listeners = [(one["name"], _untimed(one)) for one in items(step.status, "listeners")]
    return len(step.removals), _untimed(step.status), listeners


def _untimed(said: Json) -> list[Json]:
    return [untimed(condition) for condition in items(said, "conditions")]
