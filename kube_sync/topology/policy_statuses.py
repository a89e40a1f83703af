"""The status conditions of policies that GEP-713 names, and conflicts between policies.

Invariant: Accepted depends on the policy and its targets; Programmed on all paths together: on
each, a rule of it is in force or is overridden by another policy. Local policies may replace a copy
of a hub's policy at some of its targets or at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from kube_sync.topology.conditions import ACCEPTED, RESOLVED, Condition, listed
from kube_sync.topology.effective import Combined, EffectivePolicies
from kube_sync.topology.nodes import Locator
from kube_sync.topology.policies import Policy, PolicyKind
from kube_sync.topology.raw_json import is_same
from kube_sync.topology.synced_policies import hub_policy
from kube_sync.topology.targets import ResolvedTargets


class Conflict(NamedTuple):
    """Two policies of one target that contradict each other there."""

    policy: Locator  # the one that is not in force
    other: Locator
    target: Locator
    rules: tuple[str, ...]  # empty: none of its rules, as the kind does not merge


class _Inputs(NamedTuple):
    """All that the conditions of one policy depend on."""

    policy: Policy
    aim: ResolvedTargets
    conflicted: Mapping[Locator, Locator]  # targets that an earlier policy has, and that policy
    replaced: Mapping[Locator, frozenset[Locator]]  # targets that local policies have, and these
    combined: tuple[Combined, ...]  # the combinations that contain it, on any path


class _Result(NamedTuple):
    conditions: tuple[Condition, ...]
    overridden: Mapping[str, set[Locator]]  # rules that lost on some path, and to which


class PolicyStatuses:
    """The conditions of the policies of one kind, cached by what they depend on."""

    def __init__(self, effective: EffectivePolicies) -> None:
        self._effective = effective
        self._known: dict[Locator, tuple[_Inputs, _Result]] = {}

    def update(
        self, read: Mapping[Locator, tuple[Policy, ResolvedTargets]], combined: Iterable[Combined]
    ) -> None:
        """Update from all policies of the kind, and all their combinations, each once."""
        parts: dict[Locator, list[Combined]] = {name: [] for name in read}
        for one in combined:
            for name in {policy.node.locator for policy in one.policies}:
                parts[name].append(one)
        conflicted: dict[Locator, dict[Locator, Locator]] = {}
        for target, policy in self._effective.conflicted():
            first = self._effective.attached(target)[0].node.locator
            conflicted.setdefault(policy.node.locator, {})[target] = first
        replaced: dict[Locator, dict[Locator, frozenset[Locator]]] = {}
        natives: dict[Locator, frozenset[Locator]] = {}
        for target, policy in self._effective.replaced():
            native = natives.get(target)
            if native is None:
                here = self._effective.attached(target)
                native = natives[target] = frozenset(one.node.locator for one in here)
            replaced.setdefault(policy.node.locator, {})[target] = native
        before, self._known = self._known, {}
        for name, both in read.items():
            refused = conflicted.get(name, {}), replaced.get(name, {})
            inputs = _Inputs(*both, *refused, tuple(parts[name]))
            known = before.get(name)
            same = known is not None and known[0] == inputs
            self._known[name] = known if known and same else (inputs, self._compute(inputs))

    def conditions(self) -> Iterator[Condition]:
        """Yield the conditions of each policy."""
        for _, result in self._known.values():
            yield from result.conditions

    def of(
        self, name: Locator, targets: Collection[Locator], combined: Iterable[Combined]
    ) -> tuple[Condition, ...]:
        """Return the conditions of a policy as if it had these targets and paths alone."""
        inputs = self._known[name][0]
        conflicted = {target: by for target, by in inputs.conflicted.items() if target in targets}
        replaced = {target: by for target, by in inputs.replaced.items() if target in targets}
        aim = replace(inputs.aim, targets=tuple(targets))
        part = _Inputs(inputs.policy, aim, conflicted, replaced, tuple(combined))
        return self._compute(part).conditions

    def conflicts(self) -> Iterator[Conflict]:
        """Yield where policies of one target contradict each other."""
        for name, (inputs, result) in self._known.items():
            for target, other in inputs.conflicted.items():
                yield Conflict(name, other, target, ())
            if self._effective.kind.merges:
                yield from self._contradictions(inputs, result.overridden)

    def _contradictions(
        self, inputs: _Inputs, overridden: Mapping[str, set[Locator]]
    ) -> Iterator[Conflict]:
        for other in {o for others in overridden.values() for o in others}:
            other_inputs = self._known[other][0]
            names = tuple(
                name
                for name, others in sorted(overridden.items())
                if other in others and _differ(inputs.policy, other_inputs.policy, name)
            )
            both = _active_targets(inputs) & _active_targets(other_inputs) if names else ()
            for target in both:
                yield Conflict(inputs.policy.node.locator, other, target, names)

    def _compute(self, inputs: _Inputs) -> _Result:
        kind = self._effective.kind
        if not (inputs.policy.refs or inputs.policy.problem):
            return _Result((), {})
        overridden, any_in_force = _overridden_rules(inputs)
        accepted = _accepted(kind, inputs)
        if accepted.status != "True":
            return _Result((accepted,), overridden)
        in_force = _in_force(kind, inputs, overridden, any_in_force=any_in_force)
        return _Result((accepted, *_resolved_refs(kind.id.kind, inputs), in_force), overridden)


def _active_targets(inputs: _Inputs) -> set[Locator]:
    """Return the targets where a policy counts: a replaced copy is no conflict."""
    return set(inputs.aim.targets) - inputs.replaced.keys()


def _overridden_rules(inputs: _Inputs) -> tuple[dict[str, set[Locator]], bool]:
    """Return the overridden rules, by which policies, and whether any is in force somewhere."""
    own, any_in_force = inputs.policy.node.locator, False
    overridden: dict[str, set[Locator]] = {}
    for one in inputs.combined:
        for rule in inputs.policy.rules.values:
            by = one.prevailing(inputs.policy, rule)
            if by == own:
                any_in_force = True
            else:
                overridden.setdefault(rule, set()).add(by)
    return overridden, any_in_force


def _accepted(kind: PolicyKind, inputs: _Inputs) -> Condition:
    policy, aim, name = inputs.policy, inputs.aim, kind.id.kind
    own = policy.node.locator
    if policy.problem:
        return Condition(own, ACCEPTED, "False", "Invalid", f"{name}: {policy.problem}")
    if not aim.targets:
        reason = "RefNotPermitted" if _is_only_refused(aim) else "TargetNotFound"
        return Condition(own, ACCEPTED, "False", reason, _unresolved_message(name, aim))
    if inputs.conflicted.keys() >= set(aim.targets):
        message = f"{name} is conflicted by {_names(inputs.conflicted.values())}"
        return Condition(own, ACCEPTED, "False", "Conflicted", message)
    message = f"{name} has been accepted"
    if kind.merges and policy.strategy and policy.strategy not in kind.strategies:
        message += f'; strategy "{policy.strategy}" is not known and counts as atomic'
    if policy.remark:
        message += f"; {policy.remark}"
    return Condition(own, ACCEPTED, "True", "Accepted", message)


def _resolved_refs(kind: str, inputs: _Inputs) -> Iterator[Condition]:
    aim = inputs.aim
    if aim.missing or aim.refused or aim.above:
        reason = "TargetNotFound" if aim.missing else "RefNotPermitted"
        own = inputs.policy.node.locator
        yield Condition(own, RESOLVED, "False", reason, _unresolved_message(kind, aim))


def _in_force(
    kind: PolicyKind, inputs: _Inputs, overridden: Mapping[str, set[Locator]], *, any_in_force: bool
) -> Condition:
    own, name, effect = inputs.policy.node.locator, kind.id.kind, kind.in_force
    by = {other for others in overridden.values() for other in others}
    text = advice(inputs.policy, by, inputs.combined)
    if not (inputs.combined or inputs.replaced):
        message = f"{name} is not in the path to anything that it takes effect at"
        return Condition(own, effect.type, "False", "Unknown", message)
    if not any_in_force and (overridden or not inputs.combined):
        by |= {other for others in inputs.replaced.values() for other in others}
        message = f"{name} is overridden by {_names(by)}{text}"
        return Condition(own, effect.type, "False", "Overridden", message)
    parts = []
    if overridden:
        rules = listed(f'"{rule}"' for rule in overridden)
        parts.append(f"{rules} overridden by {_names(by)}")
    for target, others in sorted(inputs.replaced.items()):
        parts.append(f"all of it overridden by {_names(others)} at {_names([target])}")
    if parts:
        message = f"{name} has been partially enforced: {', '.join(parts)}{text}"
        return Condition(own, effect.type, "True", effect.partly, message)
    message = f"{name} has been successfully enforced"
    return Condition(own, effect.type, "True", effect.whole, message)


def _differ(policy: Policy, other: Policy, rule: str) -> bool:
    """Return whether two policies have different values of a rule, one of them perhaps none."""
    theirs = other.rules.values
    return rule not in theirs or not is_same(theirs[rule], policy.rules.values[rule])


def _is_only_refused(aim: ResolvedTargets) -> bool:
    return bool(aim.refused or aim.above) and not aim.missing


def _unresolved_message(kind: str, aim: ResolvedTargets) -> str:
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


_MOST: Final = 3  # copies in one message


def advice(policy: Policy, by: Collection[Locator], parts: Iterable[Combined]) -> str:
    """Return what to add to the condition of a policy that lost to others, "" for nothing.

    A local policy replaces a copy of a hub's policy only at the copy's own targets: elsewhere the
    copy counts as any policy. Administrators of the cluster cannot edit it, and may not know the
    hub: the advice names the hub's policy and what to do here.

    `parts` are the combinations that contain the policy, and so all that it can have lost to.
    """
    copies = _copies(by, parts) if by and not policy.synced else {}
    kind = policy.node.kind.kind
    texts = [_advice_on(kind, copies[name]) for name in sorted(copies)[:_MOST]]
    more = len(copies) - len(texts)
    return "".join(f"; {one}" for one in texts) + (f"; {more} more are copies" if more > 0 else "")


def _copies(by: Collection[Locator], parts: Iterable[Combined]) -> Mapping[Locator, Policy]:
    return {
        one.node.locator: one
        for part in parts
        for one in part.policies
        if one.synced and one.node.locator in by
    }


def _advice_on(kind: str, copy: Policy) -> str:
    node = copy.node
    of = hub_policy(node.body)
    named = f"the hub's policy {of}" if of else "a policy of the hub"
    targets = listed(_targets(copy))
    return (
        f"{_full_name(node.namespace, node.name)} is a copy of {named}: to have it otherwise here,"
        f" make a {kind} with the same target, {targets}, which takes the place of the copy, or"
        " ask whoever looks after the hub"
    )


def _targets(copy: Policy) -> Iterable[str]:
    for ref in copy.refs:
        section = f"#{ref.section}" if ref.section else ""
        place = _full_name(ref.namespace or copy.node.namespace, ref.name)
        yield f"{ref.kind.kind} {place}{section}"


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
