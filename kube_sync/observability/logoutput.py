"""Writes log lines to a stream: each at once, those of `BATCHED` loggers once a turn of the loop.

A write is a system call, which takes the webhook as long as all else about the line of a review.
Invariant: lines are written in the order in which they were logged; a batched one at the latest at
the end of the turn of the event loop, before the next line that is not batched, and at the end of
the process. Only a process that is killed within the turn loses it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from types import SimpleNamespace
from typing import Final, TextIO

BATCHED: Final = "batched"  # `structlog.get_logger(BATCHED)`
_METHODS: Final = ("debug", "info", "warning", "error", "critical")


class LogOutput:
    """Makes the loggers of one stream, which structlog's own call with finished lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._lines: list[str] = []  # not written yet
        self._loop: asyncio.AbstractEventLoop | None = None  # that is to write them
        atexit.register(self._flush)

    def __call__(self, *args: object) -> SimpleNamespace:
        """Return a logger; `args` are those of `structlog.get_logger`."""
        write = self._batch if BATCHED in args else self._write
        return SimpleNamespace(**dict.fromkeys(_METHODS, write))

    def _write(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
        self._flush()

    def _batch(self, line: str) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write(line)
            return
        with self._lock:
            self._lines.append(line)
            if loop is self._loop:
                return
            self._loop = loop
        loop.call_soon(self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._loop = None
            lines, self._lines = self._lines, []
            if lines:
                self._stream.write("\n".join([*lines, ""]))
                self._stream.flush()
