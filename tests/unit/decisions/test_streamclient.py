from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from kube_sync.certificates import write_certificates
from kube_sync.config import Decisions
from kube_sync.decisions import streamclient
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    GroupRecord,
    Record,
    StatusRecord,
    Target,
    encode,
)
from kube_sync.decisions.stream import PATH, RESUMED, stream_app
from kube_sync.decisions.streamclient import StreamClient, stream_client
from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import server_context
from kube_sync.runtime.tokenfile import TokenFile
from tests.unit.async_tools import PATIENCE, Waits

ONE, TWO = BookmarkRecord(1, "me"), BookmarkRecord(2, "me")
HEADERS = {"Content-Type": "application/x-ndjson"}

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _says(*parts: bytes) -> Script:
    """Send these bytes and end the response properly."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    return script


def _resumes(*parts: bytes) -> Script:
    """Send these bytes as what comes after the bookmark that was asked for."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS | {RESUMED: request.query["since"]})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    return script


def _breaks_off(*parts: bytes) -> Script:
    """Send these bytes and cut the connection."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = await _says(*parts)(request)
        assert request.transport is not None
        request.transport.close()
        return response

    return script


def _answers(status: int) -> Script:
    async def script(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    return script


async def _goes_silent(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    await response.write(encode(ONE))
    await asyncio.sleep(PATIENCE)
    return response


@dataclass
class World:
    """A server that plays one script a connection (the last one for ever), and its client."""

    client: StreamClient
    waits: Waits
    reports: list[str | None]
    tokens: list[str | None] = field(default_factory=list)
    since: list[str | None] = field(default_factory=list)  # what was asked for
    preferences: list[str | None] = field(default_factory=list)

    async def read(self, count: int) -> list[Record | None]:
        records: list[Record | None] = []
        async with asyncio.timeout(PATIENCE), aclosing(self.client.records()) as source:
            async for record in source:
                records.append(record)
                if len(records) == count:
                    break
        return records


@asynccontextmanager
async def _world(
    *scripts: Script,
    token_file: Path | None = None,
    buffer: int = 1 << 16,
    backoff: Backoff | None = None,
) -> AsyncGenerator[World]:
    waits, reports, left = Waits(), list[str | None](), list(scripts)

    async def handle(request: web.Request) -> web.StreamResponse:
        world.tokens.append(request.headers.get("Authorization"))
        world.since.append(request.query.get("since"))
        world.preferences.append(request.headers.get("Prefer"))
        script = left.pop(0) if len(left) > 1 else left[0]
        return await script(request)

    app = web.Application()
    app.router.add_get(PATH, handle)
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession(read_bufsize=buffer) as session,
    ):
        settings = Decisions(
            url=f"http://127.0.0.1:{port}{PATH}",
            token_file=str(token_file) if token_file else None,
        )
        backoff = backoff or waits.backoff(0.1, 5.0)
        client = StreamClient(settings, session, reports.append, backoff)
        world = World(client, waits, reports)
        yield world


async def test_records_come_after_the_mark_of_a_new_stream() -> None:
    async with _world(_says(encode(ONE) + encode(TWO))) as world:
        assert await world.read(3) == [None, ONE, TWO]
        assert world.reports == [None]


async def test_a_stream_that_ends_is_opened_again_after_a_wait() -> None:
    async with _world(_says(encode(ONE)), _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]
        assert world.waits.seconds == [0.1]
        assert [report and report.rpartition(": ")[2] for report in world.reports] == [
            None,
            "ended",
            None,
        ]


async def test_a_stream_that_broke_goes_on_after_its_last_bookmark() -> None:
    async with _world(_breaks_off(encode(ONE)), _resumes(encode(TWO)), _resumes()) as world:
        assert await world.read(3) == [None, ONE, TWO]
        assert world.since == [None, "me:1"]


async def test_a_replicator_that_cannot_resume_is_read_afresh() -> None:
    async with _world(_says(encode(TWO)), _answers(410), _says(encode(ONE))) as world:
        assert await world.read(4) == [None, TWO, None, ONE]
        assert world.since == [None, "me:2", None]
        assert [report for report in world.reports if report] == [world.reports[1]], "no fault"


async def test_a_replicator_that_knows_no_resuming_sends_everything_as_new() -> None:
    """What ended meanwhile would be missed."""
    async with _world(_says(encode(ONE)), _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]
        assert world.since == [None, "me:1"]


async def test_a_fresh_stream_that_breaks_off_is_not_resumed_from_an_older_bookmark() -> None:
    """Whoever was told None would take what is not confirmed for gone."""
    status = StatusRecord(("held",), "me")
    broken, whole = _breaks_off(encode(status)), _says(encode(TWO))
    async with _world(_breaks_off(encode(ONE)), broken, whole) as world:
        assert await world.read(6) == [None, ONE, None, status, None, TWO]
        assert world.since == [None, "me:1", None]


async def test_records_after_the_last_bookmark_are_asked_for_again() -> None:
    status = StatusRecord(("held",), "me")
    first = _breaks_off(encode(ONE) + encode(status))
    async with _world(first, _resumes(encode(status) + encode(TWO)), _resumes()) as world:
        assert await world.read(5) == [None, ONE, status, status, TWO]
        assert world.since == [None, "me:1"]


async def test_a_410_that_nobody_asked_for_is_a_fault() -> None:
    async with _world(_answers(410), _says(encode(ONE))) as world:
        assert await world.read(2) == [None, ONE]
        assert str(world.reports[0]).endswith(": 410")


async def test_a_torn_line_is_not_a_record() -> None:
    async with _world(_says(encode(ONE) + encode(TWO)[:-1]), _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]


async def test_a_line_in_pieces_is_one_record() -> None:
    line = encode(ONE)
    async with _world(_says(line[:9], line[9:20], line[20:])) as world:
        assert await world.read(2) == [None, ONE]


async def test_records_of_a_group_come_one_by_one_and_are_asked_for() -> None:
    gvr, decision = GroupVersionResource("apps", "v1", "replicasets"), Decision({"place": "eu"})
    objects = (("ns", "a", "u1", 4), ("ns", "b", "u2", 5))
    line = msgspec.json.encode(GroupRecord(gvr, objects, decision, "data", "p")) + b"\n"
    async with _world(_says(line + encode(ONE))) as world:
        mark, a, b, bookmark = await world.read(4)
        assert world.preferences == ["grouped"]
    assert (mark, bookmark) == (None, ONE)
    target = Target("apps", "v1", "replicasets", "a", "ns")
    assert a == DecisionRecord(target, "u1", decision, 4, "data", "p")
    assert isinstance(b, DecisionRecord)
    assert (b.object.name, b.uid, b.seq) == ("b", "u2", 5)


async def test_a_connection_that_breaks_off_is_reported_and_made_again() -> None:
    async with _world(_breaks_off(encode(ONE)), _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]
        assert len(world.waits.seconds) == 1


async def test_a_silent_stream_is_a_broken_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamclient, "KEEPALIVE_SECONDS", 0.01)
    async with _world(_goes_silent, _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]
        assert str(world.reports[1]).endswith("no answer in time")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_says_which_setting_to_look_at(status: int) -> None:
    async with _world(_answers(status), _says(encode(ONE))) as world:
        assert await world.read(2) == [None, ONE]
        assert f": {status} (is decisions.token_file the right one?)" in str(world.reports[0])
        assert world.waits.seconds == [0.1]


@pytest.mark.parametrize("status", [204, 404, 503])
async def test_any_other_answer_is_no_stream(status: int) -> None:
    async with _world(_answers(status), _says(encode(ONE))) as world:
        assert await world.read(2) == [None, ONE]
        assert str(world.reports[0]).endswith(f": {status}")


@pytest.mark.parametrize(
    "line", [b'{"type":"surprise","v":1}\n', b'{"type":"bookmark","seq":1,"v":2}\n', b"<html>\n"]
)
async def test_an_unknown_record_ends_the_stream_with_a_reason(line: bytes) -> None:
    """What it says might be what has to be held."""
    async with _world(_says(line + encode(TWO)), _says(encode(ONE))) as world:
        assert await world.read(3) == [None, None, ONE]
        assert "not a record that is known here" in str(world.reports[1])


async def test_a_line_past_all_bounds_ends_the_stream() -> None:
    async with _world(_says(b"x" * 5000), _says(encode(ONE)), buffer=512) as world:
        assert await world.read(3) == [None, None, ONE]
        assert world.reports[1] is not None


async def test_repeated_failures_wait_longer_until_a_record_comes() -> None:
    broken = _answers(503)
    async with _world(broken, broken, broken, _says(encode(ONE)), _says(encode(TWO))) as world:
        assert await world.read(4) == [None, ONE, None, TWO]
        assert world.waits.seconds == [0.1, 0.2, 0.4, 0.1]


async def test_a_stream_without_a_record_is_no_progress() -> None:
    """A server that closes at once must not be asked ten times a second for ever."""
    async with _world(_says(), _says(), _says(encode(ONE))) as world:
        assert await world.read(4) == [None, None, None, ONE]
        assert world.waits.seconds == [0.1, 0.2]


async def test_nobody_listening_is_reported() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1/decisions"
    reported = asyncio.Event()
    reports: list[str | None] = []

    def report(reason: str | None) -> None:
        reports.append(reason)
        reported.set()

    async with stream_client(Decisions(url=url), report) as client:
        reader = asyncio.ensure_future(anext(client.records()))
        async with asyncio.timeout(PATIENCE):
            await reported.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert str(reports[0]).startswith(f"decision stream {url}: Cannot connect to host")


async def test_the_token_is_sent_as_it_is_at_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def rotate(request: web.Request) -> web.StreamResponse:
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").rename(file)
        return await _says(encode(ONE))(request)

    async with _world(rotate, _says(encode(TWO)), token_file=file) as world:
        await world.read(4)
        assert world.tokens == ["Bearer old", "Bearer new"]


async def test_a_missing_token_file_is_reported_until_it_is_there(tmp_path: Path) -> None:
    file = tmp_path / "token"
    backoff = Backoff(sleep=_then_write(file))
    async with _world(_says(encode(ONE)), token_file=file, backoff=backoff) as world:
        assert await world.read(2) == [None, ONE]
        assert world.reports == [f"token file {file}: No such file or directory", None]


def _then_write(file: Path) -> Callable[[float], Awaitable[None]]:
    async def sleep(_seconds: float) -> None:
        file.write_text("secret")  # noqa: ASYNC240 - a file of the test's own

    return sleep


async def test_a_stream_over_tls_is_trusted_by_its_authority(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    (tmp_path / "token").write_text("secret")
    tls = server_context(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    app = stream_app(DecisionHub("me"), TokenFile(str(tmp_path / "token")))
    async with serving(app, ("127.0.0.1", 0), tls, grace=0.05) as port:
        settings = Decisions(
            url=f"https://127.0.0.1:{port}{PATH}",
            token_file=str(tmp_path / "token"),
            ca_file=str(tmp_path / "ca.crt"),
        )
        reports: list[str | None] = []
        async with (
            asyncio.timeout(PATIENCE),
            stream_client(settings, reports.append) as client,
            aclosing(client.records()) as records,
        ):
            assert await anext(records) is None
            assert isinstance(await anext(records), StatusRecord)
        assert reports == [None]


async def test_a_missing_authority_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    settings = Decisions(url="https://127.0.0.1:1/", ca_file=str(tmp_path / "gone.crt"))
    with pytest.raises(Misconfigured, match=r"gone\.crt: No such file"):
        async with stream_client(settings, lambda _: None):
            pytest.fail("a client without its authority")
