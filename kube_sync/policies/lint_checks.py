"""The checks of the linter, each a function from one rule to its findings. Pure.

Invariant: a name is only doubted where all names that may stand there are known, or where it is a
letter or two away from one that is; a rule that another one refers to has the name it should have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from typing import Final

from kube_sync.config import TOPOLOGY
from kube_sync.guard.placements import PREFERENCES
from kube_sync.opa.analysis.syntax import Call, Closure, Items, Pairs, Scalar, Term
from kube_sync.opa.analysis.terms import Path, reference, resolved
from kube_sync.opa.paths import DataPath
from kube_sync.policies import vocabulary as words
from kube_sync.policies.lint_subject import Known, RuleNodes, RuleSet, Slip
from kube_sync.policies.vocabulary import nearest

Check = Callable[[RuleNodes, RuleSet], Iterator[Slip]]

_OBJECT_FIELDS: Final = ("metadata", "spec", "status")
_ARTICLES: Final = {
    "object": "an object",
    "array": "an array",
    "boolean": "a boolean",
    "string": "a string",
    "number": "a number",
    "null": "null",
}
_COMPARISONS: Final = {("equal",), ("eq",), ("neq",), ("internal", "member_2")}

# Of the package and the name of a rule


def _package(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    package, decision = one.module.package, all_.known.decision
    if one.rule.number != 0 or package == decision or all_.refers_to(package):
        return
    name, wanted = ".".join(package), ".".join(decision)
    if not _is_similar(package, decision):
        return
    message = f"no decision is made by package {name}: decisions are made by {wanted}"
    yield one.slip("package_not_decided", package[-1], message, wanted)


def _is_similar(package: DataPath, decision: DataPath) -> bool:
    """Return whether each part is."""
    return len(package) == len(decision) and all(
        a == b or nearest(a, {b}) for a, b in zip(package, decision, strict=True)
    )


def _rule_name(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    decision, name = all_.known.decision, one.own
    if one.module.package != decision or one.rule.function or name in words.DECISION:
        return
    if not name or name.startswith("_"):
        return
    meant = nearest(name, words.DECISION)
    if not all_.refers_to((*decision, name)):
        parts = ", ".join(sorted(words.DECISION))
        message = f"a decision has no {name!r:.80}: it has {parts}"
        yield one.slip("unknown_rule", name, message, meant)
    else:
        message = (
            f"every decision carries {name!r:.80} along: begin its name with _, make it a"
            " function, or move it to another package"
        )
        yield one.slip("helper_in_decision", name, message, f"_{name}")


def _rule_type(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    decision, name = all_.known.decision, one.own
    wanted = words.DECISION.get(name)
    if one.module.package != decision or wanted is None or one.rule.function:
        return
    deeper = len(one.rule.path) > len(decision) + 1
    found = "object" if deeper else "array" if one.rule.member else _type_of(one)
    if found not in ("", wanted):
        how = {
            "object": f"{name}[key] := value",
            "array": f"{name} contains message",
            "boolean": f"{name} if …",
        }
        message = f"the policy's `{name}` are {_ARTICLES[found]}, not {_ARTICLES[wanted]}"
        yield one.slip("wrong_type", name, message, how[wanted])


def _type_of(one: RuleNodes) -> str:
    """Return the JSON type of a rule's value, "" if it is not known."""
    match resolved(one.rule.clauses[0].value, one.locals) if one.rule.clauses else None:
        case Scalar(kind=kind):
            return kind
        case Items() | Closure(kind="array" | "set"):
            return "array"
        case Pairs() | Closure(kind="object"):
            return "object"
        case _:
            return ""


def _unused(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    package, name = one.module.package, one.own
    if not name.startswith("_") or all_.refers_to((*package, name)):
        return
    others = {
        other.own
        for other in all_.rules
        if other.module.package == package and all_.refers_to((*package, other.own))
    }
    message = f"no rule refers to {name}, and its name says that it is for its own package"
    yield one.slip("unused_helper", name, message, nearest(name, others))


# Of what a rule reads


def _input_field(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    for root, path in one.references:
        if root != "input" or not path:
            continue
        request = path[1:] if path[0] == "request" else path
        below = {"userInfo": words.USER_INFO, "kind": words.REQUEST_KIND}
        match request:
            case (str(name), *_) if meant := words.top_field(name):
                yield _field(one, "input", name, meant)
            case (str("kind" | "userInfo" as name), str(part), *_) if meant := nearest(
                part, below[name]
            ):
                yield _field(one, f"input.{name}", part, meant)
            case ("object" | "oldObject" as name, str(part), *_) if meant := words.top_field(part):
                yield _field(one, f"input.{name}", part, meant)
            case _:
                pass


def _metadata(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    for _, path in one.references:
        for above, name in pairwise(path):
            if above == "metadata" and name and (meant := nearest(name, words.METADATA)):
                yield _field(one, "metadata", name, meant)


def _field(one: RuleNodes, of: str, name: str, meant: str) -> Slip:
    message = f"{of} has no field {name!r:.80}"
    return one.slip("unknown_field", name, message, meant)


def _data_path(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    for root, path in one.references:
        if root != "data":
            continue
        if path[:1] == (all_.known.root,) and len(path) > 1 and path[1] is not None:
            yield from _resource(one, all_.known, path[1], path[2:])
        for length, name in enumerate(path):
            above = tuple(map(str, path[:length]))
            names = all_.below.get(above, ())
            if name is None or not names:
                break
            if meant := nearest(name, names):
                message = f"nothing lies at data.{'.'.join((*above, name))}"
                yield one.slip("unknown_data", name, message, ".".join(("data", *above, meant)))


def _resource(one: RuleNodes, known: Known, name: str, below: Path) -> Iterator[Slip]:
    place = f"data.{known.root}.{name}"
    if name not in known.resources:
        meant = nearest(name, known.resources)
        found = meant and f"data.{known.root}.{meant}"
        message = f"nothing is replicated to {place}"
        yield one.slip("unknown_resource", name, message, found or "replicate.resources")
        return
    inside = known.resources[name]
    match below:
        case [str(section), *_] if name == TOPOLOGY:
            if meant := nearest(section, words.TOPOLOGY):
                yield _field(one, place, section, meant)
        case [_, str(part), *_] if inside and part in _OBJECT_FIELDS:
            message = f"in {place} the objects lie below their namespaces"
            yield one.slip("missing_namespace", part, message, f"{place}[namespace][name].{part}")
        case [_, _, str("labels" | "annotations" as part), *_] if inside:
            yield _field(one, f"an object of {place}", part, f"metadata.{part}")
        case _:
            pass


# Of constants


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
        sides = [reference(argument, one.locals) for argument in node.arguments[:2]]
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


def _preference(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    if one.own != "annotations" or Scalar("string", PREFERENCES) not in one.nodes:
        return
    values = [resolved(clause.value, one.locals) for clause in one.rule.clauses]
    for node in one.nodes:
        if not isinstance(node, Pairs):
            continue
        fields = _fields(node)
        if node in values or fields.keys() & words.PREFERENCE:
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
            yield _field(one, PREFERENCES, name, meant)


CHECKS: Final[tuple[Check, ...]] = (
    _package,
    _rule_name,
    _rule_type,
    _unused,
    _input_field,
    _metadata,
    _data_path,
    _compared,
    _argument,
    _key,
    _preference,
)
