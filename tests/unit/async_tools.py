"""What several unit tests need to run loops without waiting for the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kube_sync.runtime.backoff import Backoff

PATIENCE = 30.0  # seconds until a test that waits for news gives up


@asynccontextmanager
async def running(
    *loops: Coroutine[Any, Any, object], patience: float = PATIENCE
) -> AsyncGenerator[None]:
    """Run endless loops beside the block; what one of them raises fails the test."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        async with asyncio.timeout(patience):
            yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until `condition` holds; the test's own time limit ends it."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is watched knows of no test
            await asyncio.sleep(0)


class Waits:
    """A sleep that takes no time and remembers how long it would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Note the wait, and let others run."""
        self.seconds.append(seconds)
        await asyncio.sleep(0)

    def backoff(self, first: float = 0.1, longest: float = 30.0) -> Backoff:
        """Return a Backoff that waits here, always the whole of each step."""
        return Backoff(first, longest, sleep=self.sleep, jitter=lambda: 1.0)


class LoopTime:
    """The running loop's clock, which can be put forward: what is due by then happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop, self._ahead = asyncio.get_running_loop(), 0.0
        self._handles: list[asyncio.TimerHandle] = []
        time, self._call_later = self._loop.time, self._loop.call_later
        monkeypatch.setattr(self._loop, "time", lambda: time() + self._ahead)
        monkeypatch.setattr(self._loop, "call_later", self._noted)

    def _noted(
        self, seconds: float, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> asyncio.TimerHandle:
        handle = self._call_later(seconds, function, *arguments, **options)
        if function.__module__.startswith("kube_sync."):
            self._handles.append(handle)
        return handle

    @property
    def timers(self) -> list[float]:
        """In how many seconds our own code will be called, by the timers that it has set."""
        now = self._loop.time()
        self._handles = [one for one in self._handles if not one.cancelled() and one.when() > now]
        return [one.when() - now for one in self._handles]

    def forward(self, seconds: float) -> None:
        """Let it be later; what has a timeout within that time runs into it."""
        self._ahead += seconds


class Timers:
    """The loop's `call_later`, with time in the hands of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pending: dict[asyncio.TimerHandle, tuple[float, Callable[..., Any], Any]] = {}
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def _call_later(
        self, seconds: float, function: Callable[..., Any], argument: object
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(0.0, function, (argument,), self._loop)
        self.pending[handle] = (seconds, function, argument)
        return handle

    @property
    def seconds(self) -> list[float]:
        return [s for handle, (s, _, _) in self.pending.items() if not handle.cancelled()]

    def fire(self) -> None:
        due, self.pending = self.pending, {}
        for handle, (_, function, argument) in due.items():
            if not handle.cancelled():
                function(argument)
