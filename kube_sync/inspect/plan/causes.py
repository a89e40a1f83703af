"""Finds the rules behind the effects on workloads, by explanations of the OPAs that decided.

Invariant: of workloads with the same effect one is explained, on both sides; only a limited number
of effects, the most frequent first, since an explanation over a large fleet takes long. Rules that
apply on one side only are the cause; if both sides apply the same, the data is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kube_sync.decisions.explaining import Rule
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.offline_decisions import Decided
from kube_sync.inspect.plan.offline_opa import gather_both
from kube_sync.inspect.survey.progress import Progress

# Effects that are explained: half a second each in a fleet of 100 clusters, while the user waits.
MOST: Final = 6
RULES: Final = 5  # of one effect

EffectGroup = tuple[str, tuple[str, ...], tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Cause:
    """One rule with its file's name; `when` it applies: `now`, `then` or `both`."""

    file: str
    row: int
    rule: str
    text: str
    when: Literal["now", "then", "both"]


def group_of(effect: Effect) -> EffectGroup:
    """Return the grouping key of an effect."""
    return (effect.kind, effect.before, effect.after, effect.reason)


async def causes(
    effects: Iterable[Effect],
    now: Decided,
    then: Decided,
    progress: Progress,
) -> Mapping[EffectGroup, Sequence[Cause]]:
    """Return the rules that cause each effect. Effects that OPA cannot explain are left out."""
    grouped: dict[EffectGroup, list[Effect]] = {}
    for effect in effects:
        grouped.setdefault(group_of(effect), []).append(effect)
    most_frequent = sorted(grouped, key=lambda group: -len(grouped[group]))[:MOST]
    found: dict[EffectGroup, Sequence[Cause]] = {}

    async def explain(one: EffectGroup) -> None:
        key = (grouped[one][0].resource, grouped[one][0].key)
        asked = (side.opa.explain(side.world.input_of(*key)) for side in (now, then))
        before, after = await gather_both(*asked)
        progress.report(f"found the rules of {len(found)} of {len(most_frequent)} ways …")
        if before.failure is None and after.failure is None:
            found[one] = responsible(before.rules, after.rules, then.world.names)

    # One query at a time: OPA computes the next explanation while this one is parsed.
    async with asyncio.TaskGroup() as group:
        for one in most_frequent:
            group.create_task(explain(one))
    return found


def responsible(
    now: Iterable[Rule], then: Iterable[Rule], names: Mapping[str, str]
) -> tuple[Cause, ...]:
    """Return the rules that apply on one side only or, if there are none, on both."""
    before, after = _applied(now), _applied(then)
    new = [_cause(rule, "then", names) for key, rule in after.items() if key not in before]
    gone = [_cause(rule, "now", names) for key, rule in before.items() if key not in after]
    if new or gone:
        return tuple([*new, *gone][:RULES])
    rules = [rule for rule in after.values() if not _is_helper(rule)] or [*after.values()]
    # A head that did not change may have another body: a candidate's own rules come first.
    rules.sort(key=lambda rule: rule.file not in names)
    return tuple(_cause(rule, "both", names) for rule in rules[:RULES])


def _applied(rules: Iterable[Rule]) -> dict[tuple[str, str, str], Rule]:
    """Return rules by their content: a rule that only moved within its file is the same."""
    return {(rule.file, rule.name, rule.text): rule for rule in rules if rule.applied}


def _cause(rule: Rule, when: Literal["now", "then", "both"], names: Mapping[str, str]) -> Cause:
    file = names.get(rule.file, rule.file) if when != "now" else rule.file
    return Cause(file, rule.row, rule.name, rule.text, when)


def _is_helper(rule: Rule) -> bool:
    return rule.name.rpartition(".")[2].startswith("_")
