"""Finds slips of the pen: what compiles, and does not do what its author must have meant. Pure.

Invariant: a policy that does what it says is not warned of. It reads compiled trees, in which
imports are spelt out; rows come from parsed ones. What holds for Rego whatever it decides is left
to Regal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kube_sync.config import TOPOLOGY, Settings, WarningCode
from kube_sync.kube.staging import Mark, MarkKind
from kube_sync.opa.analysis.syntax import Module
from kube_sync.policies import lint_checks, lint_constants
from kube_sync.policies import vocabulary as words
from kube_sync.policies.lint_subject import PACKAGE, Known, RuleSet, Slip
from kube_sync.policies.policywarning import PolicyWarning

__all__ = ["Known", "Slip", "known_of", "located", "marked", "slips"]

_TEST: Final = "_test"
_OF_HEADS: Final = ("unknown_rule", "wrong_type", "helper_in_decision", "unused_helper")
_MARKS: Final[dict[MarkKind, WarningCode]] = {
    "annotation": "unknown_annotation",
    "label": "unknown_label",
}


def known_of(
    settings: Settings,
    namespaced: Mapping[str, bool],
    documents: frozenset[str] = frozenset(),
    decision: str | None = None,
) -> Known:
    """Return what policies may name by the configuration; `namespaced` as far as it is known."""
    replicate, targets = settings.replicate, settings.targets()
    names = [resource.name for resource in replicate.resources]
    resources = {name: namespaced.get(name) for name in names}
    return Known(
        decision=tuple((decision or settings.placement.path).split("/")),
        root=replicate.root,
        resources=resources | {TOPOLOGY: True},  # who reads it says what is so without it
        kinds=words.kinds_of(resource.resource for resource in targets),
        documents=documents,
    )


def slips(modules: Sequence[Module], authored: Collection[str], known: Known) -> list[Slip]:
    """Return the findings in the `authored` ones of the modules in OPA, in their order."""
    together = RuleSet.of(modules, known)
    found = (
        slip
        for one in together.rules
        if one.module.name in authored and not one.module.package[-1].endswith(_TEST)
        for check in (*lint_checks.CHECKS, *lint_constants.CHECKS)
        for slip in check(one, together)
    )
    first: dict[tuple[object, ...], Slip] = {}
    for slip in found:
        first.setdefault((slip.code, slip.module, slip.number, slip.name), slip)
    return [*first.values()]


def marked(marks: Iterable[Mark]) -> Iterator[PolicyWarning]:
    """Yield warnings on the annotations and labels of a policy's object, as kind and name."""
    known = {"annotation": words.ANNOTATIONS, "label": words.LABELS}
    every = words.ANNOTATIONS | words.LABELS
    for kind, name in marks:
        if name in known[kind] or name in words.OTHER_MARKS:
            continue
        if name in every:
            other = next(found for found in _MARKS if found != kind)
            message, meant = f"{name} has no effect as {kind}", f"{other} {name}"
        else:
            message = f"no policy has the {kind} {name:.200}"
            meant = words.nearest(name, every) or ""
        yield PolicyWarning(_MARKS[kind], "", 0, message, meant)


def located(found: Sequence[Slip], parsed: Mapping[str, Any]) -> list[PolicyWarning]:
    """Return findings as warnings, with the rows that parsed trees with locations have."""
    return [
        PolicyWarning(s.code, s.module, _row(s, parsed.get(s.module)), s.message, s.suggestion)
        for s in found
    ]


def _row(slip: Slip, tree: Any) -> int:  # noqa: ANN401 - any JSON
    """Return the row of a name in its rule, else of the rule; 0: unknown."""
    tree = tree or {}
    if slip.number == PACKAGE:
        return min(_rows(tree.get("package"), slip.name), default=0)
    rules = tree.get("rules") or []
    if slip.number >= len(rules):
        return 0
    rule = rules[slip.number]
    likely = rule.get("head" if slip.code in _OF_HEADS else "body")
    rows = [*_rows(likely, slip.name)] or _rows(rule, slip.name)
    return min(rows, default=rule.get("head", {}).get("location", {}).get("row", 0))


def _rows(tree: Any, name: str) -> Iterator[int]:  # noqa: ANN401 - any JSON
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left.extend(node)
        elif isinstance(node, dict):
            left.extend(node.values())
            if node.get("value") == name and "location" in node:
                yield int(node["location"].get("row", 0))
