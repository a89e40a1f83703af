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
from kube_sync.topology.effective import Combined, EffectivePolicies, EffectivePolicy
from kube_sync.topology.graph import Graph, Path, PathIndex
from kube_sync.topology.identity import NAMESPACE, GroupKind, Locator
from kube_sync.topology.linking import Edge, Linker, Rewired
from kube_sync.topology.links import Link
from kube_sync.topology.nodes import Body, Kind, Node, Role
from kube_sync.topology.policies import Policy, PolicyKind, policy_of
from kube_sync.topology.policy_statuses import Conflict, PolicyStatuses
from kube_sync.topology.state import Difference, State
from kube_sync.topology.targets import Aim, aim

_NAMESPACES = Kind(NAMESPACE, namespaced=False)
_SPACES = f"{NAMESPACE.kind.lower()}:"  # the prefix of the locators of namespaces


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
        self._linker = Linker(links, self._state.view)
        self._allow_loops = allow_loops
        self._read: dict[Locator, tuple[Policy, Aim]] = {}
        self.all, self.targetables = Graph(), Graph()
        self.policies, self.objects = Graph(), Graph()
        self._of_role = {
            Role.TARGETABLE: self.targetables,
            Role.POLICY: self.policies,
            Role.OBJECT: self.objects,
        }
        self._ways = PathIndex(self.targetables)
        self._effective = {
            id_: EffectivePolicies(_from(kind, roots), self._state.nodes, self._ways)
            for id_, kind in self.policy_kinds.items()
        }
        self._standings = {id_: PolicyStatuses(found) for id_, found in self._effective.items()}
        self._told = False  # whether the statuses are up to date

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
            affected, rewired = self._follow(difference)
            self._refuse_loops(rewired)
        except Terminal:
            self._state.restore(difference)
            self._follow(difference)
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
        return self._ways.to(locator)

    def effective(self, kind: GroupKind) -> Iterator[EffectivePolicy]:
        """Yield the effective policies of a kind on each path to where it takes effect."""
        policies = self._effective[kind]
        for end in self._ends(policies.kind):
            yield from policies.at(end)

    def effective_at(self, kind: GroupKind, end: Locator) -> tuple[EffectivePolicy, ...] | None:
        """Return the effective policies of a kind on each path to a node.

        None if the kind does not take effect at it. What has not changed is the same object.
        """
        policies = self._effective[kind]
        level = policies.kind.level
        takes = self._state.nodes[end].kind in level if level else bool(policies.attached(end))
        return policies.at(end) if takes else None

    def policy(self, locator: Locator) -> tuple[Policy, Aim]:
        """Return a parsed policy, and its targets."""
        return self._read[locator]

    def in_force_at(self, locator: Locator) -> frozenset[Locator]:
        """Return the targets of a policy at which no other one replaces it."""
        policy, found = self._read[locator]
        effective = self._effective[policy.node.kind]
        return frozenset(t for t in found.targets if policy in effective.attached(t))

    def conditions(self) -> list[Condition]:
        """Return the conditions of policies, and of invalid objects."""
        found = [c for said in self._state.said.values() for c in said]
        found += [c for said in self._linker.said.values() for c in said]
        for standing in self._looked():
            found += standing.conditions()
        return sorted(set(found))

    def conditions_of(
        self, policy: Locator, targets: Collection[Locator], combined: Iterable[Combined]
    ) -> tuple[Condition, ...]:
        """Return the conditions of a policy as if it had these targets and paths alone.

        `combined` are the combinations with it there.
        """
        self._looked()
        return self._standings[self[policy].kind].of(policy, targets, combined)

    def conflicts(self) -> list[Conflict]:
        """Return where policies of one target contradict each other."""
        return sorted({c for standing in self._looked() for c in standing.conflicts()})

    def _looked(self) -> Iterable[PolicyStatuses]:
        if not self._told:
            self._told = True
            for id_, standing in self._standings.items():
                read = {name: both for name, both in self._read.items() if both[0].node.kind == id_}
                found = (one.combined for one in self.effective(id_) if one.combined)
                standing.look(read, {id(combined): combined for combined in found}.values())
        return self._standings.values()

    def _ends(self, kind: PolicyKind) -> Sequence[Locator]:
        if not kind.level:
            return self._effective[kind.id].targets()
        return sorted(locator for level in kind.level for locator in self._state.of(level))

    def _follow(self, difference: Difference) -> tuple[frozenset[Locator], Rewired]:
        """Update the edges and everything derived from the nodes."""
        self._told = False
        rewired = Rewired()
        for locator in difference.gone:
            self._linker.forget(locator, rewired)
        new = {locator for locator in difference.come if locator not in self.all}
        for locator in new:
            self.all.add(locator)
            self._of_role[difference.come[locator].role].add(locator)
        topics = difference.topics | self._state.view.outdated(difference.topics)
        stale = {n for n in self._linker.watching(topics) if n in self._state.nodes}
        targets = self._ask(sorted(stale | difference.come.keys()), rewired)
        touched = self._rewire(rewired) | new | difference.gone
        for locator in difference.gone:
            self._read.pop(locator, None)
            for graph in (self.all, *self._of_role.values()):
                graph.remove(locator)
        return self._forget(touched, targets), rewired

    def _ask(self, asked: Iterable[Locator], rewired: Rewired) -> set[Locator]:
        """Recompute the edges of nodes; return the targets of policies that may have changed."""
        targets: set[Locator] = set()
        for locator in asked:
            node = self._state.nodes[locator]
            self._state.view.begin(node)
            others: list[Edge] = [(node.owner, locator)] if node.owner else []
            if node.role is Role.POLICY:
                aimed = self._aim(node, targets)
                others += [(locator, target) for target in aimed]
            self._linker.ask(node, others, rewired)
        return targets

    def _aim(self, node: Node, targets: set[Locator]) -> tuple[Locator, ...]:
        """Parse a policy and resolve its targets; add them to `targets` if it has changed."""
        kind = self.policy_kinds[node.kind]
        policy = policy_of(kind, node, self._state.kinds)
        before = self._read.get(node.locator)
        if before is not None and before[0].says_the_same(policy):
            policy = before[0]  # keep the same object: results cached for it stay valid
        found = aim(kind, policy, self._state.kinds, self._state.view)
        self._read[node.locator] = policy, found
        if before is None or before[0] is not policy:
            targets.update(found.targets)
        return found.targets

    def _rewire(self, rewired: Rewired) -> set[Locator]:
        """Apply the changes of edges; return the nodes that they point to."""
        for edge in rewired.gone:
            if not self._linker.says(edge):
                for graph in (self.all, *self._of_role.values()):
                    graph.disconnect(*edge)
        for parent, child in rewired.come:
            self.all.connect(parent, child)
            role = self._state.nodes[parent].role
            if role is self._state.nodes[child].role:
                self._of_role[role].connect(parent, child)
        return {child for _, child in rewired.gone | rewired.come}

    def _forget(self, touched: set[Locator], targets: set[Locator]) -> frozenset[Locator]:
        """Attach policies again to their targets, and invalidate what has changed."""
        changed = touched | targets
        for target in changed:
            self._attach(target)
        spaces = {n for n in changed if n.startswith(_SPACES)}
        inside = {n for space in spaces for n in self._state.inside(space.removeprefix(_SPACES))}
        affected = frozenset(self.targetables.below(changed | inside) | changed)
        self._ways.forget(affected)
        for policies in self._effective.values():
            policies.forget(affected)
        return affected

    def _attach(self, target: Locator) -> None:
        found: dict[GroupKind, list[Policy]] = {kind: [] for kind in self._effective}
        for parent in self.all.parents(target):
            policy = self._read[parent][0] if parent in self._read else None
            if policy is not None and not policy.problem and not policy.leaving:
                found[policy.node.kind].append(policy)
        for kind, policies in found.items():
            self._effective[kind].attach(target, policies)

    def _refuse_loops(self, rewired: Rewired) -> None:
        if self._allow_loops:
            self._ways.looping = self.targetables.loop(self.targetables) is not None
            return
        loop = self.all.loop({end for edge in rewired.come for end in edge})
        if loop is not None:
            msg = f"loop detected: {' -> '.join(loop)}"
            raise Terminal(msg)


def _from(kind: PolicyKind, roots: Collection[GroupKind]) -> PolicyKind:
    return replace(kind, origins=kind.origins.union(roots)) if kind.origins and roots else kind
