"""Runs something asynchronous beside a command, which has an event loop of its own, or none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_background(opened: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Enter an asynchronous context in a thread, and leave it after the block.

    Raises what entering it raises.
    """
    entered = Future[tuple[T, Callable[[], None]]]()

    async def hold() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        async with opened() as value:
            entered.set_result((value, lambda: _stop(loop, ended)))
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(hold())
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for it
            if not entered.done():
                entered.set_exception(error)

    # A daemon: who interrupts a command need not wait for a server that does not answer.
    thread = threading.Thread(target=run, name="kube-sync-background", daemon=True)
    thread.start()
    value, stop = entered.result()
    try:
        yield value
    finally:
        stop()
        thread.join()


def _stop(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    loop.call_soon_threadsafe(ended.set)
