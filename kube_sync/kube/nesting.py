"""JSON that is nested more deeply than Python's stack lets it be read.

Kubernetes lets 10,000 levels through. One such object would hide all others of its LIST, and end
its WATCH again and again; so it is cut, by a scan that calls itself for no level.

Of a built-in kind only `metadata.managedFields` can be nested so deeply, and whoever may write an
object may write that. Nobody decides by it: without it such an object is read like any other.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON

DEEPEST: Final = (
    500  # levels that are kept; Python's own limit is 1,000 calls, the callers' included
)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
# Nobody can have written it into an object before.
_MARK: Final = f'"cut-{secrets.token_hex(16)}"'.encode()
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def is_deep(body: bytes) -> bool:
    """Tell whether JSON is nested more than 500 levels deep, which somebody could fail to read."""
    if body.count(b"{") + body.count(b"[") <= DEEPEST:  # as of nearly all objects
        return False
    return is_cut(shallow(body))


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


def unmanaged(body: bytes) -> bytes | None:
    """Return the JSON of an object without managedFields that are nested too deeply.

    None: something else of it is, or it is no object.
    """
    try:
        whole = _fields.decode(shallow(body))
        metadata = _fields.decode(whole["metadata"])
    except (*NO_JSON, KeyError):
        return None
    metadata.pop("managedFields", None)
    whole["metadata"] = msgspec.Raw(_encode(metadata))
    found = _encode(whole)
    return None if is_cut(found) else found
