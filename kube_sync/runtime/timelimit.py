"""A time limit for Python code in any thread.

Code that may run for years on foreign input (exponential in a text of a few hundred bytes)
is ended by an exception that another thread raises in it. Python raises it between two
bytecodes, so a long call in C is not ended.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after this time; never after its end."""
    thread, lock, ended = threading.get_ident(), threading.Lock(), threading.Event()

    def end() -> None:
        with lock:
            if not ended.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(TimeoutError)
                )

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with lock:  # Not during the start of the thread: `threading` cannot handle an exception there.
        timer.start()
    try:
        yield
    finally:
        with lock:
            ended.set()
        # An exception that was raised before surfaces in this call at the latest.
        timer.cancel()
