"""The merge strategies of GEP-713: merge the rules of two policies into one set.

Invariant: the higher, less specific policy (`source`) determines how it is merged with what has
been merged below it (`target`); a rule keeps its source policy through any number of merges.
Nothing here depends on what a rule means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from kube_sync.topology.nodes import Locator


class Mode(StrEnum):
    """Whether more specific policies prevail over a policy, or it over them."""

    DEFAULTS = "defaults"
    OVERRIDES = "overrides"


Sources = Mapping[str, Locator]


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by name, and the policy that each came from.

    `parts` has, for rules that were patched, the fields that came from another policy; `patches`
    names the rules that may still contain nulls, which remove fields in later merges.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Sources = field(default_factory=dict)
    parts: Mapping[str, Sources] = field(default_factory=dict)
    patches: frozenset[str] = frozenset()

    def has_from(self, rule: str, policy: Locator) -> bool:
        """Return whether any part of a rule came from a policy."""
        return self.sources.get(rule) == policy or policy in self.parts.get(rule, {}).values()

    def of(self, names: Iterable[str]) -> Rules:
        """Return the rules of these names."""
        kept = [name for name in names if name in self.values]
        parts = {name: self.parts[name] for name in kept if name in self.parts}
        values = {name: self.values[name] for name in kept}
        sources = {name: self.sources[name] for name in kept}
        return Rules(values, sources, parts, self.patches.intersection(kept))


Strategy = Callable[[Rules, Rules, Mode], Rules]


def atomic(source: Rules, target: Rules, mode: Mode) -> Rules:
    """Return one set, whole: defaults only if there is no rule, overrides always."""
    return target if mode is Mode.DEFAULTS and target.values else source


def merge(source: Rules, target: Rules, mode: Mode) -> Rules:
    """Return the rules of both; a rule that both have is taken whole from the one that prevails."""
    weak, strong = _by_strength(source, target, mode)
    return _union(weak, strong)


def patch(source: Rules, target: Rules, mode: Mode) -> Rules:
    """Return the weaker set, patched by the one that prevails (RFC 7386).

    The result may be a patch itself in a later merge, so nulls are kept until `without_nulls`.
    """
    weak, strong = _by_strength(source, target, mode)
    both = [name for name in strong.values if name in weak.values]
    patched = Rules(
        {name: _one_patch(weak.values[name], strong.values[name]) for name in both},
        {name: strong.sources[name] for name in both},
        {name: parts for name in both if (parts := _parts(name, weak, strong))},
    )
    found = _union(_union(weak, strong), patched)
    return replace(found, patches=weak.patches | strong.values.keys())


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"atomic": atomic, "merge": merge, "patch": patch}
)


def without_nulls(rules: Rules) -> Rules:
    """Return the final rules, without their nulls."""
    if not rules.patches and None not in rules.values.values():
        return rules
    values = {
        name: merge_patch({}, value) if name in rules.patches else value
        for name, value in rules.values.items()
        if value is not None
    }
    parts = {
        name: _remaining_parts(rules.parts[name], value)
        for name, value in values.items()
        if name in rules.parts
    }
    return Rules(values, {name: rules.sources[name] for name in values}, parts)


def _remaining_parts(parts: Sources, value: object) -> Sources:
    fields = value if isinstance(value, Mapping) else {}
    return {name: by for name, by in parts.items() if name in fields}


def merge_patch(target: object, change: object) -> object:
    """Return a JSON value patched by another (RFC 7386, section 2)."""
    if not isinstance(change, Mapping):
        return change
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def _one_patch(first: object, second: object) -> object:
    """Return one patch equivalent to two in sequence, with the nulls of both."""
    if not isinstance(second, Mapping):
        return second
    result = dict(first) if isinstance(first, Mapping) else {}
    for name, value in second.items():
        result[name] = _one_patch(result.get(name), value)
    return result


def _by_strength(source: Rules, target: Rules, mode: Mode) -> tuple[Rules, Rules]:
    return (source, target) if mode is Mode.DEFAULTS else (target, source)


def _union(weak: Rules, strong: Rules) -> Rules:
    """Return the rules of both; of a rule that both have, the second's."""
    parts = {name: found for name, found in weak.parts.items() if name not in strong.values}
    return Rules(
        {**weak.values, **strong.values},
        {**weak.sources, **strong.sources},
        {**parts, **strong.parts},
        (weak.patches - strong.values.keys()) | strong.patches,
    )


def _parts(name: str, weak: Rules, strong: Rules) -> Sources:
    """Return the sources of the fields of a patched rule that the patch does not contain."""
    below, above = weak.values[name], strong.values[name]
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return strong.parts.get(name, {})
    known = weak.parts.get(name, {})
    kept = {part: known.get(part, weak.sources[name]) for part in below if part not in above}
    return kept | dict(strong.parts.get(name, {}))
