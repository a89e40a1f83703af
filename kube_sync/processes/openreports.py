"""Wires the reports of OpenReports, which are off by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.openreports import REPORTS, ReportApi
from kube_sync.kube.reflector import Reflector
from kube_sync.kube.slices import SELECTOR
from kube_sync.objects import GroupVersionResource
from kube_sync.processes.context import Context
from kube_sync.remediation.openreports import ReportKeeper
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.services import Service

_CONDITION = "openreports"
_WAITING = "not done yet"
_LONGEST = 10.0  # seconds between two looks for the kind


def openreports(
    context: Context,
    reconciler: Reconciler,
    fenced: FencedWriter,
    kind_of: Callable[[GroupVersionResource], Awaitable[str]],
) -> list[Service]:
    """Return the services that keep the reports."""
    configured = context.settings.remediate.openreports
    # Noted only: reports move nothing, so the process is ready without them.
    noted, listed = context.readiness.noted, f"{REPORTS} of ours"
    noted(_CONDITION, _WAITING)
    noted(listed, _WAITING)
    keeper = ReportKeeper(
        reconciler,
        ReportApi(context.kube),
        fenced,
        kind_of,
        partial(noted, _CONDITION),
        most=configured.most_results,
        seconds=configured.interval_seconds,
    )
    source = KubeCollection(context.kube, REPORTS, label_selector=SELECTOR)
    reflector = Reflector(
        listed,
        source,
        keeper.reports,
        lambda reason: noted(listed, reason or "ok"),
        backoff=Backoff(longest=_LONGEST),
    )
    return [reflector.run, keeper.run]
