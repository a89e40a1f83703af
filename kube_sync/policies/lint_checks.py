"""The linter's checks of names and references, each from one rule to its findings. Pure.

Invariant: a name is only doubted where all names that may stand there are known, or where it is a
letter or two away from one that is; a rule that another one refers to has the name it should have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from kube_sync.config import TOPOLOGY
from kube_sync.opa.analysis.syntax import Closure, Items, Pairs, Scalar
from kube_sync.opa.analysis.terms import Path, resolved
from kube_sync.opa.paths import DataPath
from kube_sync.policies import vocabulary as words
from kube_sync.policies.lint_subject import (
    PACKAGE,
    Check,
    Known,
    RuleNodes,
    RuleSet,
    Slip,
    unknown_field,
)
from kube_sync.policies.vocabulary import nearest

_OF_METADATA: Final = ("labels", "annotations")
_OBJECT_FIELDS: Final = ("metadata", "spec", "status")
_ARTICLES: Final = {
    "object": "an object",
    "array": "an array",
    "boolean": "a boolean",
    "string": "a string",
    "number": "a number",
    "null": "null",
}

# Of the package and the name of a rule


def _package(one: RuleNodes, all_: RuleSet) -> Iterator[Slip]:
    package, decision = one.module.package, all_.known.decision
    if one.rule.number != 0 or package == decision or all_.refers_to(package, but=package):
        return
    name, wanted = ".".join(package), ".".join(decision)
    if not _is_similar(package, decision):
        return
    message = f"no decision is made by package {name}: decisions are made by {wanted}"
    slip = one.slip("package_not_decided", package[-1], message, wanted)
    yield replace(slip, number=PACKAGE)


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
                yield unknown_field(one, "input", name, meant)
            case (str("kind" | "userInfo" as name), str(part), *_) if meant := nearest(
                part, below[name]
            ):
                yield unknown_field(one, f"input.{name}", part, meant)
            case ("object" | "oldObject" as name, str(part), *_) if meant := words.top_field(part):
                yield unknown_field(one, f"input.{name}", part, meant)
            case _:
                pass


def _metadata(one: RuleNodes, _all: RuleSet) -> Iterator[Slip]:
    for _, path in one.references:
        for above, name in pairwise(path):
            if above == "metadata" and name and (meant := nearest(name, words.METADATA)):
                yield unknown_field(one, "metadata", name, meant)
            elif name in _OF_METADATA and above and (meant := nearest(above, {"metadata"})):
                yield unknown_field(one, "an object", above, meant)


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
        message = f"nothing is replicated to {place}: replicate.resources does not name it"
        yield one.slip("unknown_resource", name, message, found)
        return
    inside = known.resources[name]
    match below:
        case [str(section), *_] if name == TOPOLOGY:
            if meant := nearest(section, words.TOPOLOGY):
                yield unknown_field(one, place, section, meant)
        case [_, str(part), *_] if inside and part in _OBJECT_FIELDS:
            message = f"in {place} the objects lie below their namespaces"
            yield one.slip("missing_namespace", part, message, f"{place}[namespace][name].{part}")
        case [_, _, str(part), *_] if inside and (meant := words.object_field(part)):
            yield unknown_field(one, f"an object of {place}", part, meant)
        case _:
            pass


CHECKS: Final[tuple[Check, ...]] = (
    _package,
    _rule_name,
    _rule_type,
    _unused,
    _input_field,
    _metadata,
    _data_path,
)
