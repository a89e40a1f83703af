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
from kube_sync.topology.status.ancestors import CONTROLLER, Ancestors, is_policy_condition
from kube_sync.topology.status.pathmaps import PathMaps
from kube_sync.topology.status.target_conditions import Affected, is_target_condition
from kube_sync.topology.statuslists import (
    ANCESTORS,
    PARENTS,
    Entry,
    StatusContext,
    StatusList,
    join_entries,
    merge_conditions,
    merge_entries,
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

    `has_ancestors` returns whether the status of a kind of policies has ancestors,
    `owns_conditions` whether we own its conditions; conditions of targets whose types are in
    `kept_types` are kept. `paths` has what applies on each path to targets, None: no such
    conditions. `problems` has what does not fit, by object.
    """

    topology: Topology
    has_ancestors: Callable[[GroupKind], bool]
    now: str
    kept_types: frozenset[str] = frozenset()
    owns_conditions: Callable[[GroupKind], bool] = lambda _: False
    paths: PathMaps | None = None
    problems: dict[str, str] = field(default_factory=dict)
    _ancestors: Ancestors = field(init=False)
    _affected: Affected = field(init=False)

    def __post_init__(self) -> None:
        self._ancestors = Ancestors(self.topology)
        self._affected = Affected(self.topology)

    async def compute(self) -> None:
        """Compute the results of the whole topology in slices; it must not change meanwhile."""
        paths = self.paths.slices() if self.paths is not None else ()
        for slices in (self._affected.slices(), self._ancestors.slices(), paths):
            for _ in slices:
                await asyncio.sleep(0)

    def has_status(self, node: Node) -> bool:
        """Return whether we write to the status of such an object."""
        if node.role is Role.POLICY:
            known = node.kind in self.topology.policy_kinds
            return known and (self.has_ancestors(node.kind) or self.owns_conditions(node.kind))
        return node.kind in _KINDS_WITH_STATUS

    def step(self, node: Node, current: Body) -> Step | None:
        """Return the write for an object, None if nothing differs. Raises Malformed."""
        if text(current, "metadata", "deletionTimestamp") or _uid(current) != _uid(node.body):
            return None
        if node.role is Role.POLICY and self.owns_conditions(node.kind):
            return self._conditions_step(node, current)
        if node.role is Role.POLICY:
            return self._entries_step(ANCESTORS, self._ancestors.of(node.locator), node, current)
        if node.kind in ROUTES:
            paths = self.paths.entries(node) if self.paths is not None else ()
            wanted = [*self._kept_entries(current), *self._affected.entries(node), *paths]
            return self._entries_step(PARENTS, join_entries(wanted), node, current)
        return self._apply_step(node, current)

    def _context(self, node: Node) -> StatusContext:
        # The condition of a namespace has no such field (core/v1, NamespaceCondition).
        known = None if node.kind == NAMESPACE else number(node.body, "metadata", "generation")
        return StatusContext(known, self.now, CONTROLLER)

    def _entries_step(
        self, listed: StatusList, wanted: Iterable[Entry], node: Node, current: Body
    ) -> Step | None:
        found = _list(current, listed.field)
        entries, left_out = merge_entries(
            listed, found, wanted, self._context(node), self._is_policy_condition
        )
        if left_out:
            self.problems[node.locator] = f"status.{listed.field}: {left_out} do not fit"
        if entries == found:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Replace(node.locator, node.kind, key, version, {listed.field: entries})

    def _conditions_step(self, node: Node, current: Body) -> Step | None:
        """Return the write of a policy's conditions, as one list with those of others."""
        found = _list(current, "conditions")
        wanted = self._ancestors.whole(node.locator)
        conditions = merge_conditions(found, wanted, self._context(node), self._is_policy_condition)
        if conditions == found:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Replace(node.locator, node.kind, key, version, {"conditions": conditions})

    def _is_target_condition(self, type_: object) -> bool:
        return is_target_condition(type_) and str(type_) not in self.kept_types

    def _is_policy_condition(self, type_: object) -> bool:
        return is_policy_condition(type_) and str(type_) not in self.kept_types

    def _kept_entries(self, current: Body) -> Iterable[Entry]:
        """Yield empty entries, so that kept conditions stay in place."""
        for one in items(current, "status", PARENTS.field) if self.kept_types else ():
            types = {str(condition.get("type")) for condition in items(one, "conditions")}
            reference = one.get(PARENTS.reference)
            if one.get("controllerName") == CONTROLLER and types & self.kept_types and reference:
                yield Entry(reference, ())

    def _apply_step(self, node: Node, current: Body) -> Step | None:
        removals, status = list[str](), dict[str, Any]()
        found = list(items(current, "status", "conditions"))
        conditions = self._conditions(node.locator, node, found)
        removals += self._removals(found, conditions, "/status/conditions")
        is_right = _contains_all(found, conditions)
        if conditions:
            status["conditions"] = conditions
        has_listeners = node.kind in _WITH_LISTENERS
        listeners = items(current, "status", "listeners") if has_listeners else ()
        for index, listener in enumerate(listeners):
            name, found = text(listener, "name"), list(items(listener, "conditions"))
            conditions = self._conditions(Locator(f"{node.locator}#{name}"), node, found)
            removals += self._removals(found, conditions, f"/status/listeners/{index}/conditions")
            is_right = is_right and _contains_all(found, conditions)
            if conditions:
                entry = {"name": name, "conditions": conditions}
                status.setdefault("listeners", []).append(entry)
        if is_right and not removals:
            return None
        key, applied = ObjectKey(node.namespace, node.name), {} if is_right else status
        uid, version = _uid(current), _version(current)
        return Apply(node.locator, node.kind, key, uid, version, tuple(removals), applied)

    def _conditions(self, place: Locator, node: Node, found: Sequence[Json]) -> list[Json]:
        paths = self.paths.of(place) if self.paths is not None else ()
        wanted: Sequence[Condition] = (*self._affected.of(place), *paths)
        ours = [
            condition for condition in found if self._is_target_condition(condition.get("type"))
        ]
        room = max(0, _MOST - _LEFT_TO_OTHERS - (len(found) - len(ours)))
        if node.kind in _LIMITED and len(wanted) > room:
            self.problems[place] = f"{len(wanted) - room} conditions do not fit"
            wanted = wanted[:room]
        return merge_conditions(ours, wanted, self._context(node), self._is_target_condition)

    def _removals(self, found: Sequence[Json], wanted: Iterable[Json], where: str) -> list[str]:
        """Return JSON pointers of our unwanted conditions, from the last to the first."""
        types = {condition.get("type") for condition in wanted}
        return [
            f"{where}/{index}"
            for index, condition in reversed(list(enumerate(found)))
            if self._is_target_condition(condition.get("type"))
            and condition.get("type") not in types
        ]


_KINDS_WITH_STATUS = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER_SET, SERVICE, NAMESPACE, *ROUTES})


def _contains_all(found: Sequence[Json], wanted: Iterable[Json]) -> bool:
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
