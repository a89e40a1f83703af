"""Escapes control characters in output; every print and log line passes through here.

Invariant: no text of others (names, annotations, messages of policies) moves a cursor,
sets a title, hides text or changes its direction. Control characters are replaced by
their JSON escapes, so that JSON keeps its meaning.
"""

from __future__ import annotations

import re

_MAYBE = re.compile(r"[^\n\t -~]")
_PAINT = re.compile(r"(\x1b\[(?:0|2|31|32|33)m)")  # our own codes: colors and their end


def harmless(text: str, *, painted: bool = False) -> str:
    """Escape the control characters of a text; `painted`: our own colors stay."""
    if painted:
        parts = _PAINT.split(text)
        return "".join(one if at % 2 else harmless(one) for at, one in enumerate(parts))
    return _MAYBE.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
