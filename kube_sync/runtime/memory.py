"""Memory that a process does not need any more."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give memory that is free back to the system, where the C library does so when asked (glibc).

    By itself it keeps what was free for a moment between two things that stay.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
