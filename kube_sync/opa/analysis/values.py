"""Abstract values of terms: aliases of places in `input` and `data`, and structures of them.

Invariant: every value that a term can have at run time is one of its atoms, so a read of every
atom reads every possible value. `OPAQUE` is an unknown value, all of whose sources are read whole
already.
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
    """A string constant of the policy."""

    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """An array, element by element."""

    items: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A collection: the values under known keys, and the values under any key."""

    members: tuple[tuple[str, Values], ...] = ()
    rest: Values = frozenset()


class Plain(Enum):
    """A value that is nowhere in the data."""

    SCALAR = "scalar"  # a constant, or the key of an object or array
    OPAQUE = "opaque"  # computed


Atom = Place | Text | Row | Box | Plain
Values = frozenset[Atom]
SCALAR: Values = frozenset([Plain.SCALAR])
OPAQUE: Values = frozenset([Plain.OPAQUE])
_MOST: Final = 10_000
_ANY: tuple[Key, ...] = (EACH,)


def union(values: Iterable[Values]) -> Values:
    """Return the union of the possible values."""
    return frozenset().union(*values)


def bound(choices: Iterable[int]) -> None:
    """Check the number of combinations of these choices. Raises Unreadable if it is too large."""
    if prod(choices) > _MOST:
        msg = f"a reference may lead to more than {_MOST} places"
        raise Unreadable(msg)


def select(values: Values, keys: Sequence[Key]) -> Values:
    """Return the values one level below, under any of `keys` (EACH: any). Raises Unreadable."""
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
    """Return the possible keys: the strings where all are constants, otherwise any key."""
    texts = [atom.text for atom in values if isinstance(atom, Text)]
    return tuple(sorted(texts)) if len(texts) == len(values) > 0 else _ANY


def keys_of(values: Values) -> Values:
    """Return the possible keys of these collections."""
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
    """Return whether these can only be scalars that no document holds."""
    return all(isinstance(atom, Text) or atom is Plain.SCALAR for atom in values)
