"""What is looked at in a rule's body: its expressions in order, and what is shown of each. Pure.

It reads trees as OPA parsed them, with locations. What it does not know it leaves alone: a body
less is watched then, and that is all.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Node = Mapping[str, Any]

_CLOSURES: Final = frozenset({"arraycomprehension", "setcomprehension", "objectcomprehension"})
_ROOTS: Final = frozenset({"input", "data"})
_TERMS: Final = 4  # of one expression
_LONGEST: Final = 100  # characters of a term
_WILDCARD: Final = "$"  # what OPA calls `_`
_COMPARING: Final = frozenset(
    {"eq", "equal", "neq", "lt", "lte", "gt", "gte", "startswith", "endswith", "contains"}
)


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a module: where it begins (row and column from 1, as OPA counts) and its text."""

    row: int
    column: int
    text: str


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


def package_of(tree: Node) -> tuple[str, ...]:
    """Return the parts of a module's package."""
    return tuple(str(term["value"]) for term in tree["package"]["path"][1:])


def rule_names(tree: Node) -> frozenset[str]:
    """Return what a module's rules are called."""
    return frozenset(_name(rule["head"]) for rule in tree.get("rules") or ())


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
        self._texts = frozenset(_strings(rule))
        self._found: list[Body] = []

    def bodies(self) -> list[Body]:
        """Return its bodies, and those within."""
        way: Node | None = self._rule
        while way is not None:
            head = way["head"]
            bound = self._body(way["body"], self._vars(head.get("args")))
            for term in (head.get("ref"), head.get("key"), head.get("value")):
                self._within(term, bound)
            way = way.get("else")
        return self._found

    def _body(self, expressions: Iterable[Node], bound: tuple[str, ...]) -> tuple[str, ...]:
        """Note a body and those within it; return what is bound at its end."""
        seen: list[Expression] = []
        for expression in expressions:
            if (place := _text(expression)) is not None and _is_written(expression, place):
                seen.append(Expression(place, bound, self._terms(expression, bound)))
            self._within(expression.get("terms"), bound)
            bound = self._after(expression, bound)
        if seen:
            self._found.append(Body(self._title, self._row, tuple(seen), bound, self._texts))
        return bound

    def _within(self, node: Any, bound: tuple[str, ...]) -> None:  # noqa: ANN401 - any JSON
        """Note the bodies of what lies within an expression or a term."""
        match node:
            case {"type": str(kind), "value": dict(value)} if kind in _CLOSURES:
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
            case {"domain": _}:
                return bound
            case {"symbols": symbols} if all(s.get("type") == "var" for s in symbols):
                return bound  # declared, and no more
        return _joined(bound, self._vars(_operands(terms)))

    def _vars(self, node: object) -> tuple[str, ...]:
        """Return the variables of a term that are not hidden in a closure, in order."""
        return tuple(dict.fromkeys(v for v in _variables(node) if v not in self._names))

    def _terms(self, expression: Node, bound: Collection[str]) -> tuple[str, ...]:
        """Return the terms whose values tell why an expression holds or does not."""
        texts = (
            place.text
            for term in _told(expression.get("terms"))
            if self._is_known(term, bound) and (place := _text(term)) is not None
        )
        fit = (t for t in texts if t not in _ROOTS and "\n" not in t and len(t) <= _LONGEST)
        return tuple(dict.fromkeys(fit))[:_TERMS]

    def _is_known(self, term: Node, bound: Collection[str]) -> bool:
        """Tell whether a term has a value before its expression, and one that says something."""
        variables = {*_variables(term)}
        if _has_closure(term) or any(v.startswith(_WILDCARD) for v in _every_variable(term)):
            return False
        return bool(variables) and variables != {"data"} and variables <= {*bound, *self._names}


def title(head: Node) -> str:
    """Return a rule's name as people write it: `annotations["a/b"]`."""
    found = ""
    for part in head.get("ref") or [{"type": "var", "value": head.get("name", "")}]:
        value = part.get("value")
        if not found:
            found = str(value)
        elif part.get("type") == "string":
            found += f".{value}" if str(value).isidentifier() else f'["{value}"]'
        elif part.get("type") == "var":
            found += f"[{value}]"
    return found


def _name(head: Node) -> str:
    ref = head.get("ref") or [{"value": head.get("name", "")}]
    return str(ref[0].get("value"))


def _operands(terms: object) -> list[Any]:
    """Return what an expression is about, without its operator."""
    match terms:
        case [_, *operands]:
            return operands
        case {"symbols": list(symbols)}:
            return symbols
    return [terms]


def _told(terms: Any) -> Iterator[Node]:  # noqa: ANN401 - any JSON
    """Yield the terms of an expression that are worth a look: references, calls, and operands."""
    match terms:
        case {"symbols": [{"value": [_, *_, domain]}]}:
            yield from _below([domain])
        case [{"value": [{"value": str(operator)}]}, *operands]:
            if operator in _COMPARING:
                yield from (one for one in operands if one["type"] == "var")
            yield from _below(operands)
        case _:
            yield from _below(_operands(terms))


def _below(terms: Iterable[Any]) -> Iterator[Node]:
    for term in terms:
        match term:
            case {"type": "ref"}:
                yield term
            case {"type": "call", "value": [_, *operands]}:
                yield term
                # What a function is given says less than what it makes of it.
                yield from _below(operands)


def _variables(node: object) -> Iterator[str]:
    """Yield the variables of a term in order, without those of closures, operators and `_`."""
    return (name for name in _every_variable(node) if not name.startswith(_WILDCARD))


def _every_variable(node: object) -> Iterator[str]:
    match node:
        case {"type": str(kind)} if kind in _CLOSURES:
            return
        case {"type": "var", "value": str(name)}:
            yield name
        case {"type": "call", "value": [_, *operands]}:
            yield from _every_variable(operands)
        case dict():
            for name, member in node.items():
                if name != "location":
                    yield from _every_variable(member)
        case list():
            for member in node:
                yield from _every_variable(member)


def _has_closure(node: object) -> bool:
    match node:
        case {"type": str(kind)} if kind in _CLOSURES:
            return True
        case dict():
            return any(_has_closure(member) for member in node.values())
        case list():
            return any(map(_has_closure, node))
    return False


def _strings(node: object) -> Iterator[str]:
    match node:
        case {"type": "string", "value": str(value)}:
            yield value
        case dict():
            for name, member in node.items():
                if name != "location":
                    yield from _strings(member)
        case list():
            for member in node:
                yield from _strings(member)


def _text(node: Node) -> Text | None:
    """Return where a node stands and its text, None where that is not told."""
    location = node.get("location")
    if not isinstance(location, Mapping) or not location.get("text"):
        return None
    text = base64.b64decode(location["text"]).decode("utf-8", "replace")
    return Text(int(location["row"]), int(location["col"]), text)


def _is_written(expression: Node, place: Text) -> bool:
    """Tell whether an expression stands there: a rule without a body has one that nobody wrote."""
    terms = expression.get("terms")
    made = isinstance(terms, Mapping) and terms.get("type") == "boolean"
    return not made or place.text in ("true", "false")


def _joined(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
