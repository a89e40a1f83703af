"""Whatever comes to a port of ours: it is served or refused, and nothing of it stays."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_sync.admission.server import PATH as WEBHOOK
from kube_sync.certificates import write_certificates
from kube_sync.config import Admission, Placement
from kube_sync.decisions import stream
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.stream import PATH as STREAM
from kube_sync.decisions.stream import stream_app
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.policies import bundle, bundle_server
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.remediation import statuspage
from kube_sync.remediation.statuspage import APPLY, STATUS, status_app
from kube_sync.runtime import connection
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import client_context
from kube_sync.runtime.tokenfile import TokenFile
from kube_sync.ui.api import PREFIX
from tests.fakes.board import Board, served_board
from tests.fakes.hostile import AMBIGUOUS, NO_REQUESTS, SECRET, Port, heads, unharmed
from tests.fakes.reviewing import RESOURCE, Judge, webhook
from tests.fakes.reviews import body
from tests.unit.async_tools import PATIENCE
from tests.unit.remediation.test_reconciler import ApiServer
from tests.unit.remediation.test_reconciler import World as Remediator

# Of the stream's port: what is added to it belongs here.
_STREAM_PATHS = (STREAM, f"{STREAM}/{Placement().path}", "/" + bundle.RESOURCE, "/nowhere")

_BOARD_PATHS = (
    "/ui",
    f"{PREFIX}/fleet",
    f"{PREFIX}/history?since=0",
    f"{PREFIX}/story?resource=replicasets.v1.apps&namespace=shop&name=../../etc/passwd",
    "/ui/../v1/board/held",
    "/ui/%2e%2e/%2e%2e/etc/passwd",
)

_Opened = Callable[[Path], AbstractAsyncContextManager[Port]]


def _get(path: str, token: bytes = b"") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode()
    return head + b"Authorization: Bearer " + token + b"\r\nConnection: close\r\n\r\n"


def _token_file(folder: Path) -> str:
    file = folder / "token"
    file.write_bytes(SECRET)
    return str(file)


def _token(folder: Path) -> TokenFile:
    return TokenFile(_token_file(folder))


@asynccontextmanager
async def _stream(folder: Path) -> AsyncGenerator[Port]:
    app = stream_app(DecisionHub("me"), _token(folder), BundleServer().routes())
    async with serving(app, ("127.0.0.1", 0), grace=0.05, abandon=True) as port:
        yield Port(port, _get(_STREAM_PATHS[1], SECRET), _STREAM_PATHS, token=SECRET)


@asynccontextmanager
async def _board(folder: Path) -> AsyncGenerator[Port]:
    async with served_board(Board(_token_file(folder))) as board:
        good = _get(f"{PREFIX}/history", SECRET)
        yield Port(board.port, good, _BOARD_PATHS, token=SECRET)


@asynccontextmanager
async def _pages(_folder: Path) -> AsyncGenerator[Port]:
    async with serving(observability_app(Readiness()), ("127.0.0.1", 0), grace=0.05) as port:
        yield Port(port, _get("/livez"), ("/metrics", "/livez", "/readyz", "/nowhere"))


@asynccontextmanager
async def _status(folder: Path) -> AsyncGenerator[Port]:
    app = status_app(Remediator(ApiServer()).reconciler, _token(folder))
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
        yield Port(port, _get(STATUS, SECRET), (STATUS, APPLY), "POST", SECRET)


@asynccontextmanager
async def _webhook(folder: Path) -> AsyncGenerator[Port]:
    write_certificates(folder, ["127.0.0.1"])
    good = body(RESOURCE)
    head = f"POST {WEBHOOK}?timeout=5s HTTP/1.1\r\nHost: x\r\nContent-Length: {len(good)}\r\n"
    head += "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    async with webhook(folder, Judge(), Admission(max_body_bytes=100_000)) as server:
        tls = client_context(str(folder / "ca.crt"))
        yield Port(server.port, head.encode() + good, (WEBHOOK, "/"), "POST", tls=tls)


_PORTS: dict[str, _Opened] = {
    "stream": _stream,
    "board": _board,
    "pages": _pages,
    "status": _status,
    "webhook": _webhook,
}


@pytest.fixture(params=_PORTS)
async def port(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[Port]:
    """A port that is unharmed by what the test does, and has logged neither errors nor secrets."""
    monkeypatch.setattr(bundle_server, "_SHORTEST_WAIT", 0.05)
    # That a client has gone whose body nobody reads shows when something is sent to it.
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.1)
    with capture_logs() as logs, caplog.at_level(logging.INFO):
        async with _PORTS[request.param](tmp_path) as port, unharmed(port):
            yield port
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [log for log in logs if log["log_level"] in ("warning", "error", "critical")]
    assert SECRET.decode() not in f"{logs}{caplog.text}"


async def test_odd_requests_are_refused_or_served(port: Port) -> None:
    for path in port.paths:
        names, sent = zip(*heads(port, path), strict=True)
        answers = await asyncio.gather(
            *(
                # What is refused is over then, the others may go on.
                port.send(one, seconds=PATIENCE) if name in AMBIGUOUS else port.send(one)
                for name, one in zip(names, sent, strict=True)
            )
        )
        for name, answer in zip(names, answers, strict=True):
            assert not answer or answer.startswith(b"HTTP/"), (path, name)
            assert b" 50" not in answer[:12], (path, name, answer)
            assert SECRET not in answer, (path, name, answer)
            refused = answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
            assert name not in AMBIGUOUS or refused, (path, name, answer)


async def test_what_is_no_request_is_refused(port: Port) -> None:
    answers = await asyncio.gather(*(port.send(sent) for sent in NO_REQUESTS.values()))
    for name, answer in zip(NO_REQUESTS, answers, strict=True):
        assert not answer or answer.startswith(b"HTTP/1.0 400 "), (name, answer)
        assert SECRET not in answer, (name, answer)


def _begun(port: Port, path: str, lines: str = "") -> bytes:
    token = f"Authorization: Bearer {port.token.decode()}\r\n"
    return f"{port.method} {path} HTTP/1.1\r\nHost: x\r\n{token}{lines}".encode()


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """Return what came until the server ended the connection, which it has to."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.01])
async def test_a_head_that_comes_byte_by_byte_is_not_waited_for(
    port: Port, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.1)

    async def trickle() -> None:
        async with port.connected() as (reader, writer), asyncio.TaskGroup() as group:
            ended = group.create_task(_ended(reader))
            for number in range(1_000_000):
                if ended.done() or writer.transport.is_closing():
                    break
                writer.write(b"X" if number else _begun(port, port.paths[0])[:5])
                await asyncio.sleep(pause)
            assert await ended == b""

    await asyncio.gather(*(trickle() for _ in range(20)))


