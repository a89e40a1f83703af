"""Truncate JSON that is nested too deeply for Python's parsers.

Kubernetes accepts 10,000 levels. One such object would hide all others of its LIST, and end its
WATCH again and again; so this module cuts it with a scan that is not recursive.

Of a built-in kind only `metadata.managedFields` can be nested so deeply, and anybody who may write
an object may write them. No decision depends on them: without them the object is read normally.
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
# Random, so that no object can contain it already.
_MARK: Final = f'"cut-{secrets.token_hex(16)}"'.encode()
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def is_deep(body: bytes) -> bool:
    """Return whether JSON is nested more than 500 levels deep: a parser could fail on it."""
    if body.count(b"{") + body.count(b"[") <= DEEPEST:  # as of nearly all objects
        return False
    return is_cut(shallow(body))


def shallow(body: bytes) -> bytes:
    """Replace everything that is nested more than 500 levels deep by a mark."""
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
    # Unclosed nesting is invalid JSON; its remainder is dropped.
    return b"".join(parts if depth > DEEPEST else [*parts, body[start:]])


def is_cut(body: bytes) -> bool:
    """Return whether `shallow` replaced something in its result."""
    return _MARK in body


def unmanaged(body: bytes) -> bytes | None:
    """Return an object's JSON without managedFields that are nested too deeply.

    None: another part is nested too deeply, or it is no object.
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
