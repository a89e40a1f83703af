"""The expressions of rule bodies in order, and the terms to show of each. Pure.

It reads syntax trees of OPA's parser, with locations. Unknown nodes are skipped: that body
is not watched, without other effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.inspect.why.terms import (
    CLOSURES,
    WILDCARD,
    Node,
    Text,
    every_variable,
    has_closure,
    located,
    name_of,
    notable_terms,
    operands,
    strings,
    title,
    variables,
)

_ROOTS: Final = frozenset({"input", "data"})
_TERMS: Final = 4  # of one expression
_LONGEST: Final = 100  # characters of a term


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression of a body, the variables bound before it, and the terms that it reads."""

    place: Text
    bound: tuple[str, ...]
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """The expressions of one body: of a rule, of a function, or of a closure within one."""

    rule: str
    row: int  # of the rule
    expressions: tuple[Expression, ...]
    bound: tuple[str, ...]  # at its end
    texts: frozenset[str]  # constants of its rule
    alone: bool = False  # independent of callers: the body of a rule that is no function


def package_of(tree: Node) -> tuple[str, ...]:
    """Return the parts of a module's package."""
    return tuple(str(term["value"]) for term in tree["package"]["path"][1:])


def rule_names(tree: Node) -> frozenset[str]:
    """Return the names of a module's rules."""
    return frozenset(name_of(rule["head"]) for rule in tree.get("rules") or ())


def aliases(tree: Node) -> frozenset[str]:
    """Return the names that a module imports."""
    found = set()
    for one in tree.get("imports") or ():
        found.add(str(one.get("alias") or one["path"]["value"][-1]["value"]))
    return frozenset(found)


def bodies(tree: Node, names: Collection[str]) -> list[Body]:
    """Return the bodies of a module; `names` are those of its package's rules and its imports."""
    found: list[Body] = []
    for rule in tree.get("rules") or ():
        if not rule.get("default"):
            found += _Rule(rule, names).bodies()
    return found


class _Rule:
    """One rule, with its `else` branches."""

    def __init__(self, rule: Node, names: Collection[str]) -> None:
        self._rule = rule
        self._names = frozenset(names) | _ROOTS
        self._title = title(rule["head"])
        self._row = int(rule["head"]["location"]["row"])
        self._texts = frozenset(strings(rule))
        self._found: list[Body] = []

    def bodies(self) -> list[Body]:
        """Return its bodies, and those within."""
        branch: Node | None = self._rule
        while branch is not None:
            head = branch["head"]
            alone = branch is self._rule and not head.get("args")
            bound = self._body(branch["body"], self._vars(head.get("args")), alone=alone)
            for term in (head.get("ref"), head.get("key"), head.get("value")):
                self._within(term, bound)
            branch = branch.get("else")
        return self._found

    def _body(
        self, expressions: Iterable[Node], bound: tuple[str, ...], *, alone: bool = False
    ) -> tuple[str, ...]:
        """Add a body and those within it; return the variables bound at its end."""
        seen: list[Expression] = []
        for expression in expressions:
            if (place := located(expression)) is not None and _is_written(expression, place):
                seen.append(Expression(place, bound, self._terms(expression, bound)))
            self._within(expression.get("terms"), bound)
            bound = self._after(expression, bound)
        if seen:
            texts, row = self._texts, self._row
            self._found.append(Body(self._title, row, tuple(seen), bound, texts, alone=alone))
        return bound

    def _within(self, node: Any, bound: tuple[str, ...]) -> None:  # noqa: ANN401 - any JSON
        """Add the bodies within an expression or a term."""
        match node:
            case {"type": str(kind), "value": dict(value)} if kind in CLOSURES:
                inside = self._body(value["body"], bound)
                for part in ("key", "value", "term"):
                    self._within(value.get(part), inside)
            case {"domain": domain, "body": body}:
                self._within(domain, bound)
                given = self._vars([node.get("key"), node.get("value")])
                self._body(body, _joined(bound, given))
            case dict():
                for name, member in node.items():
                    if name != "location":
                        self._within(member, bound)
            case list():
                for member in node:
                    self._within(member, bound)

    def _after(self, expression: Node, bound: tuple[str, ...]) -> tuple[str, ...]:
        """Return the variables bound after an expression."""
        terms = expression.get("terms")
        match terms:
            case _ if expression.get("negated"):
                return bound
            case {"domain": _} | {"type": "and" | "or" | "not"}:
                return bound  # a closure binds only within
            case {"symbols": symbols} if all(s.get("type") == "var" for s in symbols):
                return bound  # declared, not bound
        return _joined(bound, self._vars(operands(terms)))

    def _vars(self, node: object) -> tuple[str, ...]:
        """Return the variables of a term that are not hidden in a closure, in order."""
        return tuple(dict.fromkeys(v for v in variables(node) if v not in self._names))

    def _terms(self, expression: Node, bound: Collection[str]) -> tuple[str, ...]:
        """Return the terms whose values explain why an expression holds or not."""
        texts = (
            place.text
            for term in notable_terms(expression.get("terms"))
            if self._is_known(term, bound) and (place := located(term)) is not None
        )
        fit = (t for t in texts if t not in _ROOTS and "\n" not in t and len(t) <= _LONGEST)
        return tuple(dict.fromkeys(fit))[:_TERMS]

    def _is_known(self, term: Node, bound: Collection[str]) -> bool:
        """Return whether a term has a value before its expression that is worth showing."""
        known = {*variables(term)}
        if has_closure(term) or any(v.startswith(WILDCARD) for v in every_variable(term)):
            return False
        return bool(known) and known != {"data"} and known <= {*bound, *self._names}


def _is_written(expression: Node, place: Text) -> bool:
    """Return whether the text has an expression there: a bodiless rule has an implicit one."""
    terms = expression.get("terms")
    made = isinstance(terms, Mapping) and terms.get("type") == "boolean"
    return not made or place.text in ("true", "false")


def _joined(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
