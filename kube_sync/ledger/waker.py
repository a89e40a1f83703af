"""When the thread that writes the ledger is woken.

Sooner than whoever says much at once has said all of it, it would take Python's lock from them
again and again, and write a group of one. What is written ahead is on disk: for that the thread
takes its time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_LEISURE_SECONDS = 0.05  # that nothing is said before what is written ahead is written,
_LATEST_SECONDS = 0.5  # and at the latest


class Waker:
    """Wakes one thread for what is said in an event loop, or in any other thread."""

    def __init__(
        self, wake: Callable[[], None], said: Callable[[], int], is_on_disk: Callable[[], bool]
    ) -> None:
        """`said` counts what was said, `is_on_disk` whether all of it is."""
        self._wake = wake
        self._said = said
        self._is_on_disk = is_on_disk
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._thread = 0  # of that
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0  # when the thread is woken, whatever else is said
        self._seen = 0  # how much was said when that was last put off

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop."""
        return self._loop is not None and threading.get_ident() == self._thread

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait in this loop, from its own thread, for those who say much at once."""
        self._loop, self._thread = loop, threading.get_ident()

    def stop(self) -> None:
        """Wake at once from now on."""
        self._loop, self._is_called = None, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rouse(self) -> None:
        """Have the thread woken, once whoever says all this at once has said it."""
        if self._is_called:
            return
        if self._loop is None or not self.is_here:
            self._wake()
            return
        self._is_called = True
        self._loop.call_soon(self._called, self._loop)

    def _called(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_called = False
        if not self._is_on_disk():
            self._wake()
        elif self._timer is None and self._loop is not None:
            self._latest = loop.time() + _LATEST_SECONDS
            self._put_off(loop)

    def _put_off(self, loop: asyncio.AbstractEventLoop) -> None:
        self._seen = self._said()
        self._timer = loop.call_later(_LEISURE_SECONDS, self._rise, loop)

    def _rise(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._said() > self._seen and loop.time() < self._latest:
            self._put_off(loop)
            return
        self._timer = None
        self._wake()
