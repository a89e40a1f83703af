"""A World fed as Reflectors would feed it, without an API server."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.topology import NAMESPACE, GroupKind, Kind, PolicyKind
from kube_sync.topology.controller.world import World
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import kind_of
from tests.fakes.listing import at_once
from tests.fakes.topologies import API, Object

KINDS = {
    kind.id: kind
    for kind in (Kind(NAMESPACE, namespaced=False), *API.kinds, COLOR_POLICY.node_kind)
}

_PAGE = 50  # of objects: a Store may wait after more of them


def key_of(body: Mapping[str, Any]) -> ObjectKey:
    return ObjectKey(body["metadata"].get("namespace", ""), body["metadata"]["name"])


def item_of(body: Mapping[str, Any]) -> Item:
    """Return an object as a Reflector hands it over."""
    metadata = body["metadata"]
    version = ResourceVersion(metadata.get("resourceVersion", ""))
    return Item(key_of(body), metadata.get("uid", ""), version, msgspec.json.encode(body))


class Feed:
    """The API server's side of a World: what it holds, and what it says of it."""

    def __init__(self, world: World, kinds: Iterable[Kind] = KINDS.values()) -> None:
        self.world = world
        self.stores: dict[GroupKind, Store] = {kind.id: world.store(kind) for kind in kinds}
        self.objects: dict[GroupKind, dict[ObjectKey, Object]] = {id_: {} for id_ in self.stores}
        self._version = 100

    def load(self, *bodies: Object) -> None:
        """List every kind: what was there, and these."""
        for body in bodies:
            self.hold(body)
        for kind in self.stores:
            self.list(kind)

    def list(self, kind: GroupKind, *, known: bool = True) -> None:
        """Answer a LIST, or say that there is no such kind."""
        items = [item_of(body) for body in self.objects[kind].values()] if known else []
        for start in range(0, len(items), _PAGE):
            at_once(self.stores[kind].page(items[start : start + _PAGE]))
        self.stores[kind].finish(known=known)

    def put(self, body: Object) -> Object:
        """Create or change an object."""
        new = key_of(body) not in self.objects[kind_of(body)]
        held = self.hold(body)
        self._tell("ADDED" if new else "MODIFIED", held)
        return held

    def delete(self, body: Object) -> None:
        self._version += 1
        self._tell("DELETED", self.objects[kind_of(body)].pop(key_of(body)))

    def hold(self, body: Object) -> Object:
        self._version += 1
        held = copy.deepcopy(body)
        old = self.objects[kind_of(body)].get(key_of(body))
        uid = old["metadata"]["uid"] if old else f"uid-{self._version}"
        held["metadata"] |= {"resourceVersion": str(self._version)}
        held["metadata"].setdefault("uid", uid)
        self.objects[kind_of(body)][key_of(body)] = held
        return held

    def _tell(self, change: str, body: Object) -> None:
        version = ResourceVersion(str(self._version))
        self.stores[kind_of(body)].apply(Event(change, version, item_of(body)))


@dataclass
class Kinds:
    """Knows which kinds of policies are followed."""

    policies: Collection[PolicyKind] = (COLOR_POLICY,)
    waiting: Collection[str] = field(default_factory=list)
