"""Show the values that policies read of one object. Pure.

It contains no other fields, long values are truncated, and a Secret's values are never included,
whether or not policies read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube_sync.decisions.decision import REQUESTED, compact
from kube_sync.opa.analysis.paths import EACH, Path
from kube_sync.opa.analysis.result import Document, FieldRead, shown

LONGEST: Final = 2_000  # characters of one value
MOST: Final = 100  # values of one field

_WITHHELD: Final = "(a Secret's, not shown)"
_SECRET: Final = (("data",), ("stringData",))
# kubectl repeats a Secret's values there.
_REPEATED: Final = ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")


class Input(msgspec.Struct, frozen=True):
    """One field that is read: its value as JSON text, None if absent, and the rules reading it."""

    path: str
    value: str | None
    whole: bool
    asked: tuple[str, ...]  # rules, with file and row


def inputs(body: Mapping[str, Any], reads: Document) -> tuple[Input, ...]:
    """Return the fields that are read of an object."""
    secret = body.get("kind") == "Secret"
    fields = (f for f in reads.fields if f.path[-1:] != (REQUESTED,))  # ours; no policy sees it
    return tuple(_input(body, field, secret=secret) for field in fields)


def _input(body: Mapping[str, Any], field: FieldRead, *, secret: bool) -> Input:
    if secret and _may_show_secret(field.path):
        value: str | None = _WITHHELD
    else:
        value = _text([*_values(body, field.path)], several=EACH in field.path)
    asked = dict.fromkeys(_reading_rules(field))
    return Input(shown(field.path), value, field.whole, tuple(asked))


def _reading_rules(field: FieldRead) -> Iterator[str]:
    for reader in field.asked:
        if reader.module:
            row = "" if reader.row is None else f":{reader.row}"
            yield f"{reader.module}{row} {reader.rule}"


def _may_show_secret(path: Path) -> bool:
    """Return whether a path leads to a Secret's values, or to a field that contains them."""
    return any(_overlap(path, forbidden) for forbidden in (*_SECRET, _REPEATED))


def _overlap(path: Path, other: Path) -> bool:
    return all(a is EACH or a == b for a, b in zip(path, other, strict=False))


def _values(value: Any, path: Path) -> Iterable[Any]:  # noqa: ANN401 - any JSON
    if not path:
        yield value
        return
    key, rest = path[0], path[1:]
    match value:
        case dict():
            members = value.values() if key is EACH else [value[key]] if key in value else []
        case list() if key is EACH:
            members = value
        case _:
            members = []
    for member in members:
        yield from _values(member, rest)


def _text(found: list[Any], *, several: bool) -> str | None:
    if not found:
        return None
    text = compact(found[:MOST] if several else found[0])
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
