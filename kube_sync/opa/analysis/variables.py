"""The variables of a term.

Invariant: none is left out, also none of a closure within it; `input` and `data` are no variables.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    Term,
    Var,
)


def names_of(term: Term) -> frozenset[str]:
    """Return the variables of a term, including those of its closures."""
    return frozenset(_walk(term)) - {"input", "data"}


def pattern_names(term: Term) -> Iterator[str]:
    """Yield the variables that a pattern (array or object) binds."""
    for part in _below(term):
        if isinstance(part, Var):
            yield part.name
        yield from pattern_names(part)


def _below(term: Term) -> tuple[Term, ...]:
    match term:
        case Items(items=items):
            return items
        case Pairs(pairs):
            return tuple(value for _, value in pairs)
        case _:
            return ()


def _walk(term: Term) -> Iterator[str]:
    if isinstance(term, Var):
        yield term.name
    for part in _parts(term):
        yield from _walk(part)


def _parts(term: Term) -> Iterator[Term]:
    match term:
        case Ref(head, parts):
            yield from (head, *parts)
        case Items(items=items):
            yield from items
        case Pairs(pairs):
            for pair in pairs:
                yield from pair
        case Closure(body=body):
            yield from filter(None, (term.key, term.value))
            yield from _of_body(body)
        case _:
            return


def _of_body(body: Body) -> Iterator[Term]:
    for line in body:
        yield from (modifier.value for modifier in line.withs)
        yield from _of_line(line)


def _of_line(line: Expr) -> Iterator[Term]:
    match line.what:
        case Call(arguments=arguments):
            yield from arguments
        case Every(domain=domain, body=body):
            yield domain
            yield from _of_body(body)
        case Logic(operands=operands):
            for body in operands:
                yield from _of_body(body)
        case term:
            yield term
