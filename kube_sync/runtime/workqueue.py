"""Keys to be made right, after client-go's workqueue.

Keeps true: a key is in work at most once at a time; a key added while it is in work runs once
more afterwards; a key added often before its turn runs once. It holds keys, never events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A first-in first-out queue of distinct keys."""

    def __init__(self) -> None:
        self._waiting: dict[K, None] = {}
        self._in_work: set[K] = set()
        self._again: set[K] = set()
        self._news = asyncio.Event()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Ask for `key` to be made right as soon as possible."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key in self._in_work:
            self._again.add(key)
            return
        self._waiting[key] = None
        self._news.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for `key` after a while; of several the nearest counts, and an `add` replaces it."""
        if key in self._waiting:
            return
        loop, known = asyncio.get_running_loop(), self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    async def get(self) -> K:
        """Wait for a key; whoever takes it calls `done` afterwards."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._in_work.add(key)
        return key

    def done(self, key: K) -> None:
        """Give `key` back; if it was added meanwhile, it waits again."""
        self._in_work.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel what was to be added later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
