"""An engine that is not OPA, as far as a remediator sees one: a decision stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    Record,
    StatusRecord,
    Target,
    encode,
)
from kube_sync.ledger.reports import PATH as REPORTS
from tests.fakes.http import FakeServer, Recorded, served


class FakeDecisionStream:
    """Decisions as a test makes them, to any number of readers."""

    def __init__(self) -> None:
        self.http = FakeServer(self._serve)
        self._decisions: dict[Target, DecisionRecord] = {}
        self._readers: set[asyncio.Queue[Record]] = set()

    def say(self, record: DecisionRecord | StatusRecord) -> None:
        """Decide, hold or release, for all readers; decisions also for those to come."""
        if isinstance(record, DecisionRecord):
            self._decisions[record.object] = record
        for reader in self._readers:
            reader.put_nowait(record)

    async def _serve(self, request: web.Request, _recorded: Recorded) -> web.StreamResponse:
        if request.path == REPORTS:  # there is no ledger here
            return web.Response(status=HTTPStatus.NO_CONTENT)
        response = web.StreamResponse()
        await response.prepare(request)
        reader: asyncio.Queue[Record] = asyncio.Queue()
        begin: list[Record] = [
            StatusRecord(("the decisions are being sent",), "fake"),
            *self._decisions.values(),
            StatusRecord((), "fake"),
        ]
        for record in begin:
            reader.put_nowait(record)
        self._readers.add(reader)
        try:
            while True:
                await response.write(encode(await reader.get()))
                if reader.empty():
                    await response.write(encode(BookmarkRecord(1, "fake")))
        finally:
            self._readers.discard(reader)


@asynccontextmanager
async def fake_decision_stream() -> AsyncGenerator[FakeDecisionStream]:
    """Serve a stream in which nothing is decided yet."""
    stream = FakeDecisionStream()
    async with served(stream, stream.http):
        yield stream
