"""Wait for what other processes bring about, of which this one hears nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tools.servers.pauses import pauses


async def eventually(read: Callable[[], Any], expected: Any = bool, seconds: float = 60) -> Any:
    """Wait until what is read is what is expected, and return it.

    `read` may block, for it is called in a thread, or return an awaitable, which is awaited here.
    `expected` is a value, or a function that tells whether a value is. The assertion at the
    end shows what was read last.
    """
    holds = expected if callable(expected) else lambda seen: seen == expected
    seen: Any = None
    try:
        async with asyncio.timeout(seconds):
            for pause in pauses():
                if holds(seen := await _once(read)):
                    break
                await asyncio.sleep(pause)
    except TimeoutError:
        assert holds(seen), f"after {seconds:.0f} s there was {seen!r}, expected {expected!r}"
    return seen


async def _once(read: Callable[[], Any]) -> Any:
    found = await asyncio.to_thread(read)
    return await found if inspect.isawaitable(found) else found
