"""Decides when to wake the thread that writes the ledger.

Woken at each entry of a burst, the thread would take the interpreter lock from the event loop
again and again, and write groups of one. Entries in the write-ahead file are on disk: for them
the thread may take its time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_LEISURE_SECONDS = 0.05  # without new entries before those written ahead are written,
_LATEST_SECONDS = 0.5  # but no later than this


class Waker:
    """Wakes one thread for entries that are added in an event loop, or in any other thread."""

    def __init__(
        self, wake: Callable[[], None], accepted: Callable[[], int], is_on_disk: Callable[[], bool]
    ) -> None:
        """Take `accepted`, the number of entries, and `is_on_disk`: whether all are written."""
        self._wake = wake
        self._accepted = accepted
        self._is_on_disk = is_on_disk
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._thread = 0  # of the loop
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0  # the latest time to wake the thread, whatever is added
        self._seen = 0  # the number of entries when the wake-up was last put off

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop."""
        return self._loop is not None and threading.get_ident() == self._thread

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Defer wake-ups in this loop, to be called in its thread."""
        self._loop, self._thread = loop, threading.get_ident()

    def stop(self) -> None:
        """Wake at once from now on."""
        self._loop, self._is_called = None, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rouse(self) -> None:
        """Schedule a wake-up, after the current burst of entries."""
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
        self._seen = self._accepted()
        self._timer = loop.call_later(_LEISURE_SECONDS, self._rise, loop)

    def _rise(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._accepted() > self._seen and loop.time() < self._latest:
            self._put_off(loop)
            return
        self._timer = None
        self._wake()
