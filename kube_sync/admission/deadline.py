"""How long a review may take, out of what the API server says in `?timeout=5s`. Pure.

The API server counts from when it called; a time-out of its own reads as a broken webhook, while
an answer of ours says what was waited for. So some of its time is left for the way back.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import parse_qs

_DEFAULT_SECONDS = 10.0  # the API server's own default
# The API server's own limit of `timeoutSeconds`: whoever else calls may not hold a request longer.
_MOST_SECONDS = 30.0
_MARGIN = 0.2  # of the time that is given, but no more than that many seconds:
_MOST_MARGIN = 0.5

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|h|m|s)")


@lru_cache(64)  # there is one such query for each webhook that is configured
def seconds_to_answer(query: str) -> float:
    """Return in how many seconds a request with this query has to be answered."""
    given = duration(parse_qs(query).get("timeout", [""])[0]) or _DEFAULT_SECONDS
    given = min(given, _MOST_SECONDS)
    return given - min(given * _MARGIN, _MOST_MARGIN)


def duration(text: str) -> float | None:
    """Read a duration as Go writes it (`time.ParseDuration`), in seconds; None if it is none."""
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
