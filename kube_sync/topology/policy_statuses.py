"""The status conditions of policies that GEP-713 names, and conflicts between policies.

Invariant: Accepted depends on the policy and its targets; Programmed on all paths together: on
each, a rule of it is in force or is overridden by another policy. Local policies may replace a copy
of a hub's policy at some of its targets or at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kube_sync.topology.conditions import ACCEPTED, RESOLVED, Condition, listed
from kube_sync.topology.effective import Combined, EffectivePolicies
from kube_sync.topology.hubcopies import advice
from kube_sync.topology.identity import Locator
from kube_sync.topology.policies import Policy, PolicyKind
from kube_sync.topology.raw_json import same
from kube_sync.topology.targets import Aim


class Conflict(NamedTuple):
    """Two policies of one target that contradict each other there."""

    policy: Locator  # the one that is not in force
    other: Locator
    target: Locator
    rules: tuple[str, ...]  # empty: none of its rules, as the kind does not merge


class _Matter(NamedTuple):
    """All that the conditions of one policy depend on."""

    policy: Policy
    aim: Aim
    beaten: Mapping[Locator, Locator]  # targets that an earlier policy has, and that policy
    dropped: Mapping[Locator, frozenset[Locator]]  # targets that local policies have, and these
    combined: tuple[Combined, ...]  # the combinations that contain it, on any path


class _Outcome(NamedTuple):
    conditions: tuple[Condition, ...]
    lost: Mapping[str, set[Locator]]  # rules that lost on some path, and to which


class PolicyStatuses:
    """The conditions of the policies of one kind, cached by what they depend on."""

    def __init__(self, effective: EffectivePolicies) -> None:
        self._effective = effective
        self._known: dict[Locator, tuple[_Matter, _Outcome]] = {}

    def look(
        self, read: Mapping[Locator, tuple[Policy, Aim]], combined: Iterable[Combined]
    ) -> None:
        """Update from all policies of the kind, and all their combinations, each once."""
        parts: dict[Locator, list[Combined]] = {name: [] for name in read}
        for one in combined:
            for name in {policy.node.locator for policy in one.policies}:
                parts[name].append(one)
        beaten: dict[Locator, dict[Locator, Locator]] = {}
        for target, policy in self._effective.beaten():
            first = self._effective.attached(target)[0].node.locator
            beaten.setdefault(policy.node.locator, {})[target] = first
        dropped: dict[Locator, dict[Locator, frozenset[Locator]]] = {}
        natives: dict[Locator, frozenset[Locator]] = {}
        for target, policy in self._effective.dropped():
            native = natives.get(target)
            if native is None:
                here = self._effective.attached(target)
                native = natives[target] = frozenset(one.node.locator for one in here)
            dropped.setdefault(policy.node.locator, {})[target] = native
        before, self._known = self._known, {}
        for name, both in read.items():
            out = beaten.get(name, {}), dropped.get(name, {})
            matter = _Matter(*both, *out, tuple(parts[name]))
            known = before.get(name)
            same = known is not None and known[0] == matter
            self._known[name] = known if known and same else (matter, self._outcome(matter))

    def conditions(self) -> Iterator[Condition]:
        """Yield the conditions of each policy."""
        for _, outcome in self._known.values():
            yield from outcome.conditions

    def of(
        self, name: Locator, targets: Collection[Locator], combined: Iterable[Combined]
    ) -> tuple[Condition, ...]:
        """Return the conditions of a policy as if it had these targets and paths alone."""
        matter = self._known[name][0]
        beaten = {target: by for target, by in matter.beaten.items() if target in targets}
        dropped = {target: by for target, by in matter.dropped.items() if target in targets}
        aim = replace(matter.aim, targets=tuple(targets))
        part = _Matter(matter.policy, aim, beaten, dropped, tuple(combined))
        return self._outcome(part).conditions

    def conflicts(self) -> Iterator[Conflict]:
        """Yield where policies of one target contradict each other."""
        for name, (matter, outcome) in self._known.items():
            for target, other in matter.beaten.items():
                yield Conflict(name, other, target, ())
            if self._effective.kind.merges:
                yield from self._contradictions(matter, outcome.lost)

    def _contradictions(
        self, matter: _Matter, lost: Mapping[str, set[Locator]]
    ) -> Iterator[Conflict]:
        for other in {o for others in lost.values() for o in others}:
            theirs = self._known[other][0]
            names = tuple(
                name
                for name, others in sorted(lost.items())
                if other in others and _differ(matter.policy, theirs.policy, name)
            )
            both = _places(matter) & _places(theirs) if names else ()
            for target in both:
                yield Conflict(matter.policy.node.locator, other, target, names)

    def _outcome(self, matter: _Matter) -> _Outcome:
        kind = self._effective.kind
        if not (matter.policy.refs or matter.policy.problem):
            return _Outcome((), {})
        lost, kept = _counted(matter)
        accepted = _accepted(kind, matter)
        if accepted.status != "True":
            return _Outcome((accepted,), lost)
        in_force = _in_force(kind, matter, lost, kept=kept)
        return _Outcome((accepted, *_unresolved(kind.id.kind, matter), in_force), lost)


def _places(matter: _Matter) -> set[Locator]:
    """Return the targets where a policy counts: a replaced copy is no conflict."""
    return set(matter.aim.targets) - matter.dropped.keys()


def _counted(matter: _Matter) -> tuple[dict[str, set[Locator]], bool]:
    """Return the overridden rules, by which policies, and whether any is in force somewhere."""
    own, kept = matter.policy.node.locator, False
    lost: dict[str, set[Locator]] = {}
    for one in matter.combined:
        for rule in matter.policy.rules.values:
            by = one.prevails(matter.policy, rule)
            if by == own:
                kept = True
            else:
                lost.setdefault(rule, set()).add(by)
    return lost, kept


def _accepted(kind: PolicyKind, matter: _Matter) -> Condition:
    policy, aim, name = matter.policy, matter.aim, kind.id.kind
    own = policy.node.locator
    if policy.problem:
        return Condition(own, ACCEPTED, "False", "Invalid", f"{name}: {policy.problem}")
    if not aim.targets:
        reason = "RefNotPermitted" if _refused_only(aim) else "TargetNotFound"
        return Condition(own, ACCEPTED, "False", reason, _unfound(name, aim))
    if matter.beaten.keys() >= set(aim.targets):
        message = f"{name} is conflicted by {_names(matter.beaten.values())}"
        return Condition(own, ACCEPTED, "False", "Conflicted", message)
    message = f"{name} has been accepted"
    if kind.merges and policy.strategy and policy.strategy not in kind.strategies:
        message += f'; strategy "{policy.strategy}" is not known and counts as atomic'
    if policy.remark:
        message += f"; {policy.remark}"
    return Condition(own, ACCEPTED, "True", "Accepted", message)


def _unresolved(kind: str, matter: _Matter) -> Iterator[Condition]:
    aim = matter.aim
    if aim.missing or aim.refused or aim.above:
        reason = "TargetNotFound" if aim.missing else "RefNotPermitted"
        own = matter.policy.node.locator
        yield Condition(own, RESOLVED, "False", reason, _unfound(kind, aim))


def _in_force(
    kind: PolicyKind, matter: _Matter, lost: Mapping[str, set[Locator]], *, kept: bool
) -> Condition:
    own, name, effect = matter.policy.node.locator, kind.id.kind, kind.in_force
    by = {other for others in lost.values() for other in others}
    told = advice(matter.policy, by, matter.combined)
    if not (matter.combined or matter.dropped):
        message = f"{name} is not in the path to anything that it takes effect at"
        return Condition(own, effect.type, "False", "Unknown", message)
    if not kept and (lost or not matter.combined):
        by |= {other for others in matter.dropped.values() for other in others}
        message = f"{name} is overridden by {_names(by)}{told}"
        return Condition(own, effect.type, "False", "Overridden", message)
    parts = []
    if lost:
        rules = listed(f'"{rule}"' for rule in lost)
        parts.append(f"{rules} overridden by {_names(by)}")
    for target, others in sorted(matter.dropped.items()):
        parts.append(f"all of it overridden by {_names(others)} at {_names([target])}")
    if parts:
        message = f"{name} has been partially enforced: {', '.join(parts)}{told}"
        return Condition(own, effect.type, "True", effect.partly, message)
    message = f"{name} has been successfully enforced"
    return Condition(own, effect.type, "True", effect.whole, message)


def _differ(policy: Policy, other: Policy, rule: str) -> bool:
    """Return whether two policies have different values of a rule, one of them perhaps none."""
    theirs = other.rules.values
    return rule not in theirs or not same(theirs[rule], policy.rules.values[rule])


def _refused_only(aim: Aim) -> bool:
    return bool(aim.refused or aim.above) and not aim.missing


def _unfound(kind: str, aim: Aim) -> str:
    parts = []
    if aim.missing:
        parts.append(f"{kind} target {listed(aim.missing)} was not found")
    if aim.refused:
        refused = listed(aim.refused)
        parts.append(f"{kind} target {refused} is in a namespace that grants no reference to it")
    if aim.above:
        above = listed(aim.above)
        parts.append(f"{kind} target {above} is cluster-scoped: not for a policy of a namespace")
    return "; ".join(parts)


def _names(locators: Collection[Locator]) -> str:
    return f"[{listed({name.partition(':')[2] for name in locators})}]"
