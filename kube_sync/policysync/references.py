"""Indexes of policies by the Gateways and ListenerSets of the hub that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.targets import Targets


class Index:
    """Policies by the objects of one kind that they name."""

    def __init__(self) -> None:
        self._by_object: dict[ObjectKey, set[PolicyId]] = {}
        self._by_policy: dict[PolicyId, frozenset[ObjectKey]] = {}

    def put(self, policy: PolicyId, named: frozenset[ObjectKey]) -> None:
        """Set the objects that a policy names."""
        for key in self._by_policy.pop(policy, frozenset()):
            self._by_object[key].discard(policy)
            if not self._by_object[key]:
                del self._by_object[key]
        if named:
            self._by_policy[policy] = named
        for key in named:
            self._by_object.setdefault(key, set()).add(policy)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(list(self._by_object))

    def of(self, objects: Iterable[ObjectKey]) -> list[PolicyId]:
        """Return the policies that name any of these, in order."""
        return sorted({policy for key in objects for policy in self._by_object.get(key, ())})

    def within(self, namespace: str) -> list[PolicyId]:
        """Return the policies that name any object in a namespace, in order."""
        return self.of(key for key in self if key.namespace == namespace)


class References:
    """The indexes of all references."""

    def __init__(self) -> None:
        self.gateways = Index()  # named directly, or through a ListenerSet
        self.listener_sets = Index()

    def put(self, policy: PolicyId, found: Targets) -> None:
        """Set the references of a policy."""
        self.gateways.put(policy, found.named)
        self.listener_sets.put(policy, found.listener_sets)

    def all(self) -> list[PolicyId]:
        """Return the policies that name anything, in order."""
        found = (*self.gateways.of(self.gateways), *self.listener_sets.of(self.listener_sets))
        return sorted(set(found))
