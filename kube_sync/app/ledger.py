"""The ledger of a replicator, where one is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from kube_sync.ledger.intake import report_routes
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.recording import Recall, Recorder
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.services import Service
from kube_sync.settings import Ledger


async def _nothing() -> None:
    """Wait for nothing."""


def _nobody(_digest: str, _modules: Mapping[str, str]) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What the parts of a replicator say to the ledger, and when they were heard."""

    recorder: Recorder | None = None
    recorded: Callable[[], Awaitable[object]] = _nothing
    in_force: Callable[[str, Mapping[str, str]], None] = _nobody
    services: list[Service] = field(default_factory=list)
    routes: list[web.RouteDef] = field(default_factory=lambda: report_routes(None))


def open_ledger(settings: Ledger, instance: str, readiness: Readiness) -> Opened:
    """Return the ledger that is configured; without a path nothing is recorded."""
    if settings.path is None:
        return Opened()

    def told(reason: str | None) -> None:
        # Noted and no more: decisions go on without it.
        said = "recording" if reason is None else f"cannot be written: {reason}"
        readiness.noted("ledger", said)

    journal = Journal(
        Path(settings.path),
        max_age=settings.max_age,
        max_size=settings.max_size,
        told=told,
        recall=Recall(),
    )
    recorder = Recorder(journal, instance)
    routes = report_routes(journal)
    return Opened(recorder, journal.recorded, recorder.policies, [journal.run], routes)
