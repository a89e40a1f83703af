"""Client of OPA that learns with each answer which load of OPA's data the answer was made on.

Invariant: an answer has an epoch only if OPA named the epoch in the same evaluation, so both belong
to one state of the data. A Service may lead to several OPAs, so no other request could tell. Where
OPA cannot name it (no replicator of this version has loaded it, or the token may not ask for it),
it is asked in the usual way, and the answer has no epoch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from kube_sync.admission.engine import EngineClient
from kube_sync.admission.engine_errors import Failed
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.entry import EntryClient, entry_client
from kube_sync.admission.review import Review
from kube_sync.admission.target import Target
from kube_sync.errors import NO_JSON


class _Unidentified(Exception):
    """OPA does not name the epoch of its data."""


class _Reviewed(msgspec.Struct):
    """The document of `kube_sync.decisions.batch_module` for one input."""

    epochs: tuple[str, ...]
    decision: msgspec.Raw = msgspec.Raw()  # empty when undefined


_documents = msgspec.json.Decoder(_Reviewed)


@dataclass(frozen=True, slots=True)
class IdentifyingClient:
    """Asks for the decision with its epoch while `wanted` returns true, else in the usual way."""

    engine: EngineClient
    usual: EngineClient | EntryClient
    reviewed: str  # the URL of the decision with its epoch
    wanted: Callable[[], bool]

    @property
    def where(self) -> str:
        """The engine and the decision."""
        return self.usual.where

    async def ask(self, review: Review, resource: msgspec.Raw) -> Answer:
        """Ask once. Raises Failed and Passing."""
        if self.wanted():
            with suppress(_Unidentified):
                return await self.engine.counted(self._reviewed(review, resource))
        return await self.usual.ask(review, resource)

    async def probe(self) -> None:
        """Probe the engine. Raises Failed and Passing."""
        await self.engine.probe()

    async def _reviewed(self, review: Review, resource: msgspec.Raw) -> Answer:
        try:
            answer = await self.engine.attempt(review, resource, self.reviewed)
        except Failed as error:
            if error.why in ("undefined", "unauthorized"):
                raise _Unidentified from error
            raise
        try:
            found = _documents.decode(answer.decision)
        except NO_JSON as error:
            raise _Unidentified from error
        if not bytes(found.decision):
            raise self.engine.undefined()
        epoch = found.epochs[0] if len(found.epochs) == 1 else ""
        return msgspec.structs.replace(answer, decision=bytes(found.decision), epoch=epoch)


@asynccontextmanager
async def identifying_client(
    target: Target, canary: Callable[[], bool], wanted: Callable[[], bool]
) -> AsyncGenerator[EngineClient | EntryClient | IdentifyingClient]:
    """Yield a client of the configured engine that learns epochs while `wanted` returns true.

    Raises Misconfigured. `canary` returns whether a canary may exist; then no answer is identified.
    """
    async with entry_client(target, canary) as usual:
        if target.reviewed is None:
            yield usual
        else:
            engine = usual.engine if isinstance(usual, EntryClient) else usual
            yield IdentifyingClient(
                engine, usual, target.reviewed, lambda: wanted() and not canary()
            )
