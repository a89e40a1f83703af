"""Whether two JSON values are the same one, which Python's `==` does not tell.

Keeps true: `true` is not 1, nor is 1.0 (RFC 8259, section 3), though Python takes each for another.
What is the very same object is not looked into, so asking about two states of a thing costs what
differs between them.
"""

from __future__ import annotations


def same(one: object, other: object) -> bool:
    """Tell whether two JSON values are the same; mappings have no order."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
