"""What the API server puts into a pod before it asks a webhook about it.

Keeps true: a pod that says something of its own keeps it; what is not of the type that the API
server expects stays as it is, to be refused by the Rego. Of Kubernetes 1.36: the default of
`schedulerName`, the admission plugins DefaultTolerationSeconds and Priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SCHEDULER: Final = "default-scheduler"
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

Json = dict[str, Any]


def filled_in(pod: Json, seconds: int, priority_class: str) -> Json:
    """Return a pod as webhooks see it.

    `seconds` is how long it tolerates a node that is not ready; `priority_class` is the global
    default, empty where there is none.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    filled = {**spec, "schedulerName": scheduler_of(spec)}
    if priority_class and not spec.get("priorityClassName"):
        filled["priorityClassName"] = priority_class
    tolerations = spec.get("tolerations")
    if tolerations is None or isinstance(tolerations, list):
        filled["tolerations"] = [*(tolerations or []), *_missing(tolerations or [], seconds)]
    return {**pod, "spec": filled}


def scheduler_of(spec: Json) -> Any:  # noqa: ANN401 - any JSON, which is refused as it is
    """Return the scheduler that a pod's spec names, or the one that it gets without."""
    return spec.get("schedulerName") or _SCHEDULER


def global_default(priority_classes: Mapping[str, Any], configured: str) -> str:
    """Return the PriorityClass of pods that name none, empty where none is known."""
    found = [name for name, one in priority_classes.items() if one.get("globalDefault") is True]
    return configured or min(found, default="")


def _missing(tolerations: list[Any], seconds: int) -> list[Json]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _TAINTS
        if not any(_tolerates(one, key) for one in tolerations)
    ]


def _tolerates(one: object, key: str) -> bool:
    return (
        isinstance(one, dict)
        and (one.get("key") or key) == key
        and (one.get("effect") or "NoExecute") == "NoExecute"
    )
