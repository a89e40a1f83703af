"""Who writes statuses and the picture, and how that is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kube_sync.kube.sending import Sending
from kube_sync.observability import metrics

What = Literal["status", "picture", "paths"]


def sending(fence: Callable[[], float]) -> Sending:
    """Return who writes; `fence` tells for how many seconds more this process may."""
    return Sending(fence, _count)


def _count(what: str, outcome: str) -> None:
    word = "written" if outcome == "done" else outcome
    metrics.topology_writes.labels(what, word).inc()