async def test_a_head_without_end_is_not_kept(port: Port) -> None:
    async with port.connected() as (reader, writer):
        writer.write(_begun(port, port.paths[0]))
        for number in range(100):
            writer.write(f"X-{number}: {'a' * 4000}\r\n".encode())
        assert await _ended(reader) == b""


@pytest.mark.slow
async def test_a_body_that_never_ends_is_not_waited_for(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuspage, "BODY_SECONDS", 0.1)
    for path in port.paths:
        lines = (
            "Content-Length: 100\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{"
        )
        async with port.connected() as (reader, writer):
            writer.write(_begun(port, path + "?timeout=500ms", lines))
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")


@pytest.mark.slow
async def test_a_thousand_requests_at_once_are_answered_in_turn(port: Port) -> None:
    async with port.connected() as (reader, writer):
        sent = _begun(port, "/nowhere", "Content-Length: 0\r\n\r\n") * 1000
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            for _ in range(1000):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 404 ")
                await reader.readexactly(int(head.lower().partition(b"length: ")[2].split()[0]))


async def test_huge_bodies_are_not_held(port: Port) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = "Content-Type: application/json\r\nContent-Length: 50000000\r\n\r\n"
    body = [b"x" * 1_000_000] * 50
    sent = [(_begun(port, path, lines), *body) for path in port.paths]
    for answer in await asyncio.gather(*(port.send(*one, seconds=0.5) for one in sent)):
        assert SECRET not in answer
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10  # KB


async def test_clients_that_hang_up_leave_nothing_behind(port: Port) -> None:
    async def hang_up(sent: bytes) -> None:
        async with port.connected() as (_, writer):
            writer.write(sent)
            await writer.drain()

    for path in port.paths:
        whole = _begun(port, f"{path}?watch", "Prefer: wait=300\r\n\r\n")
        await asyncio.gather(*(hang_up(whole[:end]) for end in range(0, len(whole) + 1, 4)))


@pytest.mark.parametrize("shown", [b"", b"wrong", SECRET[:-1], SECRET + b"x", b"\xff" * 8000])
async def test_a_wrong_token_opens_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: bytes
) -> None:
    monkeypatch.setattr(bundle_server, "_SHORTEST_WAIT", 0.05)
    for opened in (_stream, _status):
        async with opened(tmp_path) as port:
            for path in port.paths:
                for odd in (path, "/" + path, path + "/", path + "/%2e%2e", f"/x/..{path}"):
                    answer = await port.send(_get(odd, shown), b"")
                    assert b" 200 " not in answer[:20], (odd, answer)
                    assert b" 404 " in answer[:20] or b" 401 " in answer[:20] or b" 405 " in answer


@pytest.mark.parametrize(
    "line", ["Origin: https://evil", "Origin: null", "Sec-Fetch-Site: cross-site"]
)
async def test_a_page_of_another_origin_opens_no_path_with_the_token_either(
    tmp_path: Path, line: str
) -> None:
    """A browser that has a token, as one that an extension or a proxy adds, is no way around."""
    for opened in (_stream, _board, _status):
        async with opened(tmp_path) as port:
            for path in port.paths:
                lines = f"{line}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                answer = await port.send(_begun(port, path, lines + "Connection: close\r\n\r\n{}"))
                assert b" 403 " in answer[:20], (path, answer)
