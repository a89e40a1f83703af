"""Computes the write of one object that makes its status agree with the topology.

Invariant: an object whose status agrees, or that is being deleted, is not written. Conditions are
computed from the object in the topology, and merged into the status of the newest one. Nothing of
others is changed: an atomic list is written whole at the resourceVersion that was read; in a list
of type map our conditions alone are applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kube_sync.kube.conditions import Condition, Json
from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, GroupKind, Locator, Node, Role, Topology
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, LISTENER_SET, ROUTES, SERVICE
from kube_sync.topology.nodes import Body
from kube_sync.topology.raw_json import items, mapping, number, text
from kube_sync.topology.status.ancestors import CONTROLLER, Ancestors, stands
from kube_sync.topology.status.pathmaps import PathMaps
from kube_sync.topology.status.targets import Affected, affects
from kube_sync.topology.statuslists import (
    ANCESTORS,
    PARENTS,
    About,
    Entry,
    Listed,
    joined,
    merge,
    merged,
)

# The Gateway API's limit on conditions: one more is refused, ours or those of others. Two places
# are never taken, so that no other controller finds the list full.
_MOST: Final = 8
_LEFT_TO_OTHERS: Final = 2
_LIMITED = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER_SET})
_WITH_LISTENERS = frozenset({GATEWAY, LISTENER_SET})


@dataclass(frozen=True, slots=True)
class Apply:
    """Our conditions in lists of type map: those to remove, and then those to apply.

    An apply that leaves conditions out would not remove them: those that other field managers own
    too would stay, and an empty list would be dropped, though some have to be there.
    """

    node: Locator
    kind: GroupKind
    key: ObjectKey
    uid: str
    version: str  # the resourceVersion that it was computed from
    removals: tuple[str, ...]  # JSON pointers; the last one of a list comes first
    status: Json  # all our conditions; {}: nothing to apply


@dataclass(frozen=True, slots=True)
class Replace:
    """An atomic list, with the entries of others as they were read."""

    node: Locator
    kind: GroupKind
    key: ObjectKey
    version: str
    status: Json


Step = Apply | Replace


@dataclass(slots=True)
class Planner:
    """Computes the steps for the objects of the present topology; `now` as in RFC 3339.

    `tells` returns whether the status of a kind of policies has ancestors, `tells_plainly` whether
    we own its conditions; conditions of targets whose types are in `keeps` are kept. `paths` has
    what applies on each path to targets, None: no such conditions. `complaints` has what does not
    fit, by object.
    """

    topology: Topology
    tells: Callable[[GroupKind], bool]
    now: str
    keeps: frozenset[str] = frozenset()
    tells_plainly: Callable[[GroupKind], bool] = lambda _: False
    paths: PathMaps | None = None
    complaints: dict[str, str] = field(default_factory=dict)
    _ancestors: Ancestors = field(init=False)
    _affected: Affected = field(init=False)

    def __post_init__(self) -> None:
        self._ancestors = Ancestors(self.topology)
        self._affected = Affected(self.topology)

    async def look(self) -> None:
        """Compute the results of the whole topology in slices; it must not change meanwhile."""
        paths = self.paths.slices() if self.paths is not None else ()
        for slices in (self._affected.slices(), self._ancestors.slices(), paths):
            for _ in slices:
                await asyncio.sleep(0)

    def has_place(self, node: Node) -> bool:
        """Return whether we write to the status of such an object."""
        if node.role is Role.POLICY:
            known = node.kind in self.topology.policy_kinds
            return known and (self.tells(node.kind) or self.tells_plainly(node.kind))
        return node.kind in _PLACES

    def step(self, node: Node, current: Body) -> Step | None:
        """Return the write for an object, None if nothing differs. Raises Malformed."""
        if text(current, "metadata", "deletionTimestamp") or _uid(current) != _uid(node.body):
            return None
        if node.role is Role.POLICY and self.tells_plainly(node.kind):
            return self._plainly(node, current)
        if node.role is Role.POLICY:
            return self._listed(ANCESTORS, self._ancestors.of(node.locator), node, current)
        if node.kind in ROUTES:
            paths = self.paths.entries(node) if self.paths is not None else ()
            wanted = [*self._kept(current), *self._affected.entries(node), *paths]
            return self._listed(PARENTS, joined(wanted), node, current)
        return self._applied(node, current)

    def _about(self, node: Node) -> About:
        # The condition of a namespace has no such field (core/v1, NamespaceCondition).
        known = None if node.kind == NAMESPACE else number(node.body, "metadata", "generation")
        return About(known, self.now, CONTROLLER)

    def _listed(
        self, listed: Listed, wanted: Iterable[Entry], node: Node, current: Body
    ) -> Step | None:
        found = _list(current, listed.field)
        entries, left_out = merge(listed, found, wanted, self._about(node), self._stands)
        if left_out:
            self.complaints[node.locator] = f"status.{listed.field}: {left_out} do not fit"
        if entries == found:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Replace(node.locator, node.kind, key, version, {listed.field: entries})

    def _plainly(self, node: Node, current: Body) -> Step | None:
        """Return the write of a policy's conditions, as one list with those of others."""
        found = _list(current, "conditions")
        said = self._ancestors.whole(node.locator)
        conditions = merged(found, said, self._about(node), self._stands)
        if conditions == found:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Replace(node.locator, node.kind, key, version, {"conditions": conditions})

    def _affects(self, type_: object) -> bool:
        return affects(type_) and str(type_) not in self.keeps

    def _stands(self, type_: object) -> bool:
        return stands(type_) and str(type_) not in self.keeps

    def _kept(self, current: Body) -> Iterable[Entry]:
        """Yield empty entries, so that kept conditions stay in place."""
        for one in items(current, "status", PARENTS.field) if self.keeps else ():
            said = {str(condition.get("type")) for condition in items(one, "conditions")}
            reference = one.get(PARENTS.reference)
            if one.get("controllerName") == CONTROLLER and said & self.keeps and reference:
                yield Entry(reference, ())

    def _applied(self, node: Node, current: Body) -> Step | None:
        removals, status = list[str](), dict[str, Any]()
        found = list(items(current, "status", "conditions"))
        conditions = self._conditions(node.locator, node, found)
        removals += self._removals(found, conditions, "/status/conditions")
        right = _holds(found, conditions)
        if conditions:
            status["conditions"] = conditions
        has_listeners = node.kind in _WITH_LISTENERS
        listeners = items(current, "status", "listeners") if has_listeners else ()
        for index, listener in enumerate(listeners):
            name, found = text(listener, "name"), list(items(listener, "conditions"))
            conditions = self._conditions(Locator(f"{node.locator}#{name}"), node, found)
            removals += self._removals(found, conditions, f"/status/listeners/{index}/conditions")
            right = right and _holds(found, conditions)
            if conditions:
                entry = {"name": name, "conditions": conditions}
                status.setdefault("listeners", []).append(entry)
        if right and not removals:
            return None
        key, said = ObjectKey(node.namespace, node.name), {} if right else status
        uid, version = _uid(current), _version(current)
        return Apply(node.locator, node.kind, key, uid, version, tuple(removals), said)

    def _conditions(self, place: Locator, node: Node, found: Sequence[Json]) -> list[Json]:
        paths = self.paths.of(place) if self.paths is not None else ()
        wanted: Sequence[Condition] = (*self._affected.of(place), *paths)
        ours = [condition for condition in found if self._affects(condition.get("type"))]
        room = max(0, _MOST - _LEFT_TO_OTHERS - (len(found) - len(ours)))
        if node.kind in _LIMITED and len(wanted) > room:
            self.complaints[place] = f"{len(wanted) - room} conditions do not fit"
            wanted = wanted[:room]
        return merged(ours, wanted, self._about(node), self._affects)

    def _removals(self, found: Sequence[Json], wanted: Iterable[Json], where: str) -> list[str]:
        """Return JSON pointers of our unwanted conditions, from the last to the first."""
        types = {condition.get("type") for condition in wanted}
        return [
            f"{where}/{index}"
            for index, condition in reversed(list(enumerate(found)))
            if self._affects(condition.get("type")) and condition.get("type") not in types
        ]


_PLACES = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER_SET, SERVICE, NAMESPACE, *ROUTES})


def _holds(found: Sequence[Json], wanted: Iterable[Json]) -> bool:
    return all(condition in found for condition in wanted)


def _list(body: Body, name: str) -> list[Any]:
    """Return a list of the status, unchanged. Raises Malformed."""
    found = mapping(body, "status").get(name)
    list(items(body, "status", name))
    return list(found or ())


def _uid(body: Body) -> str:
    return text(body, "metadata", "uid")


def _version(body: Body) -> str:
    return text(body, "metadata", "resourceVersion")
