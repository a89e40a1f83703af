"""Digests of values, which are equal for equal values in every process."""

from __future__ import annotations

import hashlib

import msgspec

_CHARACTERS = 16


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of `value` as JSON."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:_CHARACTERS]
