"""Conditions on targetables with the effective policy of each path, and the maps for long ones.

Invariant: as soon as there is a policy of a kind, every node where the kind takes effect has the
map of all its paths, including those without an effective policy (`null`). The condition is where
`target_conditions.py` puts its own. A map that is too long for a condition is in a ConfigMap
(`layout`), and the condition names it; one that fits nowhere is counted and reported as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.kube.conditions import Condition
from kube_sync.topology import EffectivePolicy, GroupKind, Locator, Node, Topology
from kube_sync.topology.affected import paths_type
from kube_sync.topology.effective import digest
from kube_sync.topology.status.target_conditions import exhaust, parents_of, status_owner
from kube_sync.topology.statuslists import Entry

CONFIGMAP_NAMES: Final = tuple(f"kube-sync-topology-paths-{number}" for number in range(8))
LIMIT: Final = 900 << 10  # bytes of each
_MESSAGE: Final = 1024  # characters of a map in a condition
_KEY: Final = 253  # characters of a key of a ConfigMap
_SLICE: Final = 2000  # paths

Ids = dict[str, str | None]  # by path; None: no effective policy
_ByKind = dict[GroupKind, Ids]


@dataclass(frozen=True, slots=True)
class MapLocation:
    """The place of an object's map."""

    configmap: str
    key: str


class PathMaps:
    """The maps of the present topology; `namespace` is that of the ConfigMaps."""

    def __init__(self, topology: Topology, namespace: str, limit: int = LIMIT) -> None:
        self._topology = topology
        self._namespace = namespace
        self._limit = limit
        self._whole: dict[Locator, _ByKind] = {}
        self._through: dict[Locator, dict[Locator, _ByKind]] = {}  # of routes: by parent
        self._names: dict[Locator, str] = {}
        self._locations: dict[Locator, MapLocation] = {}
        self._texts: dict[str, dict[str, str]] = {place: {} for place in CONFIGMAP_NAMES}
        self._sizes = dict.fromkeys(CONFIGMAP_NAMES, 0)
        self._computation = self._compute()

    def slices(self) -> Iterator[None]:
        """Compute all paths, slice by slice; reading a result before the end computes the rest."""
        return self._computation

    def layout(self) -> Mapping[str, Mapping[str, str]]:
        """Return the data of each ConfigMap, by its name."""
        exhaust(self._computation)
        return self._texts

    def of(self, place: Locator) -> tuple[Condition, ...]:
        """Return the conditions of an object or a listener."""
        exhaust(self._computation)
        return self._conditions(place, self._whole.get(place, {}))

    def entries(self, route: Node) -> list[Entry]:
        """Return the entries of a route, by parentRef. Raises Malformed."""
        exhaust(self._computation)
        through = self._through.get(route.locator, {})
        found = []
        for reference, parents in parents_of(self._topology, route) if through else ():
            merged: _ByKind = {}
            for parent in parents:
                for kind, ids in through.get(parent, {}).items():
                    merged.setdefault(kind, {}).update(ids)
            if merged:
                found.append(Entry(reference, self._conditions(route.locator, merged)))
        return found

    def _compute(self) -> Iterator[None]:
        used = {self._topology[policy].kind for policy in self._topology.policies}
        for kind in sorted(used):
            for number, one in enumerate(self._topology.effective(kind), 1):
                self._add(kind, one)
                if number % _SLICE == 0:
                    yield
        for place, by_kind in sorted(self._whole.items()):
            if sum(len(_map(ids)) for ids in by_kind.values()) > _MESSAGE:
                self._assign(place, by_kind)
        yield

    def _add(self, kind: GroupKind, one: EffectivePolicy) -> None:
        owner, is_route = status_owner(self._topology, one.path[-1])
        path = " > ".join(map(self._name, one.path))
        self._whole.setdefault(owner, {}).setdefault(kind, {})[path] = one.id
        if is_route and owner in one.path[1:]:
            before = one.path[one.path.index(owner) - 1]
            through = self._through.setdefault(owner, {}).setdefault(before, {})
            through.setdefault(kind, {})[path] = one.id

    def _name(self, locator: Locator) -> str:
        name = self._names.get(locator)
        if name is None:
            name = self._names[locator] = self._topology[locator].full_name
        return name

    def _assign(self, place: Locator, by_kind: _ByKind) -> None:
        """Assign the maps of an object to a ConfigMap: always the same one, unless it is full."""
        key = place.translate(_PLAIN)
        if len(key) > _KEY:
            key = digest("paths", place)
        text = _encoded({str(kind): dict(sorted(ids.items())) for kind, ids in by_kind.items()})
        name = CONFIGMAP_NAMES[int(digest(key), 16) % len(CONFIGMAP_NAMES)]
        size = self._sizes[name] + len(key) + len(text.encode())
        if size <= self._limit:
            self._texts[name][key], self._sizes[name] = text, size
            self._locations[place] = MapLocation(name, key)

    def _conditions(self, place: Locator, by_kind: _ByKind) -> tuple[Condition, ...]:
        """Return a condition for each type; kinds of one name in two groups share theirs."""
        shared: dict[str, _ByKind] = {}
        for kind, ids in sorted(by_kind.items()):
            shared.setdefault(paths_type(kind), {})[kind] = ids
        return tuple(self._condition(place, type_, found) for type_, found in shared.items())

    def _condition(self, place: Locator, type_: str, found: _ByKind) -> Condition:
        ids = [id_ for one in found.values() for id_ in one.values()]
        missing = ids.count(None)
        reason = (
            "Covered" if not missing else "PartlyCovered" if missing < len(ids) else "Uncovered"
        )
        maps = [_map(one) for one in found.values()]
        if sum(map(len, maps)) <= _MESSAGE:
            message = "; ".join(maps)
        else:
            message = f"{len(ids)} paths, {missing} of them without: {self._where(place)}"
        return Condition(type_, "False" if missing else "True", reason, message)

    def _where(self, place: Locator) -> str:
        location = self._locations.get(place)
        if location is None:
            return f"no more of them fit into the ConfigMaps of {self._namespace}"
        return f"ConfigMap {self._namespace}/{location.configmap}, key {location.key}"


_PLAIN: Final = str.maketrans({":": "_", "/": "_", "#": "_"})  # none of these is in a name


def _map(ids: Ids) -> str:
    return _encoded(dict(sorted(ids.items())))


def _encoded(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
