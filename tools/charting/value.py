"""One value of the chart, and the values that images, pods and workloads have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tools.charting.schemas import (
    AFFINITY,
    NAME,
    PULL,
    RESOURCES,
    SPREAD,
    TEXT,
    TEXTS,
    TOLERATIONS,
    WITH_DIGEST,
    Schema,
    at_least,
)

MADE: Final = object()  # the default is that of the manifests


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its path, what it may be, its default, and what it is for."""

    path: str
    schema: Schema
    text: str
    default: Any = MADE


def image(path: str, whose: str) -> tuple[Value, ...]:
    """Return the values of an image."""
    own: tuple[Value, ...] = (
        Value(f"{path}.repository", NAME, f"The image of {whose}."),
        Value(f"{path}.tag", TEXT, "Its tag."),
    )
    if path == "image":
        own = (
            Value(f"{path}.repository", NAME, f"The image of {whose}.", "kube-sync"),
            Value(
                f"{path}.tag",
                TEXT,
                "Its tag; empty: `v` and the chart's appVersion, as releases have it.",
                "",
            ),
        )
    return (
        *own,
        Value(f"{path}.digest", WITH_DIGEST, "Its digest (`sha256:…`), in place of the tag.", ""),
        Value(f"{path}.pullPolicy", PULL, "Empty: what Kubernetes takes for the tag.", ""),
    )


def pods(path: str = "") -> tuple[Value, ...]:
    """Return the values of pods: of all, or of one workload."""
    stem, whose = (f"{path}.", "of these pods, in place of those") if path else ("", "")
    more = "in addition to those of all pods" if path else "of all pods"
    for_all = f"{whose} of all pods" if path else "of all pods"
    return (
        Value(f"{stem}podAnnotations", TEXTS, f"Annotations {more}.", {}),
        Value(f"{stem}podLabels", TEXTS, f"Labels {more}.", {}),
        Value(f"{stem}nodeSelector", TEXTS, f"Labels of nodes {for_all}.", {}),
        Value(f"{stem}tolerations", TOLERATIONS, f"Tolerations {for_all}.", []),
        Value(f"{stem}affinity", AFFINITY, f"Affinity {for_all}.", {}),
        Value(f"{stem}priorityClassName", TEXT, f"PriorityClass {for_all}.", ""),
    )


def workload(path: str, replicas: int | None, container: str) -> tuple[Value, ...]:
    """Return the values of a workload: `replicas` are the fewest, None if there are none."""
    number = Value(f"{path}.replicas", at_least(replicas or 1), "Number of pods.")
    resources = Value(f"{path}.resources", RESOURCES, f"Requests and limits of {container}.")
    spread = Value(
        f"{path}.topologySpreadConstraints",
        SPREAD,
        "In place of a spread over nodes and zones, as far as there are several.",
        [],
    )
    many = (number, spread) if replicas else ()
    return (*many, resources, *pods(path))
