"""Typed syntax trees of Rego modules, read from the JSON of OPA's compiled trees.

Invariant: nothing is skipped. An unknown node, or an unknown member of a node, raises Unreadable,
since it might change what a policy reads. Compiled trees have no nested calls, no `some`, no
imports: calls come in a row, with their output as the last argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Json = Mapping[str, Any]
_TERM = {"type", "value", "location"}
_EXPR = {"index", "terms", "negated", "with", "generated", "location"}
_RULE = {"head", "body", "else", "default", "annotations", "location"}
_HEAD = {"name", "ref", "args", "key", "value", "assign", "location"}
_MODULE = {"package", "imports", "rules", "comments", "annotations"}
_EVERY = {"key", "value", "domain", "body", "location"}
_LOGIC = {"type", "lhs", "rhs", "explicit_lhs", "explicit_rhs", "location"}
_NOT = {"type", "body", "explicit_body", "location"}


@dataclass(frozen=True, slots=True)
class Spot:
    """The rule at which an analysis gave up, as far as it is known."""

    module: str
    rule: str = ""
    number: int | None = None  # of the rule within the module
    row: int | None = None  # of the rule, where locations are known

    def __str__(self) -> str:
        return self.module if self.row is None else f"{self.module}:{self.row}"


class Unreadable(Exception):
    """A syntax tree holds something unknown, at a spot if that is known."""

    def __init__(self, reason: str, spot: Spot | None = None) -> None:
        super().__init__(reason)
        self.spot = spot


@dataclass(frozen=True, slots=True)
class Var:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant."""

    kind: str  # string, number, boolean or null
    value: str

    @property
    def text(self) -> str | None:
        """The constant as a key of an object, None unless it is a string."""
        return self.value if self.kind == "string" else None


