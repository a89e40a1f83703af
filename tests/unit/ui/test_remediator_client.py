from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from kube_sync.config import Remediate
from kube_sync.ui import remediator_client as module
from kube_sync.ui.remediator_client import RemediatorClient, remediator_client
from tests.fakes.http import FakeServer, Recorded, served


@asynccontextmanager
async def _asking(
    answer: Callable[[web.Request, Recorded], Awaitable[web.Response]], token: Path | None = None
) -> AsyncGenerator[tuple[RemediatorClient, FakeServer]]:
    server = FakeServer(answer)
    async with served(server, server):
        listen = urlsplit(server.url).netloc.replace("127.0.0.1", "0.0.0.0")  # noqa: S104
        settings = Remediate(listen=listen, token_file=str(token) if token else None)
        async with remediator_client(settings) as reader:
            yield reader, server


async def _status(_request: web.Request, _recorded: Recorded) -> web.Response:
    return web.json_response({"waiting": []})


async def test_remediator_is_asked_on_this_machine_with_its_token_and_not_too_often(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken")
    async with _asking(_status, token) as (reader, server):
        assert (await reader.read()).status == {"waiting": []}
        await reader.read()
        (asked,) = server.requests
    assert asked.path == "/v1/remediation/status"
    assert asked.headers["Authorization"] == "Bearer t0ken"


async def test_missing_token_is_said(tmp_path: Path) -> None:
    async with _asking(_status, tmp_path / "nothing") as (reader, _):
        assert "nothing" in str((await reader.read()).failure)


@pytest.mark.parametrize(("status", "body"), [(401, b""), (200, b"no json"), (200, b"[" * 9000)])
async def test_odd_answer_is_said(status: int, body: bytes) -> None:
    async def odd(_request: web.Request, _recorded: Recorded) -> web.Response:
        return web.Response(status=status, body=body)

    async with _asking(odd) as (reader, _):
        found = await reader.read()
        assert (found.status, "does not answer" in str(found.failure)) == (None, True)


async def test_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST", 1000)

    async def long(_request: web.Request, _recorded: Recorded) -> web.Response:
        return web.Response(body=b" " * 100_000)

    async with _asking(long) as (reader, _):
        assert "too much" in str((await reader.read()).failure)


async def test_nobody_there_is_said() -> None:
    async with remediator_client(Remediate(listen="127.0.0.1:1")) as reader:
        assert "does not answer at http://127.0.0.1:1/" in str((await reader.read()).failure)
