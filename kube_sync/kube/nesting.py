"""JSON that is nested more deeply than Python's stack lets it be read.

Kubernetes lets 10,000 levels through. One such object would hide all others of its LIST, and end
its WATCH again and again; so it is cut, by a scan that calls itself for no level.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

DEEPEST: Final = (
    500  # levels that are kept; Python's own limit is 1,000 calls, the callers' included
)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
# Nobody can have written it into an object before.
_MARK: Final = f'"cut-{secrets.token_hex(16)}"'.encode()


def shallow(body: bytes) -> bytes:
    """Return JSON with a mark in place of whatever is nested more than 500 levels deep."""
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        sign = body[token.start() : token.start() + 1]
        if sign in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                parts.append(body[start : token.start()])
        elif sign in (b"]", b"}"):
            if depth == DEEPEST + 1:
                parts.append(_MARK)
                start = token.end()
            depth -= 1
    # What is not closed is no JSON, and has no end that is worth keeping.
    return b"".join(parts if depth > DEEPEST else [*parts, body[start:]])


def is_cut(body: bytes) -> bool:
    """Tell whether something was cut out of what `shallow` returned."""
    return _MARK in body
