"""The hostnames and matches of a path, from its listener, route and rule.

Invariant: the hostnames of a path are the intersection of its listener's and its route's, as in the
Gateway API (HTTPRouteSpec.hostnames); an invalid field counts as empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kube_sync.topology.gateway import LISTENER, ROUTES, RULES
from kube_sync.topology.gateway.validity import WITH_HOSTNAMES, shared_hostnames
from kube_sync.topology.graph import Path
from kube_sync.topology.nodes import Locator, Node
from kube_sync.topology.raw_json import Malformed, is_same, items, text, texts
from kube_sync.topology.topology import Topology

_Values = tuple[Any, ...]
_NOTHING: _Values = ()
_ROUTES, _RULES = frozenset(ROUTES), frozenset(RULES)


class RouteMatches:
    """Cached hostnames and matches of nodes."""

    def __init__(self) -> None:
        self._known: dict[Locator, _Values] = {}
        self._shared: dict[tuple[_Values, _Values], tuple[str, ...]] = {}

    def update(self, topology: Topology, nodes: Iterable[Locator]) -> set[Locator]:
        """Update nodes from the topology; return those whose values have changed."""
        found = set()
        for locator in nodes:
            new = _values_of(topology[locator]) if locator in topology else None
            old = self._known.get(locator)
            if new is None or not new:
                self._known.pop(locator, None)
            else:
                self._known[locator] = new
            if new is not None and not is_same(old or _NOTHING, new or _NOTHING):
                found.add(locator)
        return found

    def of_path(self, topology: Topology, path: Path) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the hostnames of a path, and the matches of the rule on it."""
        own: _Values = _NOTHING
        wanted: _Values | None = None
        matches: Sequence[Any] = _NOTHING
        for locator in path:
            kind = topology[locator].kind
            if kind == LISTENER:
                own = self._of(topology, locator)
            elif kind in _ROUTES:
                wanted = self._of(topology, locator) if kind in WITH_HOSTNAMES else None
                own = own if kind in WITH_HOSTNAMES else _NOTHING
            elif kind in _RULES:
                matches = self._of(topology, locator)
        return self._hostnames(own, wanted or _NOTHING), matches

    def _of(self, topology: Topology, locator: Locator) -> _Values:
        found = self._known.get(locator)
        if found is None:
            found = self._known[locator] = _values_of(topology[locator])
        return found

    def _hostnames(self, own: _Values, wanted: _Values) -> tuple[str, ...]:
        found = self._shared.get((own, wanted))
        if found is None:
            found = self._shared[own, wanted] = shared_hostnames(own, wanted)
        return found


def _values_of(node: Node) -> _Values:
    """Return the hostname of a listener, the hostnames of a route, or the matches of a rule."""
    try:
        if node.kind == LISTENER:
            own = text(node.body, "hostname").lower()
            return (own,) if own else _NOTHING
        if node.kind in _ROUTES:
            return tuple(name.lower() for name in texts(node.body, "spec", "hostnames"))
        return tuple(items(node.body, "matches")) if node.kind in _RULES else _NOTHING
    except Malformed:
        return _NOTHING
