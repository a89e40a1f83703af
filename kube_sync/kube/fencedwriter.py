"""Fenced writes: requests that only the leader may send.

Invariant: a process that may not write sends nothing, and a request is cancelled when the process
may no longer write; its outcome is then unknown. The remaining time is checked right before each
request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from prometheus_client import Counter

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal

_T = TypeVar("_T")
OUTCOMES: Final = (
    (NotFound, "gone"),
    (Conflict, "conflict"),
    (Refused, "forbidden"),
    (Terminal, "refused"),
)


class Fenced(Retriable):
    """Another process may be the leader now; if the request was `sent`, its outcome is unknown."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class FencedWriter:
    """Sends requests while this process may write."""

    def __init__(
        self,
        seconds_left: Callable[[], float],
        counter: Counter | None = None,
        *,
        success: str = "done",
    ) -> None:
        """`seconds_left` returns for how long this process may still write; 0: not at all.

        `counter` has the labels operation and outcome: `success`, fenced, gone, conflict,
        forbidden, refused or failed.
        """
        self._seconds_left = seconds_left
        self._counter = counter
        self._success = success

    @property
    def may_write(self) -> bool:
        """Whether this process may write now."""
        return self._seconds_left() > 0

    async def send(self, operation: str, request: Callable[[], Awaitable[_T]]) -> _T:
        """Send a request. Raises SyncError; Fenced if this process may not write."""
        try:
            answer = await self._in_time(request)
        except SyncError as error:
            self._count(operation, _outcome(error))
            raise
        self._count(operation, self._success)
        return answer

    async def _in_time(self, request: Callable[[], Awaitable[_T]]) -> _T:
        left = self._seconds_left()
        if left <= 0:
            msg = "another one may write by now"
            raise Fenced(msg)
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                return await request()
        except TimeoutError as error:
            msg = "no answer while this one may write"
            raise Fenced(msg, sent=True) from error

    def _count(self, operation: str, outcome: str) -> None:
        if self._counter is not None:
            self._counter.labels(operation, outcome).inc()


def _outcome(error: SyncError) -> str:
    if isinstance(error, Fenced):
        return "fenced"
    return next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), "failed")
