"""Tell a story step by step: what was expected, what was seen, how long it took.

Keeps true: a step is told as seen only if what was seen equals what was expected; the first one
that differs ends the story with Differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_PATIENCE = 30.0  # seconds; what is measured takes milliseconds, a loaded machine may not
_INDENT = "   "


class Differs(Exception):
    """A step's outcome is not the expected one."""


class Narrator:
    """Counts and times the steps of one telling."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self.told = 0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Tell one step; its body calls `see` for each thing that can be seen."""
        self.told += 1
        self._say(f"\n{self.told}. {title}")
        started = self._clock()
        yield
        self._say(f"{_INDENT}took {self._clock() - started:.2f} s")

    def see(self, what: str, expected: object, read: Callable[[], object]) -> None:
        """Read until `expected` is seen, for a while; tell both. Raises Differs."""
        started = self._clock()
        seen = read()
        while seen != expected and self._clock() - started < _PATIENCE:
            time.sleep(0.01)
            seen = read()
        self._say(f"{_INDENT}{what}")
        self._say(f"{_INDENT}  expected: {_text(expected)}")
        self._say(f"{_INDENT}  seen:     {_text(seen)}   ({self._clock() - started:.2f} s)")
        if seen != expected:
            msg = f"step {self.told}: {what}: expected {_text(expected)}, seen {_text(seen)}"
            raise Differs(msg)

    def quote(self, text: str) -> None:
        """Show what somebody was told, in their own lines."""
        for line in text.splitlines():
            self._say(f"{_INDENT}> {line}")

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return (
            "; ".join(f"{key}: {_text(inside)}" for key, inside in sorted(value.items()))
            or "nothing"
        )
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(map(_text, value)) or "none"
    return "nothing" if value is None else str(value)
