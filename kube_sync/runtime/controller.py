"""The loop that reconciles the keys of a work queue, after controller-runtime's.

Level-based: a reconcile gets a key, reads the current state by itself, and may be called
again at any time. It returns a Result, or raises SyncError to be requeued with the back-off
of its key, but no earlier than the server asked for. It does not raise errors that no retry
helps. It logs its own failures, since it knows what they mean; any other exception ends the loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import structlog

from kube_sync.errors import Retriable, SyncError
from kube_sync.runtime.cooperative import TURN
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile.

    `requeue_after`: the seconds until the key is reconciled again without another add,
    None: only when it is added.
    """

    requeue_after: float | None = None


class Turns(Protocol):
    """Limits how many keys are reconciled at once."""

    async def acquire(self) -> None:
        """Wait for a turn."""

    def release(self) -> None:
        """End a turn."""


async def work(
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[Result]],
    turn: int = TURN,
    limit: Turns | None = None,
) -> NoReturn:
    """Reconcile keys until cancelled; several of these loops may run concurrently.

    After `turn` keys it yields to other tasks: most reconciles never wait. With a `limit`, keys
    wait in the queue until it has a turn.
    """
    position = itertools.cycle(range(turn))
    try:
        while True:
            key = await queue.get(None if limit is None else limit.acquire)
            try:
                if next(position) == 0:
                    await asyncio.sleep(0)
                await _reconcile(queue, key, reconcile)
            finally:
                queue.done(key)
                if limit is not None:
                    limit.release()
    finally:
        queue.close()


async def _reconcile(
    queue: WorkQueue[K], key: K, reconcile: Callable[[K], Awaitable[Result]]
) -> None:
    try:
        result = await reconcile(key)
    except SyncError as error:
        log.debug("reconcile_failed", key=str(key), error=str(error))
        queue.add_rate_limited(key, error.retry_after if isinstance(error, Retriable) else None)
        return
    queue.forget(key)
    if result.requeue_after is not None:
        queue.add_after(key, result.requeue_after)
