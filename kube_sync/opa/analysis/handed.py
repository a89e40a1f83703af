"""How much of a value is needed, and what builtins hand on of their arguments.

Keeps true: what a builtin returns is made of nothing but what is returned here, and of scalars
that are the same whenever what is noted here as needed is the same.
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
    """How much of a value is needed."""

    SHAPE = "shape"  # whether it is there, of which type, and what it is if it is a scalar
    MEMBERS = "members"  # and which keys it has, or how many elements
    WHOLE = "whole"


class Need(Protocol):
    """Notes that so much of some values is needed."""

    def __call__(self, values: Values, level: Level, why: str) -> None:
        """Note it."""
        ...


def weigh(compared: Sequence[Values], need: Need) -> None:
    """Compare values; what is compared with a scalar only is no other for what it holds."""
    documents = [values for values in compared if not is_scalar(values)]
    level = Level.WHOLE if len(documents) > 1 else Level.SHAPE
    for values in documents:
        need(values, level, "compared")


def handed_on(name: str, values: Sequence[Values], need: Need) -> Values:
    """Return what a builtin of `builtins.PARTIAL` returns of its arguments."""
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
    """Return what object.get finds under a key, or along a path of them."""
    match key:
        case Row(items):
            for item in items:
                need(item, Level.WHOLE, "key")
                values = select(values, possible_keys(item))
        case Text(text):
            values = select(values, (text,))
        case Plain.SCALAR:
            values = select(values, (EACH,))
        case _:  # a key, or a path of any length
            for value in (values, frozenset([key])):
                need(value, Level.WHOLE, "object.get with a key that is computed")
            return OPAQUE
    need(values, Level.SHAPE, "object.get")
    return values
