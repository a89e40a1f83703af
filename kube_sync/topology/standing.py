"""Where policies stand: what became of each, as the conditions that GEP-713 names.

Keeps true: a policy is accepted or not by itself and its targets; what it is programmed to is
told by all paths together: each of its rules is in force on a path, or another policy's is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kube_sync.topology.conditions import ACCEPTED, PROGRAMMED, RESOLVED, Condition
from kube_sync.topology.effective import Combined, EffectivePolicies
from kube_sync.topology.identity import Locator
from kube_sync.topology.policies import Policy
from kube_sync.topology.targets import Aim


class Conflict(NamedTuple):
    """Two policies of one target that cannot both have their way there."""

    policy: Locator  # the one that does not
    other: Locator
    target: Locator
    rules: tuple[str, ...]  # empty: none of its rules, as the kind does not merge


class Standing:
    """What became of the policies of one kind."""

    def __init__(
        self,
        effective: EffectivePolicies,
        read: Mapping[Locator, tuple[Policy, Aim]],
        combined: Iterable[Combined],
    ) -> None:
        self._kind = effective.kind
        self._read = read
        self._beaten: dict[Locator, dict[Locator, Locator]] = {}  # policy, target: by whom
        for target, policy in effective.beaten():
            first = effective.attached(target)[0].node.locator
            self._beaten.setdefault(policy.node.locator, {})[target] = first
        self._reached: set[Locator] = set()
        self._kept: set[Locator] = set()
        self._lost: dict[Locator, dict[str, set[Locator]]] = {}  # policy, rule: to whom
        for one in combined:
            for policy in one.policies:
                self._count(policy, one)

    def conditions(self) -> Iterator[Condition]:
        """Yield the conditions of each policy."""
        for locator, (policy, aim) in sorted(self._read.items()):
            accepted = self._accepted(policy, aim)
            yield accepted
            if accepted.status == "True":
                yield from self._unresolved(locator, aim)
                yield self._programmed(policy)

    def conflicts(self) -> Iterator[Conflict]:
        """Yield where policies of one target contradict each other."""
        for locator, targets in self._beaten.items():
            for target, other in targets.items():
                yield Conflict(locator, other, target, ())
        if self._kind.merges:
            for locator, rules in self._lost.items():
                yield from self._contradictions(locator, rules)

    def _contradictions(
        self, locator: Locator, rules: Mapping[str, set[Locator]]
    ) -> Iterator[Conflict]:
        policy, aim = self._read[locator]
        for other in sorted({o for others in rules.values() for o in others}):
            theirs = self._read[other]
            names = tuple(
                name
                for name, others in sorted(rules.items())
                if other in others and _differ(policy, theirs[0], name)
            )
            for target in sorted(set(aim.targets) & set(theirs[1].targets)) if names else ():
                yield Conflict(locator, other, target, names)

    def _count(self, policy: Policy, one: Combined) -> None:
        own = policy.node.locator
        self._reached.add(own)
        for rule in policy.rules.values:
            if one.rules.has_from(rule, own):
                self._kept.add(own)
            else:
                by = one.rules.sources.get(rule)
                others = {by} if by else {p.node.locator for p in one.policies} - {own}
                self._lost.setdefault(own, {}).setdefault(rule, set()).update(others)

    def _accepted(self, policy: Policy, aim: Aim) -> Condition:
        own, kind = policy.node.locator, self._kind.id.kind
        if policy.problem:
            return Condition(own, ACCEPTED, "False", "Invalid", f"{kind}: {policy.problem}")
        if not aim.targets:
            reason = "RefNotPermitted" if aim.refused and not aim.missing else "TargetNotFound"
            return Condition(own, ACCEPTED, "False", reason, _unfound(kind, aim))
        beaten = self._beaten.get(own, {})
        if beaten.keys() >= set(aim.targets):
            message = f"{kind} is conflicted by {_names(beaten.values())}"
            return Condition(own, ACCEPTED, "False", "Conflicted", message)
        message = f"{kind} has been accepted"
        if policy.strategy and policy.strategy not in self._kind.strategies:
            message += f'; strategy "{policy.strategy}" is not known and counts as atomic'
        return Condition(own, ACCEPTED, "True", "Accepted", message)

    def _unresolved(self, locator: Locator, aim: Aim) -> Iterator[Condition]:
        if aim.missing or aim.refused:
            reason = "TargetNotFound" if aim.missing else "RefNotPermitted"
            message = _unfound(self._kind.id.kind, aim)
            yield Condition(locator, RESOLVED, "False", reason, message)

    def _programmed(self, policy: Policy) -> Condition:
        own, kind = policy.node.locator, self._kind.id.kind
        if own not in self._reached:
            message = f"{kind} is not in the path to anything that it takes effect at"
            return Condition(own, PROGRAMMED, "False", "Unknown", message)
        lost = self._lost.get(own, {})
        by = _names({other for others in lost.values() for other in others})
        if lost and own not in self._kept:
            return Condition(
                own, PROGRAMMED, "False", "Overridden", f"{kind} is overridden by {by}"
            )
        if lost:
            rules = ", ".join(f'"{rule}"' for rule in sorted(lost))
            message = f"{kind} has been partially enforced: {rules} overridden by {by}"
            return Condition(own, PROGRAMMED, "True", "PartiallyProgrammed", message)
        message = f"{kind} has been successfully enforced"
        return Condition(own, PROGRAMMED, "True", "Programmed", message)


def _differ(policy: Policy, other: Policy, rule: str) -> bool:
    """Tell whether two policies want different things by a rule, one of them perhaps nothing."""
    theirs = other.rules.values
    return rule not in theirs or theirs[rule] != policy.rules.values[rule]


def _unfound(kind: str, aim: Aim) -> str:
    parts = []
    if aim.missing:
        parts.append(f"{kind} target {', '.join(aim.missing)} was not found")
    if aim.refused:
        refused = ", ".join(aim.refused)
        parts.append(f"{kind} target {refused} is in a namespace that grants no reference to it")
    return "; ".join(parts)


def _names(locators: Collection[Locator]) -> str:
    return f"[{', '.join(sorted({name.partition(':')[2] for name in locators}))}]"
