"""What the streamed first load stands on: how the real OPA takes a PUT that comes in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from kube_sync.config import Opa
from kube_sync.errors import Retriable
from kube_sync.opa.client import OpaClient, opa_client
from tools.servers.secured_opa import RunningOpa

pytestmark = pytest.mark.slow

THINGS = ("kubernetes", "things")


@pytest.fixture
async def client(opa: RunningOpa) -> AsyncGenerator[OpaClient]:
    token_file, ca_file = str(opa.token_files["replicator"]), str(opa.ca_file)
    async with opa_client(Opa(opa.url, token_file, ca_file)) as client:
        yield client


async def pieces(*chunks: bytes, then: Exception | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if then is not None:
        raise then


async def test_document_in_pieces_replaces_what_was_there(client: OpaClient) -> None:
    await client.put_data(THINGS, b'{"old": 1}')
    await client.stream_data(THINGS, pieces(b'{"ns":{"a":', b"1", b"}}"))
    assert await client.get_data(THINGS) == b'{"ns":{"a":1}}'


async def test_document_that_breaks_off_changes_nothing(client: OpaClient) -> None:
    await client.put_data(THINGS, b'{"old":1}')
    with pytest.raises(Retriable):
        await client.stream_data(THINGS, pieces(b'{"ns":{"a":1}', then=ValueError("torn")))
    assert await client.get_data(THINGS) == b'{"old":1}'


async def test_document_that_stalls_holds_nobody_up(client: OpaClient) -> None:
    """A LIST may take its time: queries and other writes must not wait for it."""
    await client.put_data(("kube_sync", "epoch"), b'{"me":"loading"}')
    gate = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield b'{"ns":{"a":1'
        await gate.wait()
        yield b"}}"

    stream = asyncio.create_task(client.stream_data(THINGS, stalling()))
    async with asyncio.timeout(30):
        patch = b'{"op":"replace","path":"/kube_sync/epoch/me","value":"loaded"}'
        await client.patch_data([patch])
        assert await client.get_data(("kube_sync", "epoch")) == b'{"me":"loaded"}'
        assert not stream.done()
        gate.set()
        await stream
    assert await client.get_data(THINGS) == b'{"ns":{"a":1}}'
