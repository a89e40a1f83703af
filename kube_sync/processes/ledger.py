"""Wires the ledger of a replicator, if one is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from kube_sync.config import Ledger, Settings
from kube_sync.errors import Misconfigured
from kube_sync.kube.client import kube_client
from kube_sync.ledger.intake import report_routes
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.replicator import LEASE
from kube_sync.runtime.services import Service

if TYPE_CHECKING:  # slow, and not needed where nothing is recorded
    from kube_sync.ledger.heads import Compared
    from kube_sync.ledger.recording import Recorder


async def _nothing() -> None:
    """Do nothing."""


def _nobody(_digest: str, _modules: Mapping[str, str]) -> None:
    """Ignore the policies."""


def _no_notes(_seen: Mapping[str, str]) -> Mapping[str, str]:
    """Return no annotations."""
    return {}


@dataclass(frozen=True, slots=True)
class Opened:
    """The ledger's interface for the parts of a replicator."""

    recorder: Recorder | None = None
    recorded: Callable[[], Awaitable[object]] = _nothing
    in_force: Callable[[str, Mapping[str, str]], None] = _nobody
    notes: Callable[[Mapping[str, str]], Mapping[str, str]] = _no_notes  # on the Lease
    head: Callable[[], str] = str  # as an Event has it
    services: list[Service] = field(default_factory=list)
    routes: list[web.RouteDef] = field(default_factory=lambda: report_routes(None))


def open_ledger(settings: Ledger, instance: str, readiness: Readiness) -> Opened:
    """Open the configured ledger; without a path nothing is recorded."""
    if settings.path is None:
        return Opened()
    from kube_sync.ledger.heads import HeadNotes  # noqa: PLC0415 - as above
    from kube_sync.ledger.journal import Journal  # noqa: PLC0415
    from kube_sync.ledger.recording import Recall, Recorder  # noqa: PLC0415

    def on_status(reason: str | None) -> None:
        # Noted only: decisions continue without it.
        detail = "recording" if reason is None else f"cannot be written: {reason}"
        readiness.noted("ledger", detail)

    journal = Journal(
        Path(settings.path),
        max_age=settings.max_age,
        max_size=settings.max_size,
        on_status=on_status,
        recall=Recall(),
    )
    recorder, heads = Recorder(journal, instance), HeadNotes(journal, settings.name)
    return Opened(
        recorder,
        journal.recorded,
        recorder.policies,
        heads.notes,
        lambda: heads.shown,
        [journal.run],
        report_routes(journal),
    )


async def noted_elsewhere(
    settings: Settings, known: Sequence[tuple[int, str]], *, offline: bool
) -> Compared:
    """Return the `known` heads, and those that the configured API server has."""
    from kube_sync.ledger.heads import Compared, Head, noted_heads  # noqa: PLC0415 - as above

    heads = tuple(Head(*one) for one in known)
    if offline:
        return Compared(heads)
    try:
        async with kube_client(settings.kubernetes) as kube:
            lease = settings.coordination.namespace, LEASE
            namespaces, name = settings.policies.namespaces, settings.ledger.name
            found = await noted_heads(kube, lease, namespaces, name)
    except Misconfigured as error:
        return Compared(heads, (str(error),))
    return Compared((*heads, *found.heads), found.unknown)
