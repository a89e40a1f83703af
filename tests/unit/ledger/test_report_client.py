from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Target
from kube_sync.decisions.stream import stream_app
from kube_sync.errors import SyncError
from kube_sync.ledger import entry_queue
from kube_sync.ledger.entries import Entry
from kube_sync.ledger.intake import report_routes
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.report_client import ReportClient
from kube_sync.ledger.reports import LARGEST, PATH, Report
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.unit.async_tools import Waits, running, until

WEB = Target("apps", "v1", "replicasets", "web", "shop")


class World:
    """A ledger behind the port of the decision stream, and who reports to it."""

    def __init__(self, path: Path, session: aiohttp.ClientSession) -> None:
        self.path = path
        self.journal = self._journal()
        self.recording = True
        self.session = session
        self.url = "http://127.0.0.1:9/nobody"
        self.port = 0  # once it was served: that
        self.waits = Waits()  # of whoever reports
        self.requests = 0
        self.now = 0.0
        self.torn = 0  # answers that never come, although the reports are taken
        self.meanwhile: Callable[[], object] = lambda: None  # called before each answer

    def _journal(self) -> Journal:
        return Journal(self.path, max_age=1e9, max_size=1 << 40, again=0.01, patience=10)

    def reporting(self, *, kept: int = 100, patience: float = 10.0) -> ReportClient:
        return ReportClient(
            self.url,
            self.session,
            TokenFile(None),
            "me",
            kept=kept,
            patience=patience,
            backoff=self.waits.backoff(),
            clock=lambda: self.now,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        self.journal = self._journal()
        routes = report_routes(self.journal if self.recording else None)
        app = stream_app(DecisionHub("me"), TokenFile(None), routes)
        app.middlewares.append(self._counted)
        address = ("127.0.0.1", self.port)
        async with running(self.journal.run()), serving(app, address, grace=0.05) as self.port:
            self.url = f"http://127.0.0.1:{self.port}{PATH}"
            yield

    @web.middleware
    async def _counted(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self.requests += 1
        self.meanwhile()
        await asyncio.sleep(0)  # what that began has begun
        response = await handler(request)
        if self.torn:
            self.torn -= 1
            assert request.transport is not None
            request.transport.abort()
        return response

    def entries(self) -> list[Entry]:
        with suppress(SyncError), reading(self.path) as ledger:
            return [row.entry for row in ledger.history()]
        return []  # it is being begun


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with aiohttp.ClientSession() as session:
        yield World(tmp_path / "ledger.db", session)


def _intent(name: str) -> Report:
    return Report(name, "intent", WEB, "u", {"a": None}, {"a": "1"}, approved="moves-1")


def _outcome(name: str) -> Report:
    return Report(name, "outcome", WEB, "u", status="applied")


async def test_what_is_reported_while_records_are_lost_is_kept_by_whoever_reports_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until what waits is written everything else would become a part of the gap."""
    async with world.serving():
        world.journal.enqueue(Entry(kind="start"))
        assert await world.journal.recorded()
        monkeypatch.setattr(entry_queue, "BURST", 3)
        reports = world.reporting()
        with closing(sqlite3.connect(world.path)) as held:
            held.execute("BEGIN IMMEDIATE")
            taken = [world.journal.enqueue(Entry(kind="held", ref=str(n))) for n in range(5)]
            assert (sum(taken), world.journal.losing) == (3, True)
            async with running(reports.run()):
                asked = asyncio.create_task(reports.deliver(_intent("1")))
                await until(lambda: world.requests > 1)
                held.execute("ROLLBACK")
                assert await asked
        kinds = [entry.kind for entry in world.entries()]
    assert sorted(kinds) == ["gap", "held", "held", "held", "intent", "start"]


async def test_an_intent_that_was_waited_for_is_in_the_ledger(world: World) -> None:
    async with world.serving():
        reports = world.reporting()
        async with running(reports.run()):
            assert await reports.deliver(_intent("1"))
            (entry,) = world.entries()
            reports.enqueue(_outcome("1"))
            await until(lambda: len(world.entries()) == 2)
    assert (entry.kind, entry.collection, entry.name) == ("intent", "replicasets.v1.apps", "web")
    assert (entry.uid, entry.approved, entry.ref) == ("u", "moves-1", "1")
    with reading(world.path) as ledger:
        assert ledger.text(entry.new) == b'{"a":"1"}'
        assert ledger.text(entry.old) == b'{"a":null}'


async def test_what_is_reported_again_for_want_of_an_answer_is_recorded_once(world: World) -> None:
    world.torn = 2
    async with world.serving():
        reports = world.reporting()
        async with running(reports.run()):
            await reports.deliver(_intent("1"))
            await until(lambda: world.torn == 0)
            reports.enqueue(_intent("2"))
            await until(lambda: len(world.entries()) == 2)
    assert world.requests > 2
    assert [entry.ref for entry in world.entries()] == ["1", "2"]


async def test_nobody_waits_for_a_replicator_that_is_away_and_nothing_is_lost(
    world: World,
) -> None:
    async with world.serving():
        pass  # its port is free again
    reports = world.reporting(patience=0.05)
    waiting = asyncio.create_task(reports.run())
    assert not await reports.deliver(_intent("1"))
    reports.enqueue(_outcome("1"))
    async with world.serving():
        await until(lambda: len(world.entries()) == 2)
    waiting.cancel()
    assert [entry.kind for entry in world.entries()] == ["intent", "outcome"]


async def test_a_write_waits_through_a_restart_of_the_replicator(world: World) -> None:
    async with world.serving():
        pass
    reports = world.reporting(patience=30)
    async with running(reports.run()):
        asked = asyncio.create_task(reports.deliver(_intent("1")))
        await until(lambda: world.waits.seconds)  # it did not reach anybody
        async with world.serving():
            assert await asked
            assert len(world.entries()) == 1


async def test_once_nothing_was_taken_for_long_a_write_does_not_wait_at_all(world: World) -> None:
    reports = world.reporting(patience=1_000)
    async with running(reports.run()):
        reports.enqueue(_intent("1"))
        await until(lambda: world.waits.seconds)  # it did not reach anybody
        world.now = 1_000
        assert not await reports.deliver(_intent("2"))


async def test_more_reports_than_are_kept_are_a_gap(world: World) -> None:
    async with world.serving():
        pass
    reports = world.reporting(kept=2, patience=0)
    for number in range(5):
        reports.enqueue(_intent(str(number)))
    async with world.serving(), running(reports.run()):
        await until(lambda: len(world.entries()) == 3)
    assert [(entry.kind, entry.note) for entry in world.entries()] == [
        ("intent", ""),
        ("intent", ""),
        ("gap", "3 reports of writes were lost"),
    ]


async def test_a_replicator_without_a_ledger_is_asked_once_a_minute(world: World) -> None:
    world.recording = False
    async with world.serving():
        reports = world.reporting()
        assert not reports.are_discarded
        async with running(reports.run()):
            for number in range(5):
                await reports.deliver(_intent(str(number)))
                assert reports.are_discarded
            assert world.requests == 1
            world.now = 61
            assert not reports.are_discarded
            await reports.deliver(_intent("6"))
            assert world.requests == 2


async def test_nobody_waits_for_a_ledger_that_the_replicator_has_just_said_is_not_there(
    world: World,
) -> None:
    world.recording = False
    async with world.serving():
        reports = world.reporting(patience=1_000)
        second = list[asyncio.Task[bool]]()
        world.meanwhile = lambda: second.append(asyncio.create_task(reports.deliver(_intent("2"))))
        async with running(reports.run()), asyncio.timeout(30):
            await reports.deliver(_intent("1"))
            await second[0]
        assert (world.requests, len(second)) == (1, 1)


async def test_while_the_file_cannot_be_written_reports_stay_where_they_are(
    tmp_path: Path, world: World
) -> None:
    folder = tmp_path / "later"
    world.path = folder / "ledger.db"
    async with world.serving():
        reports = world.reporting(patience=0.05)
        world.journal.enqueue(Entry(kind="start"))
        await until(lambda: world.journal.failing)
        async with running(reports.run()):
            assert not await reports.deliver(_intent("1"))
            await asyncio.to_thread(folder.mkdir)
            await until(lambda: world.journal.failing is None)
            await until(lambda: len(world.entries()) == 2)


async def test_what_is_left_at_the_end_is_tried_once_more(world: World) -> None:
    async with world.serving():
        reports = world.reporting()
        async with running(reports.run()):
            await reports.deliver(_intent("1"))
            reports.enqueue(_outcome("1"))
        assert [entry.kind for entry in world.entries()] == ["intent", "outcome"]


async def test_values_that_are_too_large_are_left_out_and_it_says_so(world: World) -> None:
    async with world.serving():
        reports = world.reporting()
        async with running(reports.run()):
            large = Report("1", "intent", WEB, "u", {}, {"a": "x" * LARGEST})
            assert await reports.deliver(large)
    (entry,) = world.entries()
    assert entry.new == ""
    assert "left out" in entry.note


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"v":2,"reports":[]}', b'{"v":1,"reports":[{"id":"","kind":"intent"}]}', b"\xff"],
)
async def test_what_is_no_report_is_refused(world: World, body: bytes) -> None:
    async with world.serving(), world.session.post(world.url, data=body) as response:
        assert response.status == 400
        assert (await response.text()).startswith("no reports: ")


async def test_who_lacks_the_token_reports_nothing(world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    app = stream_app(DecisionHub("me"), TokenFile(str(token)), report_routes(world.journal))
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        world.session.post(f"http://127.0.0.1:{port}{PATH}", data=b"{}") as response,
    ):
        assert response.status == 401
