"""Formats what commands print: documents as JSON or YAML, tables, and texts of others on a line.

Whatever is printed passes `terminal.py` after this, which makes it harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_BETWEEN = "\n\n"  # in no JSON


def indented(value: object) -> str:
    """Return indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def joined(documents: Iterable[str]) -> str:
    """Return several texts, an empty line between two."""
    return _BETWEEN.join(documents)


def as_yaml(text: str) -> str:
    """Return JSON, `joined` if there are several documents, as YAML."""
    import yaml  # noqa: PLC0415 - slow

    documents = map(msgspec.json.decode, text.split(_BETWEEN))
    found: str = yaml.safe_dump_all(documents, sort_keys=False)
    return found.rstrip("\n")


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, of rows with the same number of cells, the titles first."""
    cells = [*rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def plain(text: str, keep: str = "") -> str:
    """Return a text on one line, but for characters of `keep`; none of it moves a cursor."""
    return "".join(c if c.isprintable() or c in keep else _shown(c) for c in text)


def cut(text: str, longest: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _shown(char: str) -> str:
    return " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
