"""The package of a module, read off its first line where that is beyond doubt.

A package clause that is plain names with dots, alone behind nothing but comments, needs no parser;
anything else is left to OPA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# (Rego grammar: a module begins with its package clause; `#` comments end with the line.)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_CLAUSE = re.compile(
    rf"(?:\s|#[^\n]*\n)*package[ \t]+(?P<package>{_NAME}(?:\.{_NAME})*)(?=\s|#|\Z)"
    # A path may go on behind spaces and comments: then it is not plain.
    r"(?!(?:\s|#[^\n]*(?:\n|\Z))*[.\[])"
)


def plain_package(source: str) -> tuple[str, ...] | None:
    """Return the parts of the package, None if only a parser can tell."""
    found = _CLAUSE.match(source)
    return tuple(found["package"].split(".")) if found else None


def outermost(packages: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the packages that lie within no other, in order: OPA takes no overlapping roots."""
    found: list[tuple[str, ...]] = []
    for package in sorted(set(packages)):
        if not found or package[: len(found[-1])] != found[-1]:
            found.append(package)
    return found
