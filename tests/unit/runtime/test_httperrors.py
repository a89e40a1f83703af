from __future__ import annotations

import socket

import aiohttp
import pytest

from kube_sync.errors import Retriable
from kube_sync.runtime.httperrors import _reason, retriable
from tests.fakes.http import FakeServer, served


async def _asked(url: str) -> str:
    with pytest.raises(Retriable) as caught, retriable("server"):
        async with aiohttp.ClientSession() as session, session.get(url):
            pytest.fail("somebody answers")
    return str(caught.value)


async def test_nobody_who_listens_is_said_without_the_words_of_python() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = await _asked(f"https://127.0.0.1:{port}")
    assert found == f"server: Cannot connect to host 127.0.0.1:{port}: Connection refused"


async def test_name_that_is_not_known_is_said() -> None:
    found = await _asked("http://nobody.invalid:1")
    assert found.startswith("server: Cannot connect to host nobody.invalid:1: ")
    assert "object at" not in found


def test_name_that_is_not_known_is_said_where_its_number_is_positive() -> None:
    """As on macOS, where it is that of another error of the system."""
    assert _reason(socket.gaierror(8, "nodename nor servname provided")) == (
        "nodename nor servname provided"
    )


async def test_server_without_tls_is_said() -> None:
    server = FakeServer(lambda *_: pytest.fail("without TLS"))
    async with served(server, server):
        found = await _asked(server.url.replace("http:", "https:"))
    assert "SSL" in found
    assert "object at" not in found
