"""Conditions on targets: which policies of a kind affect them.

Invariant: each is where the status has a place for it: of a Gateway, a GatewayClass, a Service and
a Namespace in `status.conditions`, of a ListenerSet likewise, of a listener in its own entry of its
owner's status, of a route in an entry for each parentRef through which it is affected. Rules and
ports have no status: their conditions are on the route and the Service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kube_sync.kube.conditions import Condition, Json
from kube_sync.topology import GroupKind, Locator, Node, Topology, locator
from kube_sync.topology.affected import Effect, condition_type, effects, message
from kube_sync.topology.gateway import GATEWAY, LISTENER, LISTENER_SET, ROUTES
from kube_sync.topology.raw_json import items, number, text
from kube_sync.topology.statuslists import Entry

_By = dict[Locator, dict[GroupKind, set[Locator]]]  # by target and kind: policies
_SLICE = 2000  # effects
_PARENTS = frozenset({GATEWAY, LISTENER_SET})
DOMAIN: Final = "kube-sync.io/"
_REFERENCE = ("group", "kind", "namespace", "name", "sectionName", "port")


class Affected:
    """The policies that affect each target, for the present topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._whole: _By = {}
        self._through: dict[Locator, _By] = {}  # of routes: by the listener or gateway on the path
        self._owners: dict[Locator, tuple[Locator, bool]] = {}
        self._computation = self._compute()

    def slices(self) -> Iterator[None]:
        """Compute all paths, slice by slice; reading a result before the end computes the rest."""
        return self._computation

    def of(self, node: Locator) -> tuple[Condition, ...]:
        """Return the conditions of an object or a listener."""
        exhaust(self._computation)
        return _conditions(self._whole.get(node, {}))

    def entries(self, route: Node) -> list[Entry]:
        """Return the entries of a route, by parentRef. Raises Malformed."""
        exhaust(self._computation)
        found = []
        for reference, parents in parents_of(self._topology, route):
            by = _merged(self._through.get(route.locator, {}).get(p, {}) for p in parents)
            if by:
                found.append(Entry(reference, _conditions(by)))
        return found

    def _compute(self) -> Iterator[None]:
        for kind in sorted(self._topology.policy_kinds):
            seen: set[tuple[Locator, Locator]] = set()
            for count, effect in enumerate(effects(self._topology, kind), 1):
                self._add(kind, effect, seen)
                if count % _SLICE == 0:
                    yield

    def _add(self, kind: GroupKind, effect: Effect, seen: set[tuple[Locator, Locator]]) -> None:
        policy, path, start, namespaces = effect
        for index, name in enumerate((*namespaces, *path[start:]), start - len(namespaces)):
            owner, is_route = self._owners.get(name) or self._owner(name)
            if is_route and (index == start or path[index - 1] != owner):
                before = path[path.index(owner) - 1]
                through = self._through.setdefault(owner, {}).setdefault(before, {})
                through.setdefault(kind, set()).add(policy)
            if (policy, owner) not in seen:
                seen.add((policy, owner))
                self._whole.setdefault(owner, {}).setdefault(kind, set()).add(policy)

    def _owner(self, name: Locator) -> tuple[Locator, bool]:
        self._owners[name] = found = status_owner(self._topology, name)
        return found


def is_target_condition(type_: object) -> bool:
    """Return whether a condition of this type is one of ours on a target."""
    name = str(type_)
    return name.startswith(DOMAIN) and name.endswith(("Affected", "Paths"))


def status_owner(topology: Topology, name: Locator) -> tuple[Locator, bool]:
    """Return the node that gets the conditions of a node, and whether that is a route."""
    node = topology[name]
    owner = name if node.owner is None or node.kind == LISTENER else node.owner
    return owner, topology[owner].kind in ROUTES


def parents_of(topology: Topology, route: Node) -> Iterator[tuple[Json, list[Locator]]]:
    """Yield the references of a route to Gateways and ListenerSets, each with its parents.

    Raises Malformed.
    """
    above = [topology[name] for name in topology.targetables.parents(route.locator)]
    for ref in items(route.body, "spec", "parentRefs"):
        reference = _reference(ref)
        if _kind(reference) in _PARENTS:
            yield reference, [n.locator for n in above if _is_meant(reference, n, route)]


def _reference(ref: Json) -> Json:
    """Return a parentRef with the API server's defaults."""
    known = {"group": GATEWAY.group, "kind": GATEWAY.kind}
    return known | {name: ref[name] for name in _REFERENCE if ref.get(name) is not None}


def _kind(reference: Json) -> GroupKind:
    return GroupKind(text(reference, "group"), text(reference, "kind"))


def _is_meant(reference: Json, parent: Node, route: Node) -> bool:
    namespace = text(reference, "namespace") or route.namespace
    parent_locator = locator(_kind(reference), namespace, text(reference, "name"))
    if (parent.owner or parent.locator) != parent_locator:
        return False
    wanted, port = text(reference, "sectionName"), number(reference, "port")
    if parent.owner is None:  # a topology without sections
        return True
    section = parent.name.partition("#")[2]
    return wanted in ("", section) and port in (None, number(parent.body, "port"))


def _conditions(by: Mapping[GroupKind, set[Locator]]) -> tuple[Condition, ...]:
    """Return a condition for each type; kinds of one name in two groups share theirs."""
    found: dict[str, list[str]] = {}
    for kind, policies in sorted(by.items()):
        found.setdefault(condition_type(kind), []).append(message(kind, policies))
    return tuple(
        Condition(type_, "True", "Accepted", "; ".join(messages))
        for type_, messages in sorted(found.items())
    )


def _merged(
    found: Iterable[Mapping[GroupKind, set[Locator]]],
) -> dict[GroupKind, set[Locator]]:
    merged: dict[GroupKind, set[Locator]] = {}
    for one in found:
        for kind, policies in one.items():
            merged.setdefault(kind, set()).update(policies)
    return merged


def exhaust(slices: Iterator[None]) -> None:
    """Compute the rest at once."""
    for _ in slices:
        pass
