"""Another engine than OPA: whatever serves lines of the decision stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    Budget,
    DecisionRecord,
    Record,
    StatusRecord,
    Target,
    encode,
)
from kube_sync.ledger.reports import PATH as REPORTS
from kube_sync.runtime.httpserver import serving


class StandIn:
    """Decisions that a test makes; whoever comes gets all of them, then what is new."""

    def __init__(self) -> None:
        self.url = ""
        self._records: list[Record] = [StatusRecord((), "stand-in"), BookmarkRecord(0, "stand-in")]
        self._news = asyncio.Condition()

    async def decide(self, *wanted: tuple[str, str, str, Decision | None]) -> None:
        """Decide on ReplicaSets by namespace, name and uid."""
        seq = len(self._records)
        for namespace, name, uid, decision in wanted:
            target = Target("apps", "v1", "replicasets", name, namespace)
            self._records.append(DecisionRecord(target, uid, decision, seq, "object", ""))
        self._records.append(BookmarkRecord(seq, "stand-in"))
        async with self._news:
            self._news.notify_all()

    async def limit(self, budget: Budget | None) -> None:
        """Say how much may move."""
        self._records.append(StatusRecord((), "stand-in", budget=budget))
        async with self._news:
            self._news.notify_all()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer one reader, for ever."""
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        while True:
            new, sent = self._records[sent:], len(self._records)
            await response.write(b"".join(map(encode, new)))
            async with self._news:
                while len(self._records) == sent:
                    await self._news.wait()


async def _no_ledger(_request: web.Request) -> web.Response:
    return web.Response(status=HTTPStatus.NO_CONTENT)


@asynccontextmanager
async def stand_in() -> AsyncGenerator[StandIn]:
    """Serve a stand-in."""
    engine = StandIn()
    app = web.Application()
    app.router.add_get("/v1/decisions", engine.stream)
    app.router.add_post(REPORTS, _no_ledger)
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
        engine.url = f"http://127.0.0.1:{port}/v1/decisions"
        yield engine
