"""One request that writes, made only by a process that may, and what became of it.

Keeps true: nothing is begun by a process that may not write any more; what was begun by one that
still might is given up when its time is over. What becomes of each is counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal

_T = TypeVar("_T")
WORDS: Final = (
    (NotFound, "gone"),
    (Conflict, "conflict"),
    (Refused, "forbidden"),
    (Terminal, "refused"),
)


class Fenced(Retriable):
    """Another process may write by now, so nothing is known of what would have become of it."""


class Sending:
    """Whoever may write, as long as it may."""

    def __init__(self, fence: Callable[[], float], count: Callable[[str, str], None]) -> None:
        """`fence` tells for how many seconds more this process may write; 0: not at all.

        `count` is told of each request what it was for and what became of it: done, fenced, gone,
        conflict, forbidden, refused, failed.
        """
        self._fence = fence
        self._count = count

    async def send(self, what: str, request: Callable[[], Awaitable[_T]]) -> _T:
        """Make a request. Raises SyncError; Fenced where this process may not write."""
        left = self._fence()
        if left <= 0:
            self._count(what, "fenced")
            msg = "another one may write by now"
            raise Fenced(msg)
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                answer = await request()
        except TimeoutError as error:
            self._count(what, "fenced")
            msg = "no answer while this one may write"
            raise Fenced(msg) from error
        except SyncError as error:
            self._count(what, _word(error))
            raise
        self._count(what, "done")
        return answer


def _word(error: SyncError) -> str:
    return next((word for kind, word in WORDS if isinstance(error, kind)), "failed")
