"""The variables of one rule body: the sources of their values, and which of them are free.

Invariant: a variable's value is one of each of its sources at once: several sources are compared.
What an inner body (of a comprehension, `every`, a negation, an operand of `or`) states about an
outer variable holds there alone: it is compared, and the variable's values are those of the body
that binds it. OPA renames declared variables to be unique in the module, and no others: two
comprehensions may use one undeclared name for two variables, so such a name is taken to be any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from kube_sync.opa.analysis.syntax import Unreadable
from kube_sync.opa.analysis.values import OPAQUE, Values, possible_keys, union

Scope = tuple[int, ...]  # the closures around an expression, outermost first
_UNIQUE = re.compile(r"__local\d+__|\$\d+")


class Kind(Enum):
    """How a source gives a variable its value."""

    VALUE = "value"  # the variable is this value
    KEY = "key"  # the variable is a key of this value
    PATTERN = "pattern"  # the variable is part of a compared pattern, and so read whole


@dataclass(frozen=True, slots=True)
class Source:
    """One place that gives a variable its value."""

    kind: Kind
    scope: Scope
    values: Callable[[], Values]
    names: frozenset[str] = frozenset()  # the variables that the source depends on
    single: bool = True  # one value for one value of each of these


@dataclass(frozen=True, slots=True)
class _Question:
    home: Scope
    given: frozenset[str]


class Bindings:
    """The variables of one body."""

    def __init__(self) -> None:
        self._equal: list[tuple[str, str, Scope]] = []
        self._same: dict[str, str] | None = None  # None: to be found out
        self._apart: list[tuple[str, str]] = []  # equal pairs in a body that binds neither
        self._sources: dict[str, list[Source]] = {}

    def add(self, name: str, source: Source) -> None:
        """Add a source of a variable's value."""
        self._sources.setdefault(name, []).append(source)
        self._same = None

    def is_bound(self, name: str) -> bool:
        """Return whether a variable has any source."""
        return bool(self._all(name))

    def unite(self, left: str, right: str, scope: Scope) -> None:
        """Record that two variables are equal in the body of this scope, and in those within."""
        self._equal.append((left, right, scope))
        self._same = None

    def compared(self) -> Iterable[list[Values]]:
        """Yield the values that have to be equal, for each variable of several sources."""
        for leader in sorted({self._leader(name) for name in self._sources}):
            sources = [s for s in self._all(leader) if s.kind is not Kind.PATTERN]
            if len(sources) > 1:
                yield [source.values() for source in sources]
        for left, right in self._apart:
            yield [self.values(left), self.values(right)]

    def values(self, name: str) -> Values:
        """Return the possible values of a variable."""
        sources = self._all(name)
        if not sources:
            msg = f"the variable {name} has no value: the module is not compiled"
            raise Unreadable(msg)
        if (home := self._home(name)) is None:
            known = (s.values() if s.kind is not Kind.PATTERN else OPAQUE for s in sources)
            return union(known) or OPAQUE
        sources = [source for source in sources if source.scope == home]
        given = [source.values() for source in sources if source.kind is Kind.VALUE]
        keys = [source.values() for source in sources if source.kind is Kind.KEY]
        spelt = [v for v in (*given, *keys) if possible_keys(v) != (None,)]
        return min(spelt, key=len) if spelt else union(given) or union(keys) or OPAQUE

    def settled(self, names: Iterable[str], given: Iterable[str], home: Scope) -> bool:
        """Return whether `names` have one value for each value of `given`, within `home`."""
        leaders = frozenset(self._leader(name) for name in given if self._home(name) is not None)
        return self._all_settled(names, _Question(home, leaders), frozenset())

    def _all_settled(self, names: Iterable[str], question: _Question, seen: frozenset[str]) -> bool:
        return all(self._is_settled(self._leader(name), question, seen) for name in names)

    def _is_settled(self, leader: str, question: _Question, seen: frozenset[str]) -> bool:
        if leader in question.given:
            return True
        if leader in seen:
            return False
        sources, home = self._all(leader), self._home(leader)
        found = (
            s.kind is Kind.VALUE
            and s.single
            and self._all_settled(s.names, question, seen | {leader})
            for s in sources
            if home is None or s.scope == home
        )
        if home is None:
            return bool(sources) and all(found)
        return _is_fixed(sources, question.home) or any(found)

    def _home(self, name: str) -> Scope | None:
        """Return the scope of the body that binds a variable, None if it may be several."""
        leader = self._leader(name)
        names = {leader, *(n for n in self._united if self._leader(n) == leader)}
        scopes = {source.scope for source in self._all(name)}
        if not scopes or not all(_UNIQUE.fullmatch(n) for n in names):
            return None
        home = min(scopes, key=len)
        return home if all(scope[: len(home)] == home for scope in scopes) else None

    def _all(self, name: str) -> list[Source]:
        leader = self._leader(name)
        return [s for n, found in self._sources.items() if self._leader(n) == leader for s in found]

    def _leader(self, name: str) -> str:
        united = self._united
        while name in united:
            name = united[name]
        return name

    @property
    def _united(self) -> dict[str, str]:
        """Map each variable that equals another to its representative, outermost bodies first."""
        if self._same is None:
            self._same, self._apart = {}, []
            for left, right, scope in sorted(self._equal, key=lambda equal: len(equal[2])):
                one, other = self._leader(left), self._leader(right)
                if self._is_around(one, scope) and self._is_around(other, scope):
                    self._apart.append((left, right))
                elif one != other:
                    self._same[other] = one
        return self._same

    def _is_around(self, name: str, scope: Scope) -> bool:
        """Return whether a body around the body of `scope` binds a variable."""
        home = self._home(name)
        return home is not None and len(home) < len(scope)


def _is_fixed(sources: list[Source], home: Scope) -> bool:
    """Return whether a variable gets its value outside of `home`, or is of a closure within."""
    size = len(home)
    inside = [s.scope[:size] == home for s in sources]
    return bool(sources) and (not all(inside) or all(len(s.scope) > size for s in sources))
