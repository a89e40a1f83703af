"""Iterates over the terms of a rule, and resolves its local variables to what they stand for.

Invariant: no term is left out, whether it lies in a head, a body, a closure or a `with`. Local
variables of compiled trees are unique within a module, so one table for a rule is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_sync.opa.analysis.syntax import (
    Body,
    Call,
    Closure,
    Every,
    Expr,
    Items,
    Logic,
    Pairs,
    Ref,
    Rule,
    Scalar,
    Term,
    Var,
)

_DEPTH = 20  # references that lead to one another

Path = tuple[str | None, ...]  # constant keys, None for any other


def nodes_of(rule: Rule) -> Iterator[Term | Call]:
    """Yield all terms and calls of a rule, outer ones first."""
    for part in rule.path:
        yield from _nodes(part)
    for clause in rule.clauses:
        for term in (*clause.arguments, clause.value):
            yield from _nodes(term)
        yield from _of_body(clause.body)


def locals_of(nodes: Iterator[Term | Call]) -> dict[str, Term]:
    """Return the terms that local variables are equal to, by the variables' names."""
    found: dict[str, Term] = {}
    for node in nodes:
        match node:
            case Call(("eq",), (Var(name), term) | (term, Var(name))):
                found.setdefault(name, term)
    return found


def resolved(term: Term, known: Mapping[str, Term]) -> Term:
    """Return a term with the local variable at its beginning replaced by what it is equal to."""
    for _ in range(_DEPTH):
        match term:
            case Var(name) if name in known:
                term = known[name]
            case Ref(Var(name), parts) if isinstance(start := known.get(name), Var | Ref):
                head = start if isinstance(start, Ref) else Ref(start, ())
                term = Ref(head.head, (*head.parts, *parts))
            case _:
                break
    return term


def reference(node: Term | Call, known: Mapping[str, Term]) -> tuple[str, Path] | None:
    """Return the variable and the keys of a reference, also of one by `object.get`."""
    match node:
        case Ref():
            term: Term = node
            more: tuple[Term, ...] = ()
        case Call(("object", "get"), (term, Items("array", more), *_)):
            pass
        case Call(("object", "get"), (term, Scalar() as key, *_)):
            more = (key,)
        case _:
            return None
    match resolved(term, known):
        case Ref(Var(name), parts):
            return name, tuple(_key(part, known) for part in (*parts, *more))
        case Var(name):
            return name, tuple(_key(part, known) for part in more)
        case _:
            return None


def _key(part: Term, known: Mapping[str, Term]) -> str | None:
    found = resolved(part, known)
    return found.text if isinstance(found, Scalar) else None


def _nodes(term: Term) -> Iterator[Term | Call]:
    yield term
    match term:
        case Ref(head, parts):
            for part in (head, *parts):
                yield from _nodes(part)
        case Items(items=items):
            for part in items:
                yield from _nodes(part)
        case Pairs(pairs):
            for pair in pairs:
                for part in pair:
                    yield from _nodes(part)
        case Closure(_, key, value, body):
            if key is not None:
                yield from _nodes(key)
            yield from _nodes(value)
            yield from _of_body(body)
        case _:
            return


def _of_body(body: Body) -> Iterator[Term | Call]:
    for line in body:
        for modifier in line.withs:
            yield from _nodes(modifier.target)
            yield from _nodes(modifier.value)
        yield from _of_line(line)


def _of_line(line: Expr) -> Iterator[Term | Call]:
    match line.what:
        case Call(arguments=arguments) as call:
            yield call
            for argument in arguments:
                yield from _nodes(argument)
        case Every(domain=domain, body=body):
            yield from _nodes(domain)
            yield from _of_body(body)
        case Logic(operands=operands):
            for body in operands:
                yield from _of_body(body)
        case term:
            yield from _nodes(term)
