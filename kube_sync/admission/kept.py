"""Which registrations are kept right, and what each of them leaves out. Pure.

Placement has two configurations, and so has a built-in policy system: one for what may still be
changed, one for what became of it. Those of a system are named after it, so that a role can name
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Gauge

from kube_sync.admission.exemptions import (
    conditions_of,
    left_out_conditions,
    left_out_namespaces,
    left_out_of_systems,
)
from kube_sync.admission.way import PLACED, PLACEMENT, admit_path, validate_path
from kube_sync.kube.webhooks import CONFIGURATIONS, VALIDATING
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.settings import Settings, System


@dataclass(frozen=True, slots=True)
class Kept:
    """One configuration, and what its webhooks at one path should say whatever happens."""

    name: str
    kind: GroupVersionResource
    path: str
    namespaces: tuple[str, ...]  # left out
    conditions: Mapping[str, str | None]
    closed: Gauge
    manifests: str  # where it comes from
    rights: str  # where the role is that may keep it


def kept_for_placement(settings: Settings) -> tuple[Kept, Kept]:
    """Return both registrations for placement decisions."""

    def kept(kind: GroupVersionResource, path: str, closed: Gauge) -> Kept:
        return Kept(
            settings.admission.registration.name or "",
            kind,
            path,
            left_out_namespaces(settings),
            left_out_conditions(settings),
            closed,
            "manifests/webhook",
            "manifests/base/rbac",
        )

    checked = metrics.admission_system_closed.labels(PLACED)
    return (
        kept(CONFIGURATIONS, PLACEMENT, metrics.admission_registration_closed),
        kept(VALIDATING, PLACED, checked),
    )


def kept_for(system: System, settings: Settings) -> tuple[Kept, Kept]:
    """Return both registrations for a built-in system."""

    def kept(kind: GroupVersionResource, path: str) -> Kept:
        folder = f"manifests/webhook-{system.name}"
        return Kept(
            f"kube-sync-{system.name}",
            kind,
            path,
            left_out_of_systems(settings),
            conditions_of(system, changing=kind == CONFIGURATIONS),
            metrics.admission_system_closed.labels(path),
            folder,
            folder,
        )

    return kept(CONFIGURATIONS, admit_path(system)), kept(VALIDATING, validate_path(system))
