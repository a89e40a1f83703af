"""What has to be written of one object so that its status says what the topology says.

Keeps true: an object that says so already, or that is on its way out, is not written. What is said
was found out of the object that the topology has; what is there already is read of the newest one.
Nothing of others is changed: a list that is one value to the API server is written whole at the
resourceVersion that was read, a list that is a map has our conditions alone applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kube_sync.machinery.ancestors import Ancestors
from kube_sync.machinery.conditions import About, Json, Said, affects, merged
from kube_sync.machinery.entries import ANCESTORS, PARENTS, Entry, Listed, merge
from kube_sync.machinery.targets import Affected
from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, GroupKind, Locator, Node, Role, Topology
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, ROUTES, SERVICE
from kube_sync.topology.nodes import Body
from kube_sync.topology.shapes import items, mapping, number, text

# Of conditions, in the Gateway API: what comes above is refused, ours and that of others alike. So
# that no other controller finds the list full, two places are never taken.
_MOST: Final = 8
_LEFT_TO_OTHERS: Final = 2
_LIMITED = frozenset({GATEWAY_CLASS, GATEWAY})


@dataclass(frozen=True, slots=True)
class Apply:
    """Conditions of ours, all that there are to be in lists that are maps; {}: none at all."""

    node: Locator
    kind: GroupKind
    key: ObjectKey
    uid: str
    version: str  # the resourceVersion of what it was made for; it is not bound to that
    status: Json

    def leftovers(self, answer: Body) -> list[str]:
        """Return where conditions of ours still are that are not to be, as JSON pointers.

        They belong to other field managers too. The last one comes first, so that each may be
        removed before the next. Raises Malformed.
        """
        wanted = _types(items({"status": self.status}, "status", "conditions"))
        found = _pointers(items(answer, "status", "conditions"), wanted, "/status/conditions")
        ours = {one["name"]: one for one in items({"status": self.status}, "status", "listeners")}
        for index, listener in enumerate(items(answer, "status", "listeners")):
            wanted = _types(items(ours.get(listener.get("name"), {}), "conditions"))
            where = f"/status/listeners/{index}/conditions"
            found += _pointers(items(listener, "conditions"), wanted, where)
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Replace:
    """A list that is one value, with the entries of others as they were read."""

    node: Locator
    kind: GroupKind
    key: ObjectKey
    version: str
    status: Json


Step = Apply | Replace


@dataclass(slots=True)
class Planner:
    """What is to be said of the objects of a topology as it is now; `now` as in RFC 3339.

    `tells` tells of which kinds of policies the status has ancestors. What does not fit is said
    in `complaints`, by the object.
    """

    topology: Topology
    tells: Callable[[GroupKind], bool]
    now: str
    complaints: dict[Locator, str] = field(default_factory=dict)
    _ancestors: Ancestors = field(init=False)
    _affected: Affected = field(init=False)

    def __post_init__(self) -> None:
        self._ancestors = Ancestors(self.topology)
        self._affected = Affected(self.topology)

    def has_place(self, node: Node) -> bool:
        """Tell whether the status of such an object is ours to say something in."""
        if node.role is Role.POLICY:
            return node.kind in self.topology.policy_kinds and self.tells(node.kind)
        return node.kind in _PLACES

    def step(self, node: Node, current: Body) -> Step | None:
        """Return what to write of an object, None: nothing. Raises Malformed."""
        if text(current, "metadata", "deletionTimestamp") or _uid(current) != _uid(node.body):
            return None
        if node.role is Role.POLICY:
            return self._listed(ANCESTORS, self._ancestors.of(node.locator), node, current)
        if node.kind in ROUTES:
            return self._listed(PARENTS, self._affected.entries(node), node, current)
        return self._applied(node, current)

    def _about(self, node: Node) -> About:
        # The condition of a namespace has no such field (core/v1, NamespaceCondition).
        known = None if node.kind == NAMESPACE else number(node.body, "metadata", "generation")
        return About(known, self.now)

    def _listed(
        self, listed: Listed, wanted: Iterable[Entry], node: Node, current: Body
    ) -> Step | None:
        found = _list(current, listed.field)
        entries, left_out = merge(listed, found, wanted, self._about(node))
        if left_out:
            self.complaints[node.locator] = f"status.{listed.field}: {left_out} do not fit"
        if entries == found:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Replace(node.locator, node.kind, key, version, {listed.field: entries})

    def _applied(self, node: Node, current: Body) -> Step | None:
        about, status = self._about(node), dict[str, Any]()
        found = list(items(current, "status", "conditions"))
        conditions = self._conditions(node.locator, found, about, limited=node.kind in _LIMITED)
        same = conditions == _ours(found)
        if conditions:
            status["conditions"] = conditions
        for listener in items(current, "status", "listeners") if node.kind == GATEWAY else ():
            name, found = text(listener, "name"), list(items(listener, "conditions"))
            conditions = self._conditions(
                Locator(f"{node.locator}#{name}"), found, about, limited=True
            )
            same = same and conditions == _ours(found)
            if conditions:
                entry = {"name": name, "conditions": conditions}
                status.setdefault("listeners", []).append(entry)
        if same:
            return None
        key, version = ObjectKey(node.namespace, node.name), _version(current)
        return Apply(node.locator, node.kind, key, _uid(current), version, status)

    def _conditions(
        self,
        place: Locator,
        found: Sequence[Json],
        about: About,
        *,
        limited: bool,
    ) -> list[Json]:
        wanted: Sequence[Said] = self._affected.of(place)
        ours = _ours(found)
        room = max(0, _MOST - _LEFT_TO_OTHERS - (len(found) - len(ours)))
        if limited and len(wanted) > room:
            self.complaints[place] = f"{len(wanted) - room} conditions do not fit"
            wanted = wanted[:room]
        return merged(ours, wanted, about, affects)


_PLACES = frozenset({GATEWAY_CLASS, GATEWAY, SERVICE, NAMESPACE, *ROUTES})


def _ours(found: Iterable[Json]) -> list[Json]:
    return [condition for condition in found if affects(condition.get("type"))]


def _types(conditions: Iterable[Json]) -> set[object]:
    return {condition.get("type") for condition in conditions}


def _pointers(found: Iterable[Json], wanted: set[object], where: str) -> list[str]:
    return [
        f"{where}/{index}"
        for index, condition in enumerate(found)
        if affects(condition.get("type")) and condition.get("type") not in wanted
    ]


def _list(body: Body, name: str) -> list[Any]:
    """Return a list of the status, with whatever is in it. Raises Malformed."""
    found = mapping(body, "status").get(name)
    list(items(body, "status", name))
    return list(found or ())


def _uid(body: Body) -> str:
    return text(body, "metadata", "uid")


def _version(body: Body) -> str:
    return text(body, "metadata", "resourceVersion")
