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
        self._told: dict[Locator, tuple[Locator, bool]] = {}
        self._looking = self._look()

    def slices(self) -> Iterator[None]:
        """Compute all paths, slice by slice; reading a result before the end computes the rest."""
        return self._looking

    def of(self, node: Locator) -> tuple[Condition, ...]:
        """Return the conditions of an object or a listener."""
        exhaust(self._looking)
        return _said(self._whole.get(node, {}))

    def entries(self, route: Node) -> list[Entry]:
        """Return the entries of a route, by parentRef. Raises Malformed."""
        exhaust(self._looking)
        found = []
        for reference, parents in parents_of(self._topology, route):
            by = _united(self._through.get(route.locator, {}).get(p, {}) for p in parents)
            if by:
                found.append(Entry(reference, _said(by)))
        return found

    def _look(self) -> Iterator[None]:
        for kind in sorted(self._topology.policy_kinds):
            seen: set[tuple[Locator, Locator]] = set()
            for count, effect in enumerate(effects(self._topology, kind), 1):
                self._take(kind, effect, seen)
                if count % _SLICE == 0:
                    yield

    def _take(self, kind: GroupKind, effect: Effect, seen: set[tuple[Locator, Locator]]) -> None:
        policy, path, start, spaces = effect
        for index, name in enumerate((*spaces, *path[start:]), start - len(spaces)):
            told, is_route = self._told.get(name) or self._told_at(name)
            if is_route and (index == start or path[index - 1] != told):
                before = path[path.index(told) - 1]
                through = self._through.setdefault(told, {}).setdefault(before, {})
                through.setdefault(kind, set()).add(policy)
            if (policy, told) not in seen:
                seen.add((policy, told))
                self._whole.setdefault(told, {}).setdefault(kind, set()).add(policy)

    def _told_at(self, name: Locator) -> tuple[Locator, bool]:
        self._told[name] = found = told_at(self._topology, name)
        return found


def affects(type_: object) -> bool:
    """Return whether a condition of this type is one of ours on a target."""
    said = str(type_)
    return said.startswith(DOMAIN) and said.endswith(("Affected", "Paths"))


def told_at(topology: Topology, name: Locator) -> tuple[Locator, bool]:
    """Return the node that gets the conditions of a node, and whether that is a route."""
    node = topology[name]
    told = name if node.owner is None or node.kind == LISTENER else node.owner
    return told, topology[told].kind in ROUTES


def parents_of(topology: Topology, route: Node) -> Iterator[tuple[Json, list[Locator]]]:
    """Yield the references of a route to Gateways and ListenerSets, each with its parents.

    Raises Malformed.
    """
    above = [topology[name] for name in topology.targetables.parents(route.locator)]
    for said in items(route.body, "spec", "parentRefs"):
        reference = _reference(said)
        if _kind(reference) in _PARENTS:
            yield reference, [n.locator for n in above if _meant(reference, n, route)]


def _reference(said: Json) -> Json:
    """Return a parentRef with the API server's defaults."""
    known = {"group": GATEWAY.group, "kind": GATEWAY.kind}
    return known | {name: said[name] for name in _REFERENCE if said.get(name) is not None}


def _kind(reference: Json) -> GroupKind:
    return GroupKind(text(reference, "group"), text(reference, "kind"))


def _meant(reference: Json, parent: Node, route: Node) -> bool:
    namespace = text(reference, "namespace") or route.namespace
    meant = locator(_kind(reference), namespace, text(reference, "name"))
    if (parent.owner or parent.locator) != meant:
        return False
    wanted, port = text(reference, "sectionName"), number(reference, "port")
    if parent.owner is None:  # a topology without sections
        return True
    section = parent.name.partition("#")[2]
    return wanted in ("", section) and port in (None, number(parent.body, "port"))


def _said(by: Mapping[GroupKind, set[Locator]]) -> tuple[Condition, ...]:
    """Return a condition for each type; kinds of one name in two groups share theirs."""
    found: dict[str, list[str]] = {}
    for kind, policies in sorted(by.items()):
        found.setdefault(condition_type(kind), []).append(message(kind, policies))
    return tuple(
        Condition(type_, "True", "Accepted", "; ".join(said))
        for type_, said in sorted(found.items())
    )


def _united(
    found: Iterable[Mapping[GroupKind, set[Locator]]],
) -> dict[GroupKind, set[Locator]]:
    united: dict[GroupKind, set[Locator]] = {}
    for one in found:
        for kind, policies in one.items():
            united.setdefault(kind, set()).update(policies)
    return united


def exhaust(slices: Iterator[None]) -> None:
    """Compute the rest at once."""
    for _ in slices:
        pass
