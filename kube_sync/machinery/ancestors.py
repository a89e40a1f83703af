"""What is said of each policy, with respect to each of its ancestors.

An ancestor is a Gateway at or above a target (PolicyAncestorStatus: implementations should use the
Gateway); where there is none, the target itself; where no target is there, what the policy names;
where what it names cannot be read or said, the policy itself. Keeps true: what is said with respect
to an ancestor is what is so on the paths through it, and of the targets that are at or below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_sync.machinery.conditions import Said
from kube_sync.machinery.entries import Entry
from kube_sync.machinery.references import can_be_said, to_node, to_target
from kube_sync.topology import NAMESPACE, Condition, EffectivePolicy, Locator, Topology, locator
from kube_sync.topology.effective import Combined
from kube_sync.topology.gateway import GATEWAY


class Ancestors:
    """The entries of all policies of a topology as it is now."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._spaces: dict[str, Locator] = {}
        self._above: dict[Locator, tuple[Locator, ...]] = {}  # by the target: its ancestors
        # By the policy: its ancestors, and of which targets each is.
        self._below = {policy: self._by_ancestor(policy) for policy in topology.policies}
        self._any = {ancestor for below in self._below.values() for ancestor in below}
        # By the policy and the ancestor: what the policy is part of on paths through that.
        self._parts: dict[tuple[Locator, Locator], dict[int, Combined]] = {}
        for kind in topology.policy_kinds:
            self._look(topology.effective(kind))
        self._whole: dict[Locator, list[Condition]] = {}
        for condition in topology.conditions():
            self._whole.setdefault(condition.locator, []).append(condition)

    def of(self, policy: Locator) -> list[Entry]:
        """Return the entries of a policy."""
        below = sorted(self._below[policy].items())
        if not below:
            return list(self._without_targets(policy))
        return [
            Entry(to_node(self._topology, ancestor), self._at(policy, ancestor, targets))
            for ancestor, targets in below
        ]

    def _by_ancestor(self, policy: Locator) -> dict[Locator, list[Locator]]:
        below: dict[Locator, list[Locator]] = {}
        for target in self._topology.policy(policy)[1].targets:
            for ancestor in self._ancestors(target):
                below.setdefault(ancestor, []).append(target)
        return below

    def _ancestors(self, target: Locator) -> tuple[Locator, ...]:
        found = self._above.get(target)
        if found is None:
            above = self._topology.targetables.above([target])
            gateways = sorted(name for name in above if self._topology[name].kind == GATEWAY)
            found = self._above[target] = tuple(gateways) or (target,)
        return found

    def _look(self, found: Iterable[EffectivePolicy]) -> None:
        seen: set[tuple[int, tuple[Locator, ...]]] = set()
        for one in found:
            if one.combined is None:
                continue
            around = self._around(one)
            if (id(one.combined), around) in seen:  # many paths differ below their ancestors alone
                continue
            seen.add((id(one.combined), around))
            for policy in one.combined.policies:
                own = policy.node.locator
                for ancestor in self._below[own].keys() & set(around):
                    parts = self._parts.setdefault((own, ancestor), {})
                    parts[id(one.combined)] = one.combined

    def _around(self, one: EffectivePolicy) -> tuple[Locator, ...]:
        """Return the ancestors on a path: nodes, what they are of, and what they lie in."""
        found: dict[Locator, None] = {}
        for name in one.path:
            node = self._topology[name]
            for near in (self._space(node.namespace), node.owner, name):
                if near is not None and near in self._any:
                    found[near] = None
        return tuple(found)

    def _space(self, namespace: str) -> Locator:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = locator(NAMESPACE, "", namespace)
        return space

    def _at(self, policy: Locator, ancestor: Locator, targets: list[Locator]) -> tuple[Said, ...]:
        parts = self._parts.get((policy, ancestor), {}).values()
        return _said(self._topology.conditions_of(policy, targets, parts))

    def _without_targets(self, policy: Locator) -> Iterator[Entry]:
        read, _ = self._topology.policy(policy)
        kinds, said = self._topology.kinds, _said(self._whole.get(policy, ()))
        named = [to_target(ref, kinds.get(ref.kind), read.node.namespace) for ref in read.refs]
        references = [reference for reference in named if can_be_said(reference)]
        for reference in references or [to_node(self._topology, policy)]:
            yield Entry(reference, said)


def _said(conditions: Iterable[Condition]) -> tuple[Said, ...]:
    return tuple(sorted(Said(*condition[1:]) for condition in conditions))
