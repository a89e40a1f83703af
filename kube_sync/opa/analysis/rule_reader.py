"""Records what one rule reads, and computes the values that it builds of them.

Invariant: a value that is compared, or passed to an unknown builtin, is read whole; so is an
element of a set or a key of an object, which OPA compares with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kube_sync.opa.analysis import builtins
from kube_sync.opa.analysis.context import Context, Name
from kube_sync.opa.analysis.handed import Level, handed_on, weigh
from kube_sync.opa.analysis.paths import EACH, Key, Path
from kube_sync.opa.analysis.values import (
    OPAQUE,
    Box,
    Place,
    Row,
    Text,
    Values,
    possible_keys,
    union,
)

_SIZES = {**builtins.SCALAR, **builtins.PARTIAL, **dict.fromkeys(builtins.COMPARE, 2)}


@dataclass(frozen=True, slots=True)
class Asker:
    """The rule that reads."""

    module: str
    rule: str
    number: int


class World(Protocol):
    """The surroundings of a rule body: the other rules, and the record of reads."""

    def need(self, place: Place, level: Level, why: str, asker: Asker) -> None:
        """Record a read."""

    def use(self, builtin: str, asker: Asker) -> None:
        """Record a call of a builtin."""

    def document(self, keys: Sequence[tuple[Key, ...]], context: Context) -> Values:
        """Return the values below `data` under these keys."""

    def arity(self, function: Path) -> int | None:
        """Return the number of arguments of a function of the policies, None if it is none."""

    def call(self, function: Path, arguments: Sequence[Values], context: Context) -> Values:
        """Return the possible results of a function of the policies."""


def need(world: World, values: Values, level: Level, why: str, asker: Asker) -> None:
    """Record a read of these values, and of the values they consist of, at this level."""
    for atom in values:
        match atom:
            case Place():
                world.need(atom, level, why, asker)
            case Row(items) if level is Level.WHOLE:
                need(world, union(items), level, why, asker)
            case Box(members, rest) if level is Level.WHOLE:
                below = union((rest, *(member for _, member in members)))
                need(world, below, level, why, asker)


@dataclass(frozen=True, slots=True)
class Reader:
    """One rule as a reader in its World."""

    world: World
    asker: Asker

    def need(self, values: Values, level: Level, why: str) -> None:
        """Record a read of these values at this level."""
        need(self.world, values, level, why, self.asker)

    def compare(self, compared: Sequence[Values]) -> None:
        """Record a comparison of these values."""
        weigh(compared, self.need)

    def set_of(self, elements: Values) -> Values:
        """Return a set of these elements; a set compares its elements."""
        self.need(elements, Level.WHOLE, "put into a set")
        return frozenset([Box(rest=elements)])

    def member(self, key: Values, value: Values) -> Values:
        """Return an object with one member."""
        self.need(key, Level.WHOLE, "key of an object")
        names = possible_keys(key)
        if names == (EACH,):
            return frozenset([Box(rest=value)])
        return frozenset([Box(members=tuple((name or "", value) for name in names))])

    def overlaid(self, old: Values, path: Path, value: Values) -> Values:
        """Return a document with this value placed at a path."""
        if not path:
            return value
        self.need(old, Level.SHAPE, "with input")
        for key in reversed(path):
            value = self.member(frozenset([Text(key or "")]), value)
        return old | value

    def size(self, function: Name) -> int | None:
        """Return a function's number of arguments without its output, None if it is not known."""
        if function[:1] == ("data",):
            return self.world.arity(function[1:])
        return _SIZES.get(".".join(function))

    def apply(
        self, function: Name, values: Sequence[Values], size: int | None, context: Context
    ) -> Values:
        """Record what a function reads of its arguments; return the values of its output."""
        if function[0] == "data":
            return self.world.call(tuple(function[1:]), values, context)
        name = ".".join(function)
        self.world.use(name, self.asker)
        if name in builtins.PARTIAL and len(values) == size:
            return handed_on(name, values, self.need)
        if name in builtins.COMPARE:
            self.compare(values)
            return OPAQUE
        level = Level.SHAPE if name in builtins.SCALAR else Level.WHOLE
        for value in values:
            self.need(value, level, name)
        return OPAQUE

    def apply_instead(
        self, instead: Name, values: Sequence[Values], size: int | None, context: Context
    ) -> Values:
        """Record the reads of a function or rule that `with` puts in place of a function."""
        if instead[0] == "data" and self.world.arity(instead[1:]) is None:
            # A replacement rule is evaluated where the function would have been.
            found = self.world.document([(name,) for name in instead[1:]], context)
            self.need(found, Level.SHAPE, "with a function")
            return found
        # A replacement function calls functions without mocks.
        return self.apply(instead, values, size, context.unmocked())
