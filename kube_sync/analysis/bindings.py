"""Where the variables of one body get their values from, and which of them are free to vary.

Keeps true: a variable's value is one of each of its sources, all at once: where it has two, they
are compared. OPA renames what is declared to be unique in the module, and nothing else: two
comprehensions may use one undeclared name for two variables, so such a name is taken to be any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from kube_sync.analysis.syntax import Unreadable
from kube_sync.analysis.values import OPAQUE, Values, possible_keys, union

Scope = tuple[int, ...]  # the closures around an expression, outermost first
_UNIQUE = re.compile(r"__local\d+__|\$\d+")


class Kind(Enum):
    """How a variable comes by a value."""

    VALUE = "value"  # it is this
    KEY = "key"  # it is a key of this
    PATTERN = "pattern"  # it is a part of what is compared, and so read, whole


@dataclass(frozen=True, slots=True)
class Source:
    """One place that gives a variable its value."""

    kind: Kind
    scope: Scope
    values: Callable[[], Values]
    names: frozenset[str] = frozenset()  # the variables that it depends on
    single: bool = True  # one value for one value of each of these


@dataclass(frozen=True, slots=True)
class _Question:
    home: Scope
    given: frozenset[str]


class Bindings:
    """The variables of one body."""

    def __init__(self) -> None:
        self._same: dict[str, str] = {}
        self._sources: dict[str, list[Source]] = {}

    def add(self, name: str, source: Source) -> None:
        """Note where a variable gets a value from."""
        self._sources.setdefault(name, []).append(source)

    def unite(self, left: str, right: str) -> None:
        """Note that two variables are equal."""
        if (one := self._leader(left)) != (other := self._leader(right)):
            self._same[other] = one

    def compared(self) -> Iterable[list[Values]]:
        """Yield the values that have to be equal, for each variable of several sources."""
        for leader in sorted({self._leader(name) for name in self._sources}):
            sources = [s for s in self._all(leader) if s.kind is not Kind.PATTERN]
            if len(sources) > 1:
                yield [source.values() for source in sources]

    def values(self, name: str) -> Values:
        """Return what a variable can be."""
        sources = self._all(name)
        if not sources:
            msg = f"the variable {name} has no value: the module is not compiled"
            raise Unreadable(msg)
        if not self._unique(name):
            known = (s.values() if s.kind is not Kind.PATTERN else OPAQUE for s in sources)
            return union(known) or OPAQUE
        given = [source.values() for source in sources if source.kind is Kind.VALUE]
        keys = [source.values() for source in sources if source.kind is Kind.KEY]
        spelt = [v for v in (*given, *keys) if possible_keys(v) != (None,)]
        return min(spelt, key=len) if spelt else union(given) or union(keys) or OPAQUE

    def settled(self, names: Iterable[str], given: Iterable[str], home: Scope) -> bool:
        """Tell whether `names` have one value for each value of `given`, within `home`."""
        leaders = frozenset(self._leader(name) for name in given if self._unique(name))
        return self._all_settled(names, _Question(home, leaders), frozenset())

    def _all_settled(self, names: Iterable[str], asked: _Question, seen: frozenset[str]) -> bool:
        return all(self._is_settled(self._leader(name), asked, seen) for name in names)

    def _is_settled(self, leader: str, asked: _Question, seen: frozenset[str]) -> bool:
        if leader in asked.given:
            return True
        if leader in seen:
            return False
        sources = self._all(leader)
        found = (
            s.kind is Kind.VALUE and s.single and self._all_settled(s.names, asked, seen | {leader})
            for s in sources
        )
        if not self._unique(leader):
            return bool(sources) and all(found)
        return _is_fixed(sources, asked.home) or any(found)

    def _unique(self, name: str) -> bool:
        leader = self._leader(name)
        names = {leader, *(n for n in self._same if self._leader(n) == leader)}
        return all(_UNIQUE.fullmatch(n) for n in names)

    def _all(self, name: str) -> list[Source]:
        leader = self._leader(name)
        return [s for n, found in self._sources.items() if self._leader(n) == leader for s in found]

    def _leader(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name


def _is_fixed(sources: list[Source], home: Scope) -> bool:
    """Tell whether a variable has its value from outside of `home`, or is of a closure within."""
    size = len(home)
    inside = [s.scope[:size] == home for s in sources]
    return bool(sources) and (not all(inside) or all(len(s.scope) > size for s in sources))
