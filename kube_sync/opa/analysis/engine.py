"""Evaluates the rules of all modules abstractly: every rule below `data` and what it reads.

Invariant: every possible target of a reference is evaluated, once per context and per list of
arguments. Where one key, or one function, may get two values, OPA compares them and fails if
they differ, so they are read whole. Recursion and the number of evaluations are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from kube_sync.opa.analysis import builtins
from kube_sync.opa.analysis.context import Context
from kube_sync.opa.analysis.exclusive import exclude
from kube_sync.opa.analysis.frame import Frame
from kube_sync.opa.analysis.handed import Level
from kube_sync.opa.analysis.paths import EACH, Key, Path
from kube_sync.opa.analysis.rule_reader import Asker, need
from kube_sync.opa.analysis.syntax import Clause, Module, Rule, Scalar, Spot, Term, Unreadable
from kube_sync.opa.analysis.values import OPAQUE, Box, Place, Values, bound, select, union

_EVALUATIONS = 50_000  # more than any hand-written set of policies needs
_PLACES = 5_000  # limit of places that are read: each object is searched for all of them
_NOBODY = Asker("", "", 0)
_INPUT: Values = frozenset([Place("input", ())])


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """One place that one rule reads, and the reason."""

    module: str
    rule: str
    number: int
    why: str
    whole: bool


@dataclass(slots=True)
class _Node:
    """A name below `data`: the rules that define it, and the names below it."""

    rules: list[tuple[str, Rule]] = field(default_factory=list)
    names: dict[str, _Node] = field(default_factory=dict)
    crowded: bool = False  # rules above or below this name add members to it too


class Engine:
    """Evaluates rules abstractly and collects what they read."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.needs: dict[Place, set[Need]] = {}
        self.impure: dict[str, set[Asker]] = {}
        self.followed: set[tuple[tuple[Key, ...], ...]] = set()  # every reference below `data`
        self._root = _Node()
        with_rules = {module.package for module in modules if module.rules}
        self._reserved = {module.package for module in modules} - with_rules
        self._known: dict[tuple[int, Context, tuple[Values, ...]], Values | None] = {}
        self.stopped: Spot | None = None  # the rule that cannot be analysed
        self._evaluations = 0
        # OPA spells out a rule's name from `data` on; a builtin of that name cannot be called.
        self._names = {(m.name, rule.name.split(".")[0]) for m in modules for rule in m.rules}
        for module in modules:
            for rule in module.rules:
                self._place(rule).rules.append((module.name, rule))
        _crowd(self._root, above=False)

    def decide(self, path: Path) -> None:
        """Evaluate the document at `path` and record its reads. Raises Unreadable."""
        found = self.document([(key,) for key in path], Context(_INPUT))
        need(self, found, Level.WHOLE, "returned from the decision", _NOBODY)

    # The methods that Frame calls (the protocol World).

    def need(self, place: Place, level: Level, why: str, asker: Asker) -> None:
        """Record a read."""
        if level is Level.MEMBERS:
            place = Place(place.root, (*place.path, EACH))
        found = Need(asker.module, asker.rule, asker.number, why, level is Level.WHOLE)
        self.needs.setdefault(place, set()).add(found)
        if len(self.needs) > _PLACES:
            msg = f"more than {_PLACES} paths are read"
            raise Unreadable(msg)

    def use(self, builtin: str, asker: Asker) -> None:
        """Record the use of an impure builtin. Raises Unreadable for an unknown builtin."""
        if (asker.module, builtin.split(".", maxsplit=1)[0]) in self._names:
            msg = f"{asker.module}: {builtin} is a rule: the module is not compiled"
            raise Unreadable(msg)
        if builtin in builtins.IMPURE:
            self.impure.setdefault(builtin, set()).add(asker)

    def arity(self, function: Path) -> int | None:
        """Return the number of arguments of a function, None if it is not a function."""
        node = self._node(function)
        rules = [rule for _, rule in node.rules if rule.function] if node else []
        sizes = {len(clause.arguments) for rule in rules for clause in rule.clauses}
        if len(sizes) > 1:
            msg = f"different numbers of arguments of {rules[0].name}"
            raise Unreadable(msg)
        return next(iter(sizes), None)

    def document(self, keys: Sequence[tuple[Key, ...]], context: Context) -> Values:
        """Return the values below `data`; `with` in the context may replace them."""
        self.followed.add(tuple(keys))
        found = union(self._below(self._root, keys, (), context)) or OPAQUE
        if any(_overlaps(path, keys) for path in context.replaced):
            return found | OPAQUE
        return found

    def is_package(self, path: Path) -> bool:
        """Return whether rules are defined at or below a path, or a package reserves it.

        A package without rules of its own is there for those below it: to declare it keeps data of
        others away, since a bundle owns what is below its packages.
        """
        reserved = any(path[: len(package)] == package for package in self._reserved)
        return reserved or self._node(path) is not None

    def call(self, function: Path, arguments: Sequence[Values], context: Context) -> Values:
        """Return the possible results of a function."""
        self.followed.add(tuple((key,) for key in function))
        node = self._node(function)
        if node is None or self.arity(function) != len(arguments):
            msg = f"a call of the unknown function {'.'.join(map(str, function))}"
            raise Unreadable(msg)
        return self._evaluate(node, context, tuple(arguments))

    # The tree of rules below `data`.

    def _place(self, rule: Rule) -> _Node:
        node = self._root
        for name in _fixed(rule.path):
            node = node.names.setdefault(name, _Node())
        return node

    def _node(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in path:
            node = node.names.get(name or "") if node else None
        return node

    def _below(
        self, node: _Node, keys: Sequence[tuple[Key, ...]], path: Path, context: Context
    ) -> Iterator[Values]:
        if any(not rule.function for _, rule in node.rules):
            found = self._evaluate(node, context, ())
            for choices in keys:
                found = select(found, choices)
            yield found
        if not keys:
            yield from self._package(node, path, context)
            return
        for key in keys[0]:
            if key not in node.names and not node.rules:
                bound(len(some) for some in keys[1:])
                yield frozenset(Place("data", (*path, key, *rest)) for rest in product(*keys[1:]))
        for name, inner in node.names.items():
            if name in keys[0] or EACH in keys[0]:
                yield from self._below(inner, keys[1:], (*path, name), context)

    def _package(self, node: _Node, path: Path, context: Context) -> Iterator[Values]:
        if not node.rules:
            yield frozenset([Place("data", path)])
        below = {
            name: union(self._below(child, (), (*path, name), context))
            for name, child in node.names.items()
        }
        if below:
            yield frozenset([Box(members=tuple(sorted(below.items())))])

    # The values of rules.

    def _evaluate(self, node: _Node, context: Context, arguments: tuple[Values, ...]) -> Values:
        known = (id(node), context, arguments)
        if known not in self._known:
            self._known[known] = None
            self._known[known] = self._rules(node, context, arguments)
        found = self._known[known]
        if found is None:
            msg = f"recursion in {node.rules[0][1].name}"
            raise Unreadable(msg)
        return found

    def _rules(self, node: _Node, context: Context, arguments: tuple[Values, ...]) -> Values:
        return union(
            self._clause(
                node, Asker(module, rule.name, rule.number), rule, clause, context, arguments
            )
            for module, rule in node.rules
            for clause in rule.clauses
        )

    def _clause(
        self,
        node: _Node,
        asker: Asker,
        rule: Rule,
        clause: Clause,
        context: Context,
        arguments: tuple[Values, ...],
    ) -> Values:
        self._evaluations += 1
        if self._evaluations > _EVALUATIONS:
            msg = f"more than {_EVALUATIONS} evaluations"
            raise Unreadable(msg)
        try:
            frame = Frame(self, clause, asker, context, arguments)
            return _evaluated(frame, node, rule, mocked=bool(context.mocks))
        except (Unreadable, RecursionError):
            if self.stopped is None:  # the innermost rule is the one at fault
                self.stopped = Spot(asker.module, asker.rule, asker.number)
            raise


def _evaluated(frame: Frame, node: _Node, rule: Rule, *, mocked: bool) -> Values:
    tail = rule.path[len(_fixed(rule.path)) :]
    for term in tail:
        frame.mention(term)
    found = frame.read()
    if rule.member:
        frame.reader.need(found, Level.WHOLE, "put into a set")
        found = frozenset([Box(rest=found)])
    elif node.crowded or _collides(rule, node, mocked=mocked) or not frame.settled(tail):
        frame.reader.need(found, Level.WHOLE, "compared where a rule has two values")
    for term in reversed(tail):
        found = frame.reader.member(frame.value(term), found)
    return found


def _fixed(path: Sequence[Term]) -> list[str]:
    """Return the constant names that a rule's path begins with."""
    names = []
    for term in path:
        if not isinstance(term, Scalar) or term.text is None:
            break
        names.append(term.text)
    return names


def _crowd(node: _Node, *, above: bool) -> None:
    rules = any(not rule.function for _, rule in node.rules)
    node.crowded = above or (rules and bool(node.names))
    for below in node.names.values():
        _crowd(below, above=above or rules)


def _collides(rule: Rule, node: _Node, *, mocked: bool) -> bool:
    """Return whether a sibling rule may give the same key, or the same arguments, another value.

    Where functions are `mocked`, their results cannot prove two rules exclusive.
    """
    return not rule.default and any(
        other is not rule and not other.default and (mocked or not exclude(rule, other))
        for _, other in node.rules
    )


def _overlaps(path: Path, keys: Sequence[tuple[Key, ...]]) -> bool:
    return all(EACH in some or key in some for key, some in zip(path, keys, strict=False))
