"""The nodes that policies affect, for conditions on targets.

Invariant: a node is affected by a policy with a rule in force on a path through the node, from
where the policy attaches down to the end of the path (GEP-713, target object status).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_sync.topology.conditions import Condition, listed
from kube_sync.topology.effective import Combined
from kube_sync.topology.graph import Path
from kube_sync.topology.nodes import NAMESPACE, GroupKind, Locator, locator
from kube_sync.topology.topology import Topology

_DOMAIN = "kube-sync.io"


class Effect(NamedTuple):
    """A policy that has an effect on a path."""

    policy: Locator
    path: Path
    start: int  # index of the first node that it affects; it affects all after it too
    namespaces: tuple[Locator, ...]  # namespaces on the path that it targets


def affected(topology: Topology, kinds: Iterable[GroupKind]) -> list[Condition]:
    """Return a condition `<Kind>Affected` for each node that policies of these kinds affect."""
    return [
        Condition(node, condition_type(kind), "True", "Accepted", message(kind, by))
        for kind in sorted(set(kinds))
        for node, by in sorted(_of_kind(topology, kind).items())
    ]


def effects(topology: Topology, kind: GroupKind) -> Iterator[Effect]:
    """Yield the effects of the policies of a kind, path by path.

    The topology may not change meanwhile.
    """
    known: dict[int, list[_Attachment]] = {}  # by id of the combined policy: its sources in force
    attachments: dict[Locator, _Attachment] = {}
    nearby: _Nearby = {}
    for one in topology.effective(kind):
        if one.combined is None:
            continue
        found = known.get(id(one.combined))
        if found is None:
            found = known[id(one.combined)] = []
            for policy in _in_force(one.combined):
                if policy not in attachments:
                    attachments[policy] = _Attachment(topology, policy, nearby)
                found.append(attachments[policy])
        for attachment in found:
            effect = attachment.on(one.path)
            if effect is not None:
                yield effect


def condition_type(kind: GroupKind) -> str:
    """Return the type of the condition for one kind of policies."""
    return f"{_DOMAIN}/{kind.kind}Affected"


def paths_type(kind: GroupKind) -> str:
    """Return the type of the condition with the effective policy of each path."""
    return f"{_DOMAIN}/{kind.kind}Paths"


def message(kind: GroupKind, by: Iterable[Locator]) -> str:
    """Return the message of the condition on a node that these policies affect."""
    names = listed((name.partition(":")[2] for name in by), " ")
    return f"Object affected by {kind.kind} [{names}]"


def _of_kind(topology: Topology, kind: GroupKind) -> dict[Locator, set[Locator]]:
    found: dict[Locator, set[Locator]] = {}
    for policy, path, start, namespaces in effects(topology, kind):
        for node in (*namespaces, *path[start:]):
            found.setdefault(node, set()).add(policy)
    return found


def _in_force(combined: Combined) -> list[Locator]:
    rules = combined.rules
    found = set(rules.sources.values())
    return sorted(found.union(*(parts.values() for parts in rules.parts.values())))


# By node: itself with its owner, and its namespace.
_Nearby = dict[Locator, tuple[frozenset[Locator | None], Locator]]


class _Attachment:
    """Where one policy attaches; results of a node are cached for all paths through it."""

    def __init__(self, topology: Topology, policy: Locator, nearby: _Nearby) -> None:
        self._topology = topology
        self._policy = policy
        self._nearby = nearby
        self._targets = topology.in_force_at(policy)
        self._has_namespace_targets = any(
            topology[target].kind == NAMESPACE for target in self._targets
        )
        self._known: dict[Locator, bool] = {}

    def on(self, path: Path) -> Effect | None:
        """Return the effect of the policy on a path, None if it does not attach to it."""
        for start, name in enumerate(path):
            is_attached = self._known.get(name)
            if is_attached is None:
                is_attached = self._known[name] = self._is_attached(name)
            if is_attached:
                return Effect(self._policy, path, start, self._namespaces(path, start))
        return None

    def _is_attached(self, name: Locator) -> bool:
        around, namespace = self._neighbourhood(name)
        return namespace in self._targets or not around.isdisjoint(self._targets)

    def _namespaces(self, path: Path, start: int) -> tuple[Locator, ...]:
        if not self._has_namespace_targets:
            return ()
        namespaces = dict.fromkeys(self._neighbourhood(name)[1] for name in path[start:])
        return tuple(namespace for namespace in namespaces if namespace in self._targets)

    def _neighbourhood(self, name: Locator) -> tuple[frozenset[Locator | None], Locator]:
        found = self._nearby.get(name)
        if found is None:
            node = self._topology[name]
            namespace = locator(NAMESPACE, "", node.namespace)
            found = self._nearby[name] = frozenset((name, node.owner)), namespace
        return found