@dataclass(frozen=True, slots=True)
class Ref:
    """`head[part][part]…`."""

    head: Term
    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """An array or a set, element by element."""

    kind: Literal["array", "set"]
    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object, member by member."""

    pairs: tuple[tuple[Term, Term], ...]


@dataclass(frozen=True, slots=True)
class Closure:
    """A comprehension; `key` is None unless it makes an object."""

    kind: Literal["array", "set", "object"]
    key: Term | None
    value: Term
    body: Body


Term = Var | Scalar | Ref | Items | Pairs | Closure


@dataclass(frozen=True, slots=True)
class Call:
    """A builtin, or a function of a policy, with its arguments and perhaps its output."""

    operator: tuple[str, ...]
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """`every key, value in domain { body }`."""

    key: Var | None
    value: Var
    domain: Term
    body: Body


@dataclass(frozen=True, slots=True)
class Logic:
    """`lhs and rhs`, `lhs or rhs`, `not { body }`: each operand is a body with its own scope."""

    kind: Literal["and", "or", "not"]
    operands: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class With:
    """`with target as value`."""

    target: Ref
    value: Term


@dataclass(frozen=True, slots=True)
class Expr:
    """One line of a body."""

    what: Term | Call | Every | Logic
    negated: bool = False
    withs: tuple[With, ...] = ()


Body = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """A rule's head and body, or one of its `else`."""

    arguments: tuple[Term, ...]
    value: Term
    body: Body


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the place of its value below `data`, and its clauses."""

    name: str
    path: tuple[Term, ...]
    function: bool
    member: bool  # its values are elements of a set
    default: bool
    clauses: tuple[Clause, ...]
    number: int  # within the module


@dataclass(frozen=True, slots=True)
class Module:
    """What one file declares."""

    name: str
    rules: tuple[Rule, ...]
    package: tuple[str, ...] = ()  # below `data`


_DOCUMENTS = (Ref(Var("input"), ()), Ref(Var("data"), ()))


def read_module(name: str, tree: Json) -> Module:
    """Parse a module of `GET /v1/policies`. Raises Unreadable."""
    rules: list[Rule] = []
    try:
        _known(tree, _MODULE, "module")
        package = _package(tree)
        for number, rule in enumerate(tree.get("rules") or []):
            rules.append(_rule(rule, package, number))
        return Module(name, tuple(rules), tuple(_shown(part) for part in package))
    except Unreadable as error:
        msg = f"{name}: {error}"
        raise Unreadable(msg, Spot(name, number=len(rules))) from error
    except RecursionError as error:
        msg = "the policies are nested too deeply"
        raise Unreadable(msg, Spot(name, number=len(rules))) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        msg = f"{name}: malformed tree ({type(error).__name__}: {error})"
        raise Unreadable(msg, Spot(name, number=len(rules))) from error


def _package(tree: Json) -> tuple[Term, ...]:
    if tree.get("imports"):  # the compiler spells them out
        msg = "not compiled: it has imports"
        raise Unreadable(msg)
    return _path(tree["package"]["path"])[1:]


def _known(node: Json, members: set[str], what: str) -> None:
    if unknown := sorted(node.keys() - members):
        msg = f"unknown {what} member {', '.join(unknown)}"
        raise Unreadable(msg)


def _path(parts: list[Json]) -> tuple[Term, ...]:
    """Read a ref whose first part is a name and not a variable."""
    _known(parts[0], _TERM, "term")
    return (Scalar("string", parts[0]["value"]), *map(_term, parts[1:]))


def _rule(rule: Json, package: tuple[Term, ...], number: int) -> Rule:
    head = rule["head"]
    path = _path(head.get("ref") or [{"value": head["name"]}])
    member = "key" in head and "value" not in head
    return Rule(
        name=".".join(_shown(part) for part in path),
        path=package + path,
        function="args" in head,
        member=member,
        default=rule.get("default", False),
        clauses=tuple(_clauses(rule, member=member)),
        number=number,
    )


def _shown(part: Term) -> str:
    return part.value if isinstance(part, Scalar) else "[_]"


def _clauses(rule: Json, *, member: bool) -> list[Clause]:
    clauses = []
    link: Json | None = rule
    while link is not None:
        _known(link, _RULE, "rule")
        head = link["head"]
        _known(head, _HEAD, "rule head")
        arguments = tuple(map(_term, head.get("args", rule["head"].get("args", ()))))
        value = _term(head["key" if member else "value"])
        clauses.append(Clause(arguments, value, _body(link["body"])))
        link = link.get("else")
    return clauses


def _body(body: list[Json]) -> Body:
    return tuple(map(_expr, body))


def _expr(expr: Json) -> Expr:
    _known(expr, _EXPR, "expression")
    withs = tuple(map(_with, expr.get("with", ())))
    negated = bool(expr.get("negated"))
    match what := _what(expr["terms"]):
        case Logic("not", ((Expr(inner, False, ()),),)) if not negated:
            # `not x` in trees of OPA versions in which bodies cannot be negated.
            return Expr(inner, negated=True, withs=withs)
        case _:
            return Expr(what, negated, withs)


def _with(modifier: Json) -> With:
    _known(modifier, {"target", "value", "location"}, "with")
    target = _term(modifier["target"])
    if not isinstance(target, Ref):
        msg = "a with whose target is no reference"
        raise Unreadable(msg)
    return With(target, _term(modifier["value"]))


def _what(terms: Any) -> Term | Call | Every | Logic:  # noqa: ANN401 - a list or an object
    if isinstance(terms, list):
        operator = [part["value"] for part in terms[0]["value"]]
        if not operator or not all(isinstance(part, str) for part in operator):
            msg = "a call of what is no name"
            raise Unreadable(msg)
        return Call(tuple(operator), tuple(map(_term, terms[1:])))
    match terms.get("type"):
        case "and" | "or" | "not" as kind:
            return _logic(kind, terms)
        case _:
            return _every(terms) if "domain" in terms else _term(terms)


def _logic(kind: Literal["and", "or", "not"], node: Json) -> Logic:
    _known(node, _NOT if kind == "not" else _LOGIC, kind)
    names = ("body",) if kind == "not" else ("lhs", "rhs")
    return Logic(kind, tuple(_body(_list(node[name])) for name in names))


def _every(node: Json) -> Every:
    _known(node, _EVERY, "every")
    key = _variable(node["key"]) if node.get("key") else None
    return Every(key, _variable(node["value"]), _term(node["domain"]), _body(node["body"]))


def _variable(term: Json) -> Var:
    found = _term(term)
    if not isinstance(found, Var):
        msg = "an every whose key or value is no variable"
        raise Unreadable(msg)
    return found


def _term(term: Json) -> Term:
    _known(term, _TERM, "term")
    value = term.get("value")
    match term["type"]:
        case "var":
            document = Ref(Var(_name(value)), ())
            return document if document in _DOCUMENTS else document.head
        case "string":
            return Scalar("string", _name(value))
        case "number" | "boolean" | "null" as kind:
            return Scalar(kind, str(value))
        case "array" | "set" as kind:
            return Items(kind, tuple(map(_term, _list(value))))
        case kind:
            return _compound(kind, term)


def _compound(kind: str, term: Json) -> Term:
    value = term["value"]
    match kind:
        case "ref":
            head, *parts = map(_term, _list(value))
            start = head.head if isinstance(head, Ref) and head in _DOCUMENTS else head
            return Ref(start, tuple(parts))
        case "object":
            return Pairs(tuple((_term(key), _term(member)) for key, member in _list(value)))
        case "arraycomprehension" | "setcomprehension" | "objectcomprehension":
            return _closure(kind, value)
        case other:
            msg = f"unknown node {other!r}"
            raise Unreadable(msg)


def _name(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} as a name"
        raise TypeError(msg)
    return value


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - checked here
    if not isinstance(value, list):
        msg = f"{value!r} in place of a list"
        raise TypeError(msg)
    return value


def _closure(kind: str, node: Json) -> Closure:
    _known(node, {"key", "value", "term", "body"}, "comprehension")
    body = _body(node["body"])
    if kind == "objectcomprehension":
        return Closure("object", _term(node["key"]), _term(node["value"]), body)
    return Closure("array" if kind.startswith("array") else "set", None, _term(node["term"]), body)
