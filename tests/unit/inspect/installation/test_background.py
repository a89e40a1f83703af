from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from kube_sync.errors import NotFound
from kube_sync.inspect.installation.background import in_background


def test_it_runs_beside_the_block_and_ends_with_it() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncGenerator[threading.Event]:
        turned = threading.Event()

        async def turn() -> None:
            await asyncio.sleep(0)
            turned.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(turn())
            yield turned
        steps.append("closed")

    with in_background(opened) as turned:
        assert turned.wait(10)
        steps.append("inside")
    assert steps == ["inside", "closed"]


def test_what_opening_raises_is_raised() -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[None]:
        msg = "gone"
        raise NotFound(msg)
        yield

    with pytest.raises(NotFound, match="gone"), in_background(opened):
        raise AssertionError


def test_what_the_block_raises_closes_it_too() -> None:
    closed = threading.Event()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[None]:
        yield
        closed.set()

    with pytest.raises(KeyError), in_background(opened):
        raise KeyError
    assert closed.is_set()
