"""Who takes steps and writes what is told, and how that is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kube_sync.kube.sending import Sending
from kube_sync.observability import metrics

What = Literal["apply", "leave", "remove", "status", "annotations", "class"]


def sending(fence: Callable[[], float]) -> Sending:
    """Return who writes; `fence` tells for how many seconds more this process may."""
    return Sending(fence, _count)


def _count(what: str, outcome: str) -> None:
    metrics.policy_sync_writes.labels(what, outcome).inc()
