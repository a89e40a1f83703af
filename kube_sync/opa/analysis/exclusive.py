"""Proves that two rules of one name are mutually exclusive: never both defined.

Invariant: rules reported as exclusive are so for any data. Only tests that every evaluation of
the body makes count: of a value that both bodies read, by constant keys, without `with`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_sync.opa.analysis import builtins
from kube_sync.opa.analysis.syntax import (
    Call,
    Clause,
    Every,
    Expr,
    Items,
    Logic,
    Ref,
    Rule,
    Scalar,
    Term,
    Var,
)

_Name = tuple[str, ...]  # the tested reference, spelt alike wherever it is the same
_TYPES = frozenset(name for name in builtins.SCALAR if name.startswith("is_"))


def exclude(one: Rule, other: Rule) -> bool:
    """Return whether no data makes both rules defined."""
    return all(
        _disjoint(dict(_tests(a)), dict(_tests(b))) for a in one.clauses for b in other.clauses
    )


def _disjoint(one: dict[_Name, frozenset[str]], other: dict[_Name, frozenset[str]]) -> bool:
    return any(not one[name] & other[name] for name in one.keys() & other.keys())


def _tests(clause: Clause) -> Iterator[tuple[_Name, frozenset[str]]]:
    """Yield the tested references, with the only values for which the body holds."""
    names: dict[str, _Name] = {
        term.name: ("argument", str(number))
        for number, term in enumerate(clause.arguments)
        if isinstance(term, Var)
    }
    for number, term in enumerate(clause.arguments):
        if isinstance(term, Scalar):
            yield from _equal(("argument", str(number)), term)
    for _ in clause.body:  # repeated: an alias may be defined after its use
        names |= dict(_aliases(clause, names))
    for line in clause.body:
        if not line.withs:
            yield from _test(line, names)


def _aliases(clause: Clause, names: dict[str, _Name]) -> Iterator[tuple[str, _Name]]:
    for line in clause.body:
        match line:
            case Expr(Call(("eq",), (Var(name), Ref() as ref)), False, ()):
                if (found := _spelt(ref, names)) and name not in names:
                    yield name, found


def _test(line: Expr, names: dict[str, _Name]) -> Iterator[tuple[_Name, frozenset[str]]]:
    match line.what:
        case Call(operator, arguments):
            spelt = [_spelt(term, names) for term in arguments]
            if ".".join(operator) not in builtins.IMPURE and all(spelt):
                yield _call(operator, [str(name) for name in spelt], holds=not line.negated)
            if not line.negated:
                yield from _narrows(line.what, names)
        case Every() | Logic():
            return
        case term:
            if found := _spelt(term, names):
                yield ("holds", *found), _holds(not line.negated)


def _narrows(call: Call, names: dict[str, _Name]) -> Iterator[tuple[_Name, frozenset[str]]]:
    """Yield the only values for which a call holds."""
    match call:
        case Call(("eq",), (term, Scalar() as constant) | (Scalar() as constant, term)):
            if found := _spelt(term, names):
                yield from _equal(found, constant)
        case Call(("internal", "member_2"), (term, Items(_, items))):
            constants = [item for item in items if isinstance(item, Scalar)]
            if (found := _spelt(term, names)) and len(constants) == len(items):
                yield found, frozenset(map(_constant, constants))
        case Call((kind,), (term,)) if kind in _TYPES:
            if found := _spelt(term, names):
                yield ("type", *found), frozenset([kind])


def _equal(name: _Name, constant: Scalar) -> Iterator[tuple[_Name, frozenset[str]]]:
    yield name, frozenset([_constant(constant)])
    yield _call(("eq",), [str(name), str(_spelt(constant, {}))], holds=True)


def _call(
    operator: tuple[str, ...], arguments: list[str], *, holds: bool
) -> tuple[_Name, frozenset[str]]:
    if operator == ("neq",):
        operator, holds = ("eq",), not holds
    return ("call", ".".join(operator), *arguments), _holds(holds)


def _holds(holds: bool) -> frozenset[str]:  # noqa: FBT001 - an answer, not a switch
    return frozenset(["yes" if holds else "no"])


def _constant(term: Scalar) -> str:
    """Return the text of a constant; a number has many spellings, so any two may be equal."""
    return "a number" if term.kind == "number" else f"{term.kind} {term.value}"


def _spelt(term: Term, names: dict[str, _Name]) -> _Name | None:
    match term:
        case Scalar():
            return ("constant", term.kind, term.value)
        case Items(kind, items) if all(isinstance(item, Scalar) for item in items):
            return ("constant", kind, str(items))
        case Var(name):
            return names.get(name)
        case Ref(Var("input" | "data" as root), parts):
            start: _Name | None = (root,)
        case Ref(Var(name), parts):
            start = names.get(name)
        case _:
            return None
    keys = [part.text for part in parts if isinstance(part, Scalar) and part.text is not None]
    return (*start, *keys) if start and len(keys) == len(parts) else None
