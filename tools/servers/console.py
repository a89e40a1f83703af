"""One voice for every step: a line on standard error, at once, so that nothing waits in silence.

Standard output stays free for answers (`path NAME` prints a path and nothing else).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Tell the person who waits what happens now."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what begins and, when it has gone well, how long it took."""
    say(f"{text} …")
    begin = time.monotonic()
    yield
    say(f"  done in {time.monotonic() - begin:.1f} s")
