"""Computes `status.ancestors` of policies: the conditions of a policy for each of its ancestors.

An ancestor is a Gateway at or above a target (PolicyAncestorStatus: implementations should use the
Gateway); without a Gateway, the target itself; if no target exists, what the policy names; if that
is invalid or not allowed in a status, the policy itself. Invariant: conditions for an ancestor are
those on the paths through it, for the targets at or below it. Policies of the Gateway API itself
get no condition that they are in force: another controller enforces them, and only it knows. Group
and kind of a reference are always set, as the API server would default those of a Gateway. A policy
may name what no reference in a status may contain, since its own definition decides that: one
invalid reference makes the API server refuse the whole status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kube_sync.kube.conditions import Condition, Json
from kube_sync.topology import (
    NAMESPACE,
    EffectivePolicy,
    GroupKind,
    Kind,
    Locator,
    Topology,
    locator,
)
from kube_sync.topology import Condition as NodeCondition
from kube_sync.topology.conditions import ACCEPTED, EFFECTS, RESOLVED
from kube_sync.topology.effective import Combined
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.policies import TargetRef
from kube_sync.topology.status.target_conditions import DOMAIN, exhaust
from kube_sync.topology.statuslists import Entry

# Patterns and lengths of ParentReference (Gateway API, shared_types.go).
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SHAPES: Final = {
    "group": (re.compile(rf"|{_LABEL}(\.{_LABEL})*"), 253),
    "kind": (re.compile(r"[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?"), 63),
    "namespace": (re.compile(_LABEL), 63),
    "name": (re.compile(r".+", re.DOTALL), 253),
    "sectionName": (re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253),
}


def reference_to_node(topology: Topology, locator: Locator) -> Json:
    """Return a reference to an object, or to a section of one."""
    node = topology[locator]
    owner = topology[node.owner] if node.owner else node
    section = locator.partition("#")[2] if node.owner else ""
    return _reference(owner.kind, owner.namespace, owner.name, section)


def reference_to_target(ref: TargetRef, known: Kind | None, namespace: str) -> Json:
    """Return a reference to what a policy in a namespace names, whether or not it exists."""
    inside = "" if known is not None and not known.namespaced else ref.namespace or namespace
    return _reference(ref.kind, inside, ref.name, ref.section)


def is_valid_reference(reference: Json) -> bool:
    """Return whether a reference is valid in a status."""
    return all(
        len(reference[field]) <= length and pattern.fullmatch(reference[field])
        for field, (pattern, length) in _SHAPES.items()
        if field in reference
    )


def _reference(kind: GroupKind, namespace: str, name: str, section: str) -> Json:
    reference = {"group": kind.group, "kind": kind.kind, "namespace": namespace, "name": name}
    reference["sectionName"] = section
    optional = ("namespace", "sectionName")
    return {field: value for field, value in reference.items() if value or field not in optional}


CONTROLLER: Final = f"{DOMAIN}topology"
_POLICY_CONDITIONS: Final = frozenset({ACCEPTED, RESOLVED, *EFFECTS})
_SLICE = 2000  # policies or paths
# Groups of the Gateway API: its implementations enforce their policies.
_FOREIGN_GROUPS = frozenset({"gateway.networking.k8s.io", "gateway.networking.x-k8s.io"})


def is_policy_condition(type_: object) -> bool:
    """Return whether a condition of this type is one of ours on a policy."""
    name = str(type_)  # any JSON, also what is not hashable
    return name in _POLICY_CONDITIONS or name.startswith(DOMAIN)


class Ancestors:
    """The ancestor entries of all policies, for the present topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._namespaces: dict[str, Locator] = {}
        self._above: dict[Locator, tuple[Locator, ...]] = {}  # by target: its ancestors
        # By policy: its ancestors, and the targets of each.
        self._below: dict[Locator, dict[Locator, list[Locator]]] = {}
        self._any: set[Locator] = set()
        # By policy and ancestor: the combinations with the policy on paths through the ancestor.
        self._parts: dict[tuple[Locator, Locator], dict[int, Combined]] = {}
        self._whole: dict[Locator, list[NodeCondition]] = {}
        self._ancestors_by_node: dict[Locator, tuple[Locator, ...]] = {}
        self._computation = self._compute()

    def slices(self) -> Iterator[None]:
        """Compute all paths, slice by slice; reading a result before the end computes the rest."""
        return self._computation

    def of(self, policy: Locator) -> list[Entry]:
        """Return the entries of a policy."""
        exhaust(self._computation)
        below = sorted(self._below[policy].items())
        if not below:
            return list(self._without_targets(policy))
        return [
            Entry(reference_to_node(self._topology, ancestor), self._at(policy, ancestor, targets))
            for ancestor, targets in below
        ]

    def whole(self, policy: Locator) -> tuple[Condition, ...]:
        """Return the conditions of a policy for all its ancestors together."""
        exhaust(self._computation)
        return self._conditions(policy, self._whole.get(policy, ()))

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

    def _compute(self) -> Iterator[None]:
        for number, policy in enumerate(self._topology.policies, 1):
            below = self._below[policy] = self._by_ancestor(policy)
            self._any.update(below)
            if number % _SLICE == 0:
                yield
        for kind in sorted(self._topology.policy_kinds):
            yield from self._add_combinations(self._topology.effective(kind))
        yield
        for condition in self._topology.conditions():
            self._whole.setdefault(condition.locator, []).append(condition)

    def _add_combinations(self, found: Iterable[EffectivePolicy]) -> Iterator[None]:
        seen: set[tuple[int, tuple[Locator, ...]]] = set()
        for number, one in enumerate(found, 1):
            if number % _SLICE == 0:
                yield
            if one.combined is None:
                continue
            ancestors = self._ancestors_on(one)
            if (
                id(one.combined),
                ancestors,
            ) in seen:  # many paths differ only below their ancestors
                continue
            seen.add((id(one.combined), ancestors))
            for policy in one.combined.policies:
                own = policy.node.locator
                for ancestor in self._below[own].keys() & set(ancestors):
                    parts = self._parts.setdefault((own, ancestor), {})
                    parts[id(one.combined)] = one.combined

    def _ancestors_on(self, one: EffectivePolicy) -> tuple[Locator, ...]:
        """Return the ancestors on a path: nodes, their owners, and their namespaces."""
        found: dict[Locator, None] = {}
        for name in one.path:
            near = self._ancestors_by_node.get(name)
            if near is None:
                near = self._ancestors_by_node[name] = self._ancestors_at(name)
            found.update(dict.fromkeys(near))
        return tuple(found)

    def _ancestors_at(self, name: Locator) -> tuple[Locator, ...]:
        node = self._topology[name]
        near = (self._namespace(node.namespace), node.owner, name)
        return tuple(one for one in near if one is not None and one in self._any)

    def _namespace(self, namespace: str) -> Locator:
        found = self._namespaces.get(namespace)
        if found is None:
            found = self._namespaces[namespace] = locator(NAMESPACE, "", namespace)
        return found

    def _at(
        self, policy: Locator, ancestor: Locator, targets: list[Locator]
    ) -> tuple[Condition, ...]:
        parts = self._parts.get((policy, ancestor), {}).values()
        return self._conditions(policy, self._topology.conditions_of(policy, targets, parts))

    def _without_targets(self, policy: Locator) -> Iterator[Entry]:
        read, _ = self._topology.policy(policy)
        kinds, conditions = (
            self._topology.kinds,
            self._conditions(policy, self._whole.get(policy, ())),
        )
        if not conditions:
            return
        named = [
            reference_to_target(ref, kinds.get(ref.kind), read.node.namespace) for ref in read.refs
        ]
        references = [reference for reference in named if is_valid_reference(reference)]
        for reference in references or [reference_to_node(self._topology, policy)]:
            yield Entry(reference, conditions)

    def _conditions(
        self, policy: Locator, conditions: Iterable[NodeCondition]
    ) -> tuple[Condition, ...]:
        is_foreign = self._topology[policy].kind.group in _FOREIGN_GROUPS
        found = (
            Condition(*one[1:]) for one in conditions if not (is_foreign and one.type in EFFECTS)
        )
        return tuple(sorted(found))
