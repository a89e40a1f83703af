"""The linter's checks of constants: of compared values, of keys, and of placements. Pure.

Invariant: as in `lint_checks`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kube_sync.guard.placements import PREFERENCES
from kube_sync.opa.analysis.syntax import Call, Closure, Items, Pairs, Scalar, Term
from kube_sync.opa.analysis.terms import Path, reference, resolved
from kube_sync.policies import vocabulary as words
from kube_sync.policies.lint_subject import Check, RuleNodes, RuleSet, Slip, unknown_field
from kube_sync.policies.vocabulary import nearest

_COMPARISONS: Final = {("equal",), ("eq",), ("neq",), ("internal", "member_2")}


def _compared(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    kinds = frozenset(words.KINDS.values()) | all_.known.kinds
    may: dict[Path, Collection[str]] = {
        ("kind",): kinds,
        ("kind", "kind"): kinds,
        ("kind", "group"): words.GROUPS,
        ("operation",): words.OPERATIONS,
    }
    for node in one.nodes:
        if not isinstance(node, Call) or node.operator not in _COMPARISONS:
            continue
        sides = [
            reference(resolved(argument, one.locals), one.locals) for argument in node.arguments[:2]
        ]
        paths = [side[1] for side in sides if side is not None and side[0] == "input"]
        for path in paths:
            for value in _constants(node, one.locals):
                if meant := nearest(value, may.get(path, ())):
                    of = ".".join(("input", *map(str, path)))
                    message = f"{of} is never {value!r:.80}"
                    yield one.slip("unknown_value", value, message, meant)


def _constants(call: Call, known: Mapping[str, Term]) -> Iterator[str]:
    for argument in call.arguments[:2]:
        match resolved(argument, known):
            case Scalar("string", value):
                yield value
            case Items(items=items):
                yield from (item.value for item in items if isinstance(item, Scalar))
            case _:
                pass


def _argument(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    """Doubt a kind that a function is defined for, as in `f("Replicaset") := …`."""
    for clause in one.rule.clauses if one.rule.function else ():
        for argument in clause.arguments:
            if isinstance(argument, Scalar) and argument.kind == "string":
                value = argument.value
                if not value.islower() and (meant := nearest(value, all_.known.kinds)):
                    message = f"no kind that is decided on is called {value!r:.80}"
                    yield one.slip("unknown_value", value, message, meant)


def _key(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    for node in one.nodes:
        key = node.text if isinstance(node, Scalar) else None
        if key and "/" in key and (meant := nearest(key, words.KEYS)):
            message = f"{key!r:.120} is no well-known label or annotation"
            yield one.slip("unknown_key", key, message, meant)


def _key_pair(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    """Doubt a key that is there once, and is a letter away from another one."""
    for node in one.nodes:
        key = node.text if isinstance(node, Scalar) else None
        if key is None or all_.keys.get(key) != 1:
            continue
        for other in all_.keys:
            if words.is_slip_of(key, other) and (all_.keys[other] > 1 or other < key):
                message = f"{key!r:.120} is a letter away from {other!r:.120}"
                yield one.slip("unknown_key", key, message, other)


def _preference(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    if Scalar("string", PREFERENCES) not in one.nodes:
        return
    values = [resolved(clause.value, one.locals) for clause in one.rule.clauses]
    for node in one.nodes:
        if not isinstance(node, Pairs):
            continue
        fields = _fields(node)
        if (node in values and one.own == "annotations") or fields.keys() & words.PREFERENCE:
            yield from _doubted(one, fields, words.PREFERENCE)
        if "clusters" in fields:
            for share in _values(resolved(fields["clusters"], one.locals)):
                yield from _doubted(one, _fields(resolved(share, one.locals)), words.SHARE)


def _values(term: Term) -> Iterator[Term]:
    match term:
        case Closure("object", _, value, _):
            yield value
        case Pairs(pairs):
            yield from (value for _, value in pairs)
        case _:
            pass


def _fields(term: Term) -> dict[str, Term]:
    pairs = term.pairs if isinstance(term, Pairs) else ()
    return {name.value: value for name, value in pairs if isinstance(name, Scalar)}


def _doubted(one: RuleNodes, fields: Collection[str], names: Collection[str]) -> Iterator[Slip]:
    for name in fields:
        if meant := nearest(name, names):
            yield unknown_field(one, PREFERENCES, name, meant)


CHECKS: Final[tuple[Check, ...]] = (_compared, _argument, _key, _key_pair, _preference)
