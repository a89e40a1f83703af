"""The webhook configurations to reconcile, what each excludes, and their CA certificates.

Placement has two configurations, and so has a built-in policy system: a mutating and a validating
one. Those of a system are named after it, so that a role can name them.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Gauge

from kube_sync.admission.exemptions import (
    conditions_of,
    left_out_conditions,
    left_out_namespaces,
    left_out_of_systems,
)
from kube_sync.admission.route import PLACED, PLACEMENT, admit_path, validate_path
from kube_sync.config import Settings, System
from kube_sync.errors import Misconfigured
from kube_sync.kube.webhooks import CONFIGURATIONS, VALIDATING
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics

_FIELD = "admission.registration.ca_file"


class CaFile:
    """The current content of the CA file; None if no file is configured."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def current(self) -> str | None:
        """Return the PEM in base64, as in `caBundle`.

        Raises Misconfigured if it contains no valid certificates, or a private key, which would
        become public; so a file that is partly written is not used.
        """
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
        except OSError as error:
            msg = f"{_FIELD}: {self._path}: {error.strerror}"
            raise Misconfigured(msg) from error
        try:
            _load(content)
        except (ssl.SSLError, ValueError) as error:
            msg = f"{_FIELD}: {self._path}: no certificates in PEM"
            raise Misconfigured(msg) from error
        if "PRIVATE KEY" in content.decode(errors="replace"):
            msg = f"{_FIELD}: {self._path}: has a private key in it; name a file of certificates"
            raise Misconfigured(msg)
        return base64.b64encode(content).decode()


def _load(content: bytes) -> None:
    """Raise SSLError or ValueError unless these are whole certificates, and text between them."""
    certificates = content.decode("ascii", errors="ignore")  # the text may have other letters
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)


@dataclass(frozen=True, slots=True)
class WebhookScope:
    """One webhook configuration, and the wanted settings of its webhooks at one path."""

    name: str
    kind: GroupVersionResource
    path: str
    namespaces: tuple[str, ...]  # excluded
    conditions: Mapping[str, str | None]
    closed: Gauge
    manifests: str  # manifests that create it
    rights: str  # manifests of the role that may update it


def kept_for_placement(settings: Settings) -> tuple[WebhookScope, WebhookScope]:
    """Return both registrations for placement decisions."""

    def kept(kind: GroupVersionResource, path: str, closed: Gauge) -> WebhookScope:
        return WebhookScope(
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


def kept_for(system: System, settings: Settings) -> tuple[WebhookScope, WebhookScope]:
    """Return both registrations for a built-in system."""

    def kept(kind: GroupVersionResource, path: str) -> WebhookScope:
        folder = f"manifests/webhook-{system.name}"
        return WebhookScope(
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
