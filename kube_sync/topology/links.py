"""Links: functions that compute the edges of a node, from the child's or from the parent's side.

Invariant: everything that a link reads is recorded, found or not, so that exactly the nodes whose
edges may differ are recomputed after a change. Without a ReferenceGrant no link leads into another
namespace; a grant applies in its own namespace, for the kinds and namespaces that it names, and a
`to` without a name is for all of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from kube_sync.topology.conditions import Condition
from kube_sync.topology.nodes import Body, GroupKind, Kind, Locator, Node, Role
from kube_sync.topology.raw_json import Malformed, items, text

_Result = TypeVar("_Result")

# A locator; (kind, namespace) for all of these, where None is any namespace; (kind, key) for those
# under a key of its index; or the key of a shared result.
Topic = Hashable

Collections = Mapping[GroupKind, Mapping[str, Mapping[Locator, Node]]]  # by kind and namespace
Indexed = Mapping[tuple[GroupKind, Hashable], Mapping[Locator, Node]]  # by kind and key


class View:
    """The other nodes as one node reads them while its links run; records the topics."""

    def __init__(
        self,
        nodes: Mapping[Locator, Node],
        sections: Mapping[Locator, Sequence[Node]],
        collections: Collections,
        indexed: Indexed | None = None,
    ) -> None:
        self._nodes = nodes
        self._sections = sections
        self._collections = collections
        self._indexed: Indexed = {} if indexed is None else indexed
        self._shared: dict[Hashable, tuple[Any, set[Topic]]] = {}
        self._node: Node | None = None
        self.topics: set[Topic] = set()
        self.conditions: list[Condition] = []

    def begin(self, node: Node) -> None:
        """Start for another node, and clear what the last one read."""
        self._node, self.topics, self.conditions = node, set(), []

    def get(self, locator: Locator) -> Node | None:
        """Return a node, if it exists."""
        self.topics.add(locator)
        return self._nodes.get(locator)

    def sections(self, locator: Locator) -> Sequence[Node]:
        """Return the sections of an object, in its order."""
        self.topics.add(locator)
        return self._sections.get(locator, ())

    def all(self, kind: GroupKind, namespace: str = "") -> Iterable[Node]:
        """Return the nodes of a kind in a namespace, unsorted."""
        self.topics.add((kind, namespace))
        return self._collections.get(kind, {}).get(namespace, {}).values()

    def in_all_namespaces(self, kind: GroupKind) -> Iterable[Node]:
        """Return the nodes of a kind in all namespaces, unsorted."""
        self.topics.add((kind, None))
        namespaces = self._collections.get(kind, {}).values()
        return (node for nodes in namespaces for node in nodes.values())

    def indexed(self, kind: GroupKind, key: Hashable) -> Iterable[Node]:
        """Return the nodes of a kind under a key of its index, unsorted."""
        self.topics.add((kind, key))
        return self._indexed.get((kind, key), {}).values()

    def shared(self, key: Hashable, make: Callable[[], _Result]) -> _Result:
        """Return the result of `make`, cached for all nodes with the same key.

        It is recomputed after a change of anything that `make` read.
        """
        outer, self.topics = self.topics, set()
        try:
            if key not in self._shared:
                result = make()
                self._shared[key] = result, self.topics
        finally:
            self.topics = outer | self.topics | {key}
        found: _Result = self._shared[key][0]
        return found

    def invalidate(self, changed: AbstractSet[Topic]) -> set[Topic]:
        """Invalidate the shared results that read any of these; return their keys."""
        keys = {key for key, (_, read) in self._shared.items() if not read.isdisjoint(changed)}
        for key in keys:
            del self._shared[key]
        return keys

    def add_condition(self, kind: str, reason: str, message: str, status: str = "False") -> None:
        """Add a condition to the node whose links run."""
        assert self._node is not None  # noqa: S101 - begin() comes first
        self.conditions.append(Condition(self._node.locator, kind, status, reason, message))


Linked = Callable[[Node, View], Iterable[Locator]]


@dataclass(frozen=True, slots=True)
class Link:
    """Edges from nodes of one kind to nodes of another; one of the two functions is given.

    `parents` returns those of a child, `children` those of a parent. Missing nodes are left out
    until they exist.
    """

    parent: GroupKind
    child: GroupKind
    parents: Linked | None = None
    children: Linked | None = None


REFERENCE_GRANT = Kind(GroupKind("gateway.networking.k8s.io", "ReferenceGrant"), Role.OBJECT)


def is_granted(view: View, by: tuple[GroupKind, str], of: tuple[GroupKind, str, str]) -> bool:
    """Return whether a kind in a namespace may refer to an object: kind, namespace and name."""
    kind, namespace, name = of
    grants = view.all(REFERENCE_GRANT.id, namespace)
    return any(_allows(grant, by, (kind, name)) for grant in grants)


def _allows(grant: Node, by: tuple[GroupKind, str], of: tuple[GroupKind, str]) -> bool:
    try:
        return any(_is_from(entry, by) for entry in items(grant.body, "spec", "from")) and any(
            _is_to(entry, of) for entry in items(grant.body, "spec", "to")
        )
    except Malformed:
        return False


def _is_from(entry: Body, by: tuple[GroupKind, str]) -> bool:
    return (GroupKind(text(entry, "group"), text(entry, "kind")), text(entry, "namespace")) == by


def _is_to(entry: Body, of: tuple[GroupKind, str]) -> bool:
    named = text(entry, "name")
    return GroupKind(text(entry, "group"), text(entry, "kind")) == of[0] and named in ("", of[1])
