"""The topology: the graph of what policies attach to, updated incrementally from objects.

Invariant: it depends on the present objects alone, neither on their order nor on earlier ones; so
an update gives the same as a rebuild, at the cost of what the update touches. An update that would
close a loop where none is allowed changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kube_sync.errors import Terminal
from kube_sync.topology.conditions import Condition
from kube_sync.topology.edges import Edge, EdgeChanges, EdgeIndex
from kube_sync.topology.effective import Combined, EffectivePolicies, EffectivePolicy
from kube_sync.topology.graph import Graph, Path, PathIndex
from kube_sync.topology.links import Link
from kube_sync.topology.nodes import NAMESPACE, Body, GroupKind, Kind, Locator, Node, Role
from kube_sync.topology.policies import Policy, PolicyKind, policy_of
from kube_sync.topology.policy_statuses import Conflict, PolicyStatuses
from kube_sync.topology.state import Difference, State
from kube_sync.topology.targets import ResolvedTargets, resolve_targets

_NAMESPACES = Kind(NAMESPACE, namespaced=False)
_NAMESPACE_PREFIX = f"{NAMESPACE.kind.lower()}:"  # the prefix of the locators of namespaces


class Topology:
    """Nodes, edges and effective policies of a set of objects."""

    def __init__(
        self,
        kinds: Iterable[Kind],
        links: Iterable[Link] = (),
        policies: Iterable[PolicyKind] = (),
        *,
        allow_loops: bool = False,
        roots: Collection[GroupKind] = (),
    ) -> None:
        """Create an empty one; paths of all policies may begin at kinds of `roots`, too."""
        self.policy_kinds = {kind.id: kind for kind in policies}
        own = {id_: kind.node_kind for id_, kind in self.policy_kinds.items()}
        self._state = State({kind.id: kind for kind in (_NAMESPACES, *kinds)} | own)
        self._edge_index = EdgeIndex(links, self._state.view)
        self._allow_loops = allow_loops
        self._parsed: dict[Locator, tuple[Policy, ResolvedTargets]] = {}
        self.all, self.targetables = Graph(), Graph()
        self.policies, self.objects = Graph(), Graph()
        self._of_role = {
            Role.TARGETABLE: self.targetables,
            Role.POLICY: self.policies,
            Role.OBJECT: self.objects,
        }
        self._paths = PathIndex(self.targetables)
        self._effective = {
            id_: EffectivePolicies(_with_roots(kind, roots), self._state.nodes, self._paths)
            for id_, kind in self.policy_kinds.items()
        }
        self._statuses = {id_: PolicyStatuses(found) for id_, found in self._effective.items()}
        self._statuses_current = False  # whether the statuses are up to date

    @classmethod
    def of(
        cls,
        objects: Iterable[Body],
        kinds: Iterable[Kind],
        links: Iterable[Link] = (),
        policies: Iterable[PolicyKind] = (),
        *,
        allow_loops: bool = False,
        roots: Collection[GroupKind] = (),
    ) -> Topology:
        """Build the topology of objects. Raises Terminal: a loop, or an object without a name."""
        topology = cls(kinds, links, policies, allow_loops=allow_loops, roots=roots)
        topology.update(objects)
        return topology

    def update(
        self, objects: Iterable[Body] = (), deleted: Iterable[Locator] = ()
    ) -> frozenset[Locator]:
        """Add or replace objects, and remove deleted ones; unknown kinds are ignored.

        Objects are kept by reference, so the caller must not change them. Returns the nodes whose
        effective policies may differ. Raises Terminal: a loop, or an object without a name; then
        nothing has changed.
        """
        difference = Difference()
        try:
            for body in objects:
                self._state.put(body, difference)
            for locator in deleted:
                self._state.drop(locator, difference)
            affected, changes = self._apply(difference)
            self._check_loops(changes)
        except Terminal:
            self._state.restore(difference)
            self._apply(difference)
            raise
        return affected

    def __getitem__(self, locator: Locator) -> Node:
        return self._state.nodes[locator]

    def __contains__(self, locator: Locator) -> bool:
        return locator in self._state.nodes

    @property
    def kinds(self) -> Mapping[GroupKind, Kind]:
        """The kinds that it has nodes for, those of policies among them."""
        return self._state.kinds

    def nodes(self) -> Iterator[Node]:
        """Yield every node, sorted by locator."""
        for locator in sorted(self._state.nodes):
            yield self._state.nodes[locator]

    def paths_to(self, locator: Locator) -> tuple[Path, ...]:
        """Return the paths of targetables from roots to one of them."""
        return self._paths.to(locator)

    def effective(self, kind: GroupKind) -> Iterator[EffectivePolicy]:
        """Yield the effective policies of a kind on each path to where it takes effect."""
        policies = self._effective[kind]
        for end in self._path_ends(policies.kind):
            yield from policies.at(end)

    def effective_at(self, kind: GroupKind, end: Locator) -> tuple[EffectivePolicy, ...] | None:
        """Return the effective policies of a kind on each path to a node.

        None if the kind does not take effect at it. What has not changed is the same object.
        """
        policies = self._effective[kind]
        level = policies.kind.level
        takes_effect = (
            self._state.nodes[end].kind in level if level else bool(policies.attached(end))
        )
        return policies.at(end) if takes_effect else None

    def policy(self, locator: Locator) -> tuple[Policy, ResolvedTargets]:
        """Return a parsed policy, and its targets."""
        return self._parsed[locator]

    def in_force_at(self, locator: Locator) -> frozenset[Locator]:
        """Return the targets of a policy at which no other one replaces it."""
        policy, found = self._parsed[locator]
        effective = self._effective[policy.node.kind]
        return frozenset(t for t in found.targets if policy in effective.attached(t))

    def conditions(self) -> list[Condition]:
        """Return the conditions of policies, and of invalid objects."""
        found = [c for conditions in self._state.conditions.values() for c in conditions]
        found += [c for conditions in self._edge_index.conditions.values() for c in conditions]
        for statuses in self._current_statuses():
            found += statuses.conditions()
        return sorted(set(found))

    def conditions_of(
        self, policy: Locator, targets: Collection[Locator], combined: Iterable[Combined]
    ) -> tuple[Condition, ...]:
        """Return the conditions of a policy as if it had these targets and paths alone.

        `combined` are the combinations with it there.
        """
        self._current_statuses()
        return self._statuses[self[policy].kind].of(policy, targets, combined)

    def conflicts(self) -> list[Conflict]:
        """Return where policies of one target contradict each other."""
        return sorted({c for statuses in self._current_statuses() for c in statuses.conflicts()})

    def _current_statuses(self) -> Iterable[PolicyStatuses]:
        if not self._statuses_current:
            self._statuses_current = True
            for id_, statuses in self._statuses.items():
                parsed = {
                    name: both for name, both in self._parsed.items() if both[0].node.kind == id_
                }
                found = (one.combined for one in self.effective(id_) if one.combined)
                statuses.update(parsed, {id(combined): combined for combined in found}.values())
        return self._statuses.values()

    def _path_ends(self, kind: PolicyKind) -> Sequence[Locator]:
        if not kind.level:
            return self._effective[kind.id].targets()
        return sorted(locator for level in kind.level for locator in self._state.of(level))

    def _apply(self, difference: Difference) -> tuple[frozenset[Locator], EdgeChanges]:
        """Update the edges and everything derived from the nodes."""
        self._statuses_current = False
        changes = EdgeChanges()
        for locator in difference.removed:
            self._edge_index.remove(locator, changes)
        new = {locator for locator in difference.added if locator not in self.all}
        for locator in new:
            self.all.add(locator)
            self._of_role[difference.added[locator].role].add(locator)
        topics = difference.topics | self._state.view.invalidate(difference.topics)
        stale = {n for n in self._edge_index.readers(topics) if n in self._state.nodes}
        targets = self._recompute(sorted(stale | difference.added.keys()), changes)
        touched = self._apply_edges(changes) | new | difference.removed
        for locator in difference.removed:
            self._parsed.pop(locator, None)
            for graph in (self.all, *self._of_role.values()):
                graph.remove(locator)
        return self._invalidate(touched, targets), changes

    def _recompute(self, locators: Iterable[Locator], changes: EdgeChanges) -> set[Locator]:
        """Recompute the edges of nodes; return the targets of policies that may have changed."""
        targets: set[Locator] = set()
        for locator in locators:
            node = self._state.nodes[locator]
            self._state.view.begin(node)
            others: list[Edge] = [(node.owner, locator)] if node.owner else []
            if node.role is Role.POLICY:
                resolved = self._resolve(node, targets)
                others += [(locator, target) for target in resolved]
            self._edge_index.recompute(node, others, changes)
        return targets

    def _resolve(self, node: Node, targets: set[Locator]) -> tuple[Locator, ...]:
        """Parse a policy and resolve its targets; add them to `targets` if it has changed."""
        kind = self.policy_kinds[node.kind]
        policy = policy_of(kind, node, self._state.kinds)
        before = self._parsed.get(node.locator)
        if before is not None and before[0].equals(policy):
            policy = before[0]  # keep the same object: results cached for it stay valid
        found = resolve_targets(kind, policy, self._state.kinds, self._state.view)
        self._parsed[node.locator] = policy, found
        if before is None or before[0] is not policy:
            targets.update(found.targets)
        return found.targets

    def _apply_edges(self, changes: EdgeChanges) -> set[Locator]:
        """Apply the changes of edges; return the nodes that they point to."""
        for edge in changes.removed:
            if not self._edge_index.has_edge(edge):
                for graph in (self.all, *self._of_role.values()):
                    graph.disconnect(*edge)
        for parent, child in changes.added:
            self.all.connect(parent, child)
            role = self._state.nodes[parent].role
            if role is self._state.nodes[child].role:
                self._of_role[role].connect(parent, child)
        return {child for _, child in changes.removed | changes.added}

    def _invalidate(self, touched: set[Locator], targets: set[Locator]) -> frozenset[Locator]:
        """Attach policies again to their targets, and invalidate what has changed."""
        changed = touched | targets
        for target in changed:
            self._attach(target)
        namespaces = {n for n in changed if n.startswith(_NAMESPACE_PREFIX)}
        inside = {
            n
            for namespace in namespaces
            for n in self._state.in_namespace(namespace.removeprefix(_NAMESPACE_PREFIX))
        }
        affected = frozenset(self.targetables.below(changed | inside) | changed)
        self._paths.invalidate(affected)
        for policies in self._effective.values():
            policies.invalidate(affected)
        return affected

    def _attach(self, target: Locator) -> None:
        found: dict[GroupKind, list[Policy]] = {kind: [] for kind in self._effective}
        for parent in self.all.parents(target):
            policy = self._parsed[parent][0] if parent in self._parsed else None
            if policy is not None and not policy.problem and not policy.deleting:
                found[policy.node.kind].append(policy)
        for kind, policies in found.items():
            self._effective[kind].attach(target, policies)

    def _check_loops(self, changes: EdgeChanges) -> None:
        if self._allow_loops:
            self._paths.has_loops = self.targetables.loop(self.targetables) is not None
            return
        loop = self.all.loop({end for edge in changes.added for end in edge})
        if loop is not None:
            msg = f"loop detected: {' -> '.join(loop)}"
            raise Terminal(msg)


def _with_roots(kind: PolicyKind, roots: Collection[GroupKind]) -> PolicyKind:
    return replace(kind, origins=kind.origins.union(roots)) if kind.origins and roots else kind
