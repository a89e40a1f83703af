"""What a term can stand for, as far as it matters to what is read: an alias, or what it is made of.

Keeps true: whatever a term can be at run time is one of its atoms, so whoever reads of every atom
reads of every possible value. Where nothing is known, `OPAQUE` stands for a value all of whose
sources are read whole already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Final, Literal

from kube_sync.opa.analysis.paths import EACH, Key, Path
from kube_sync.opa.analysis.syntax import Unreadable

Root = Literal["input", "data"]


@dataclass(frozen=True, slots=True)
class Place:
    """The value that lies at a path of `input` or of `data`."""

    root: Root
    path: Path


@dataclass(frozen=True, slots=True)
class Text:
    """A string that the policy spells out."""

    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """An array, element by element."""

    items: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A collection: what lies under the keys that are known, and what may lie under any."""

    members: tuple[tuple[str, Values], ...] = ()
    rest: Values = frozenset()


class Plain(Enum):
    """What is nowhere in the data."""

    SCALAR = "scalar"  # a constant, or the key of an object or array
    OPAQUE = "opaque"  # computed


Atom = Place | Text | Row | Box | Plain
Values = frozenset[Atom]
SCALAR: Values = frozenset([Plain.SCALAR])
OPAQUE: Values = frozenset([Plain.OPAQUE])
_MOST: Final = 10_000
_ANY: tuple[Key, ...] = (EACH,)


def union(values: Iterable[Values]) -> Values:
    """Return what any of them can be."""
    return frozenset().union(*values)


def bound(choices: Iterable[int]) -> None:
    """Check of how many things something can be any, by the choices in turn. Raises Unreadable."""
    if prod(choices) > _MOST:
        msg = f"a reference may lead to more than {_MOST} places"
        raise Unreadable(msg)


def select(values: Values, keys: Sequence[Key]) -> Values:
    """Return what lies one level below, under any of `keys`; EACH is any key. Raises Unreadable."""
    bound((len(values), len(keys)))
    return frozenset(below for atom in values for key in keys for below in _below(atom, key)) or (
        OPAQUE
    )


def _below(atom: Atom, key: Key) -> Iterator[Atom]:
    match atom:
        case Place():
            yield Place(atom.root, (*atom.path, key))
        case Row():
            yield from union(atom.items)
        case Box():
            yield from atom.rest
            for name, member in atom.members:
                if key in (EACH, name):
                    yield from member
        case Plain.OPAQUE:
            yield atom
        case _:  # a scalar has nothing below it
            return


def possible_keys(values: Values) -> tuple[Key, ...]:
    """Return the keys that these values can be: strings where all are spelt out, or any key."""
    texts = [atom.text for atom in values if isinstance(atom, Text)]
    return tuple(sorted(texts)) if len(texts) == len(values) > 0 else _ANY


def keys_of(values: Values) -> Values:
    """Return what the keys of these collections can be."""
    return union(map(_keys, values)) or OPAQUE


def _keys(atom: Atom) -> Values:
    match atom:
        case Place() | Row():
            return SCALAR
        case Box(rest=rest) if not rest:
            return frozenset(Text(name) for name, _ in atom.members)
        case _:  # the elements of a set among them
            return OPAQUE


def is_scalar(values: Values) -> bool:
    """Tell whether these can be nothing but scalars that no document holds."""
    return all(isinstance(atom, Text) or atom is Plain.SCALAR for atom in values)
