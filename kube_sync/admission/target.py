"""The policy engine to ask, from `admission.engine`, the design's own section, and `opa`. Pure.

Settings missing in `admission.engine` are those of OPA. The design's own section has the whole URL;
the dialect follows from its path.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from kube_sync.admission.engine_formats import DIALECTS, REQUEST, Dialect
from kube_sync.config import Settings, masked
from kube_sync.decisions.batch_module import REVIEWED_PATH
from kube_sync.opa.entry import ENTRY_PATH


@dataclass(frozen=True, slots=True)
class Target:
    """One URL, and the dialect there."""

    url: str
    dialect: Dialect
    ca_file: str | None = None
    token_file: str | None = None
    token: str | None = None  # the token itself, if the configuration contains it
    cert_file: str | None = None
    key_file: str | None = None
    timeout_seconds: float = 2.0  # of one attempt
    entry: str | None = None  # the URL of the canary's entry point; None: there can be none
    reviewed: str | None = None  # that of the decision with the epoch of OPA's data, likewise

    def __repr__(self) -> str:
        """Show the URL without secrets."""
        return f"Target({masked(self.url)!r})"


def target_of(settings: Settings) -> Target:
    """Return the engine of a configuration."""
    engine, opa, own = settings.admission.engine, settings.opa, settings.enforce_scheduling_policy
    dialect: str = engine.dialect
    if own.url is not None and dialect == "v1":
        dialect = _dialect_at(own.url)
    spoken = DIALECTS[dialect]
    path = engine.path or spoken.prefix + settings.placement.path
    root = opa.url.rstrip("/") + spoken.prefix if settings.asks_opa() else None
    return Target(
        own.url or (engine.url or opa.url).rstrip("/") + path,
        spoken,
        engine.ca_file or opa.ca_file,
        engine.token_file or opa.token_file,
        own.token,
        engine.cert_file,
        engine.key_file,
        engine.timeout_seconds,
        entry=root and root + ENTRY_PATH,
        reviewed=root and root + REVIEWED_PATH,
    )


def system_target(settings: Settings, decision: str) -> Target:
    """Return OPA as the target for the decision of a built-in system at this path."""
    opa = settings.opa
    return Target(
        opa.url.rstrip("/") + REQUEST.prefix + decision,
        REQUEST,
        opa.ca_file,
        opa.token_file,
        timeout_seconds=settings.admission.engine.timeout_seconds,
    )


def _dialect_at(url: str) -> str:
    path = urlsplit(url).path
    if path.startswith("/v0/"):
        return "v0"
    return "annotations" if path.rstrip("/").endswith("/annotations") else "v1"
