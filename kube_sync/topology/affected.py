"""Who is affected by policies, for those who look at a target and not at its policies.

Keeps true: a node is affected by a policy that a rule in force is from, on a path through the
node, from where the policy comes in down to the end (GEP-713, target object status).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_sync.topology.conditions import Condition, listed
from kube_sync.topology.effective import Combined, EffectivePolicy
from kube_sync.topology.graph import Path
from kube_sync.topology.identity import NAMESPACE, GroupKind, Locator, locator
from kube_sync.topology.topology import Topology

_DOMAIN = "kube-sync.io"


class Effect(NamedTuple):
    """A policy that has an effect on a node, on a path through it or, of a namespace, into it."""

    policy: Locator
    node: Locator
    path: Path


def affected(topology: Topology, kinds: Iterable[GroupKind]) -> list[Condition]:
    """Return a condition `<Kind>Affected` for each node that policies of these kinds affect."""
    return [
        Condition(node, condition_type(kind), "True", "Accepted", message(kind, by))
        for kind in sorted(set(kinds))
        for node, by in sorted(_of_kind(topology, kind).items())
    ]


def effects(topology: Topology, kind: GroupKind) -> Iterator[Effect]:
    """Yield what policies of a kind have an effect on, path by path."""
    known: dict[int, list[Locator]] = {}  # by what was combined: the policies that it is from
    for one in topology.effective(kind):
        if one.combined is not None:
            policies = known.get(id(one.combined))
            if policies is None:
                policies = known[id(one.combined)] = _in_force(one.combined)
            for policy in policies:
                for node in _below(topology, one, policy):
                    yield Effect(policy, node, one.path)


def condition_type(kind: GroupKind) -> str:
    """Return the type of the condition that says so of one kind of policies."""
    return f"{_DOMAIN}/{kind.kind}Affected"


def message(kind: GroupKind, by: Iterable[Locator]) -> str:
    """Return what the condition says where these policies affect a node."""
    names = listed((name.partition(":")[2] for name in by), " ")
    return f"Object affected by {kind.kind} [{names}]"


def _of_kind(topology: Topology, kind: GroupKind) -> dict[Locator, set[Locator]]:
    found: dict[Locator, set[Locator]] = {}
    for policy, node, _ in effects(topology, kind):
        found.setdefault(node, set()).add(policy)
    return found


def _in_force(combined: Combined) -> list[Locator]:
    rules = combined.rules
    found = set(rules.sources.values())
    return sorted(found.union(*(parts.values() for parts in rules.parts.values())))


def _below(topology: Topology, one: EffectivePolicy, policy: Locator) -> Iterator[Locator]:
    """Yield the nodes of a path from where a policy comes in, and a namespace that it is of."""
    targets = topology.in_force_at(policy)
    inside = False
    for name in one.path:
        node = topology[name]
        space = locator(NAMESPACE, "", node.namespace)
        around = {name, space, node.owner}.intersection(targets)
        inside = inside or bool(around)
        if space in around:
            yield space
        if inside:
            yield name
