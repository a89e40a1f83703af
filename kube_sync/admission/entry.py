"""Client of a policy engine that asks the canary's entry point while a canary may exist.

Invariant: the decision of the object's side (canary or stable) is used, also if it is undefined; if
OPA has no entry point, the engine is asked in the usual way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from kube_sync.admission.engine import EngineClient, engine_client
from kube_sync.admission.engine_errors import Failed
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.review import Review
from kube_sync.admission.target import Target
from kube_sync.opa.entry import entered


class _NoEntry(Exception):
    """OPA has no entry point of a canary."""


@dataclass(frozen=True, slots=True)
class EntryClient:
    """Asks the entry point while `canary` returns that there may be one, else the engine itself."""

    engine: EngineClient
    entry: str
    canary: Callable[[], bool]

    @property
    def where(self) -> str:
        """The engine and the decision."""
        return self.engine.where

    async def ask(self, review: Review, resource: msgspec.Raw) -> Answer:
        """Ask once for the decision of the object's side. Raises Failed and Passing."""
        if self.canary():
            with suppress(_NoEntry):
                return await self.engine.counted(self._entered(review, resource))
        return await self.engine.ask(review, resource)

    async def probe(self) -> None:
        """Probe the engine. Raises Failed and Passing."""
        await self.engine.probe()

    async def _entered(self, review: Review, resource: msgspec.Raw) -> Answer:
        try:
            answer = await self.engine.attempt(review, resource, self.entry)
        except Failed as error:
            if error.why == "undefined":
                raise _NoEntry from error
            raise
        if (said := entered(answer.decision)) is None:
            msg = f"{self.where}: the canary's entry holds no answer"
            raise Failed(msg, "malformed")
        if not bytes(said.decision):
            raise self.engine.undefined()
        return msgspec.structs.replace(answer, decision=bytes(said.decision))


@asynccontextmanager
async def entry_client(
    target: Target, canary: Callable[[], bool]
) -> AsyncGenerator[EngineClient | EntryClient]:
    """Yield a client of the configured engine, and of its entry point if it has one.

    Raises Misconfigured. `canary` returns whether a canary may exist.
    """
    async with engine_client(target) as engine:
        yield engine if target.entry is None else EntryClient(engine, target.entry, canary)
