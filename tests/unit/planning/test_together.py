from __future__ import annotations

import asyncio

import pytest

from kube_sync.errors import Retriable
from kube_sync.planning.together import both


async def test_both_return_what_they_return() -> None:
    async def number() -> int:
        return 1

    async def text() -> str:
        return "a"

    assert await both(number(), text()) == (1, "a")


async def test_first_that_fails_ends_the_other_and_is_no_group() -> None:
    ended = asyncio.Event()

    async def fails() -> None:
        reason = "gone"
        raise Retriable(reason)

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(Retriable, match="gone"):
        await both(waits(), fails())
    assert ended.is_set()
