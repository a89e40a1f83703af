"""What is looked at in a rule's body: its expressions in order, and what is shown of each. Pure.

It reads trees as OPA parsed them, with locations. What it does not know it leaves alone: a body
less is watched then, and that is all.
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
    operands,
    strings,
    title,
    variables,
    worth_a_look,
)

_ROOTS: Final = frozenset({"input", "data"})
_TERMS: Final = 4  # of one expression
_LONGEST: Final = 100  # characters of a term


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression of a body, what is bound before it, and terms whose value it sees."""

    place: Text
    bound: tuple[str, ...]
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """The expressions of one body: of a rule, of a function, or of what lies within one."""

    rule: str
    row: int  # of the rule
    expressions: tuple[Expression, ...]
    bound: tuple[str, ...]  # at its end
    texts: frozenset[str]  # constants of its rule
    alone: bool = False  # it needs nothing from elsewhere: the body of a rule that is no function


def package_of(tree: Node) -> tuple[str, ...]:
    """Return the parts of a module's package."""
    return tuple(str(term["value"]) for term in tree["package"]["path"][1:])


def rule_names(tree: Node) -> frozenset[str]:
    """Return what a module's rules are called."""
    return frozenset(name_of(rule["head"]) for rule in tree.get("rules") or ())


def aliases(tree: Node) -> frozenset[str]:
    """Return the names that a module's imports bring."""
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
    """One rule, with all of its ways."""

    def __init__(self, rule: Node, names: Collection[str]) -> None:
        self._rule = rule
        self._names = frozenset(names) | _ROOTS
        self._title = title(rule["head"])
        self._row = int(rule["head"]["location"]["row"])
        self._texts = frozenset(strings(rule))
        self._found: list[Body] = []

    def bodies(self) -> list[Body]:
        """Return its bodies, and those within."""
        way: Node | None = self._rule
        while way is not None:
            head = way["head"]
            alone = way is self._rule and not head.get("args")
            bound = self._body(way["body"], self._vars(head.get("args")), alone=alone)
            for term in (head.get("ref"), head.get("key"), head.get("value")):
                self._within(term, bound)
            way = way.get("else")
        return self._found

    def _body(
        self, expressions: Iterable[Node], bound: tuple[str, ...], *, alone: bool = False
    ) -> tuple[str, ...]:
        """Note a body and those within it; return what is bound at its end."""
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
        """Note the bodies of what lies within an expression or a term."""
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
        """Return what is bound once an expression holds."""
        terms = expression.get("terms")
        match terms:
            case _ if expression.get("negated"):
                return bound
            case {"domain": _} | {"type": "and" | "or" | "not"}:
                return bound  # what is bound within holds there alone
            case {"symbols": symbols} if all(s.get("type") == "var" for s in symbols):
                return bound  # declared, and no more
        return _joined(bound, self._vars(operands(terms)))

    def _vars(self, node: object) -> tuple[str, ...]:
        """Return the variables of a term that are not hidden in a closure, in order."""
        return tuple(dict.fromkeys(v for v in variables(node) if v not in self._names))

    def _terms(self, expression: Node, bound: Collection[str]) -> tuple[str, ...]:
        """Return the terms whose values tell why an expression holds or does not."""
        texts = (
            place.text
            for term in worth_a_look(expression.get("terms"))
            if self._is_known(term, bound) and (place := located(term)) is not None
        )
        fit = (t for t in texts if t not in _ROOTS and "\n" not in t and len(t) <= _LONGEST)
        return tuple(dict.fromkeys(fit))[:_TERMS]

    def _is_known(self, term: Node, bound: Collection[str]) -> bool:
        """Tell whether a term has a value before its expression, and one that says something."""
        known = {*variables(term)}
        if has_closure(term) or any(v.startswith(WILDCARD) for v in every_variable(term)):
            return False
        return bool(known) and known != {"data"} and known <= {*bound, *self._names}


def _is_written(expression: Node, place: Text) -> bool:
    """Tell whether an expression stands there: a rule without a body has one that nobody wrote."""
    terms = expression.get("terms")
    made = isinstance(terms, Mapping) and terms.get("type") == "boolean"
    return not made or place.text in ("true", "false")


def _joined(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
