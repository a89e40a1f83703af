"""Ask OPA for what policies say against the data of ConfigMaps.

A policy that takes its parameters from a ConfigMap may define `data.kube_sync_parameters.problems`,
messages by `<namespace>/<name>`. They are asked for when other policies are in force and after each
write of such data, beside the writer: a query that is slow, or fails, delays no write. Until the
first answer of a load nothing is known; a failure leaves what was known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import msgspec
import structlog

from kube_sync.errors import NO_JSON, SyncError
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PROBLEMS: Final[DataPath] = ("kube_sync_parameters", "problems")
_MOST: Final = 20  # messages for a ConfigMap

_documents = msgspec.json.Decoder(dict[str, list[str]])


class ParameterProblems:
    """Keeps the problems of one load current."""

    def __init__(
        self, opa: OpaClient, changed: Callable[[], None], *, backoff: Backoff | None = None
    ) -> None:
        """Call `changed` when there are other problems than before."""
        self._opa = opa
        self._changed = changed
        self._backoff = backoff or Backoff(1.0)
        self._known: Mapping[str, Sequence[str]] | None = None
        self._in_force = False
        self._due = asyncio.Event()

    def of(self, key: ObjectKey) -> Sequence[str] | None:
        """Return the messages for a ConfigMap, None while they are not known."""
        return None if self._known is None else self._known.get(str(key), ())[:_MOST]

    def policies_changed(self) -> None:
        """Ask again: OPA holds other policies."""
        self._in_force = True
        self._due.set()

    def data_written(self) -> None:
        """Ask again, if policies are in force: OPA holds other data."""
        if self._in_force:
            self._due.set()

    async def run(self) -> NoReturn:
        """Ask whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                found = _documents.decode(await self._opa.get_data(PROBLEMS) or b"{}")
            except (SyncError, *NO_JSON) as error:
                log.warning("parameters_not_checked", error=str(error))
                await self._backoff.wait()
                self._due.set()
                continue
            self._backoff.progressed()
            if found != self._known:
                self._known = found
                self._changed()
