"""One step that writes, made only by a process that may, and what became of it.

Keeps true: nothing is begun by a process that may not write any more; what was begun by one that
still might is given up when its time is over. What becomes of each is counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.observability import metrics

What = Literal["apply", "leave", "remove", "status", "annotations", "class"]
_T = TypeVar("_T")
_WORDS: Final = (
    (NotFound, "gone"),
    (Conflict, "conflict"),
    (Refused, "forbidden"),
    (Terminal, "refused"),
)


class Fenced(Retriable):
    """Another process may write by now, so nothing is known of what would have become of it."""


class Sending:
    """Whoever may write, as long as it may."""

    def __init__(self, fence: Callable[[], float]) -> None:
        """`fence` tells for how many seconds more this process may write; 0: not at all."""
        self._fence = fence

    async def send(self, what: What, request: Callable[[], Awaitable[_T]]) -> _T:
        """Make a request. Raises SyncError; Fenced where this process may not write."""
        left = self._fence()
        if left <= 0:
            _count(what, "fenced")
            msg = "another one may write by now"
            raise Fenced(msg)
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                answer = await request()
        except TimeoutError as error:
            _count(what, "fenced")
            msg = "no answer while this one may write"
            raise Fenced(msg) from error
        except SyncError as error:
            _count(what, next((word for kind, word in _WORDS if isinstance(error, kind)), "failed"))
            raise
        _count(what, "done")
        return answer


def _count(what: What, outcome: str) -> None:
    metrics.policy_sync_writes.labels(what, outcome).inc()
