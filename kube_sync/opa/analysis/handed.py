"""How much of a value is read, and which parts of their arguments builtins return.

Invariant: the result of a builtin consists only of what is returned here, and of scalars that are
the same whenever the parts recorded here as needed are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from kube_sync.opa.analysis.paths import EACH
from kube_sync.opa.analysis.values import (
    OPAQUE,
    Atom,
    Box,
    Plain,
    Row,
    Text,
    Values,
    is_scalar,
    possible_keys,
    select,
    union,
)


class Level(Enum):
    """How much of a value is read."""

    SHAPE = "shape"  # its presence, its type, and its value if it is a scalar
    MEMBERS = "members"  # also its keys, or the number of its elements
    WHOLE = "whole"


class Need(Protocol):
    """Callback that records a read of some values."""

    def __call__(self, values: Values, level: Level, why: str) -> None:
        """Record the read."""


def weigh(compared: Sequence[Values], need: Need) -> None:
    """Record a comparison; a value compared only with scalars need not keep its members."""
    documents = [values for values in compared if not is_scalar(values)]
    level = Level.WHOLE if len(documents) > 1 else Level.SHAPE
    for values in documents:
        need(values, level, "compared")


def handed_on(name: str, values: Sequence[Values], need: Need) -> Values:
    """Return the part of its arguments that a builtin of `builtins.PARTIAL` returns."""
    for value in values:
        need(value, Level.SHAPE, name)
    match name, values:
        case "object.get", [found, keys, default]:
            return union((*(_step(found, key, need) for key in keys), default))
        case "object.remove" | "object.filter", [found, keys]:
            need(keys, Level.WHOLE, name)
            return found
        case "object.union", [one, other]:
            return one | other
        case "internal.member_2", [member, found]:
            weigh([member, select(found, (EACH,))], need)
            return OPAQUE
        case "array.concat" | "array.slice", _:
            return _elements(name, values, need)
        case _:  # count, object.keys
            need(union(values), Level.MEMBERS, name)
            return OPAQUE


def _elements(name: str, values: Sequence[Values], need: Need) -> Values:
    arrays = values if name == "array.concat" else values[:1]
    for array in arrays:
        need(array, Level.MEMBERS, name)
    return frozenset([Box(rest=union(select(array, (EACH,)) for array in arrays))])


def _step(values: Values, key: Atom, need: Need) -> Values:
    """Return the values that object.get finds under a key, or along a path of keys."""
    match key:
        case Row(items):
            for item in items:
                need(item, Level.WHOLE, "key")
                values = select(values, possible_keys(item))
        case Text(text):
            values = select(values, (text,))
        case Plain.SCALAR:
            values = select(values, (EACH,))
        case _:  # one key, or a path of any length
            for value in (values, frozenset([key])):
                need(value, Level.WHOLE, "object.get with a key that is computed")
            return OPAQUE
    need(values, Level.SHAPE, "object.get")
    return values
