"""A limit of time for Python code that nothing else can end, in whichever thread it runs.

What may take years by what others wrote (exponential in a text of a few hundred bytes, by one of
many ways) is ended by an exception that another thread raises in it. Python raises it between two
bytecodes, so code in C that takes long is not ended.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block once it has taken so long; never after its end."""
    thread, lock, ended = threading.get_ident(), threading.Lock(), threading.Event()

    def end() -> None:
        with lock:
            if not ended.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(TimeoutError)
                )

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with lock:  # Not while the thread is started: `threading` does not bear an exception there.
        timer.start()
    try:
        yield
    finally:
        with lock:
            ended.set()
        # What was raised before that comes up in this call at the latest.
        timer.cancel()
