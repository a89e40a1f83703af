"""The input of a plan: all objects and policies, listed once.

Invariant: it is one consistent state, however often it is read; the results are the same for a
cluster and for a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from kube_sync.config import CLUSTERS, TOPOLOGY, Policies, Resource, Settings
from kube_sync.errors import NO_JSON, Broken, Terminal
from kube_sync.inspect.plan.placement_policies import is_object, objects_among
from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import ConfigMap, ConfigMaps, read_configmap
from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap, data_maps, policy_maps
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Collection
from kube_sync.remediation.plan import Current
from kube_sync.remediation.targets import Targets
from kube_sync.replicator.projection import configured

M = TypeVar("M", ConfigMap, PolicyMap)
Objects = Mapping[ObjectKey, Item]
Bodies = Mapping[str, Mapping[ObjectKey, bytes]]  # by collection
EPOCH = "plan"  # epoch of the data for the decisions of a plan


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Objects by their collection's name in OPA, the collections' places, and possible policies.

    Among `configmaps` are the PlacementPolicies.
    """

    places: Mapping[str, Collection]
    objects: Mapping[str, Objects]
    configmaps: Sequence[Item] = ()
    notes: tuple[str, ...] = ()  # on what is not in it

    def fleet(self) -> tuple[Collection, Objects]:
        """Return the place of clusters, and all of them. Raises Broken: they are not replicated."""
        if CLUSTERS not in self.places:
            msg = f'there is no collection "{CLUSTERS}" in replicate.resources, or no such kind'
            raise Broken([msg])
        return self.places[CLUSTERS], self.objects[CLUSTERS]

    def with_objects(self, name: str, objects: Objects) -> Snapshot:
        """Return a copy with other objects in one collection."""
        return replace(self, objects={**self.objects, name: objects})


async def policies_of(
    configmaps: Iterable[Item], policies: Policies
) -> Mapping[ObjectKey, PolicyMap | PlacementPolicy]:
    """Return the policies among these, as the replicator parses them. Raises Retriable."""
    items = list(configmaps)
    found = await _read(items, policy_maps(policies, lambda: None))
    return {**objects_among(items, policies), **found}


async def staged_of(configmaps: Iterable[Item], policies: Policies) -> list[PolicyMap]:
    """Return the staged ConfigMaps, likewise. Raises Retriable."""
    stores = policy_maps(policies, lambda: None)
    await _fill(configmaps, stores)
    return [policy for store in stores for policy in store.staged]


async def data_of(configmaps: Iterable[Item], policies: Policies) -> Mapping[ObjectKey, ConfigMap]:
    """Return the ConfigMaps with JSON data, likewise. Raises Retriable."""
    return await _read(configmaps, data_maps(policies, lambda: None))


async def currents(objects: Objects) -> Mapping[ObjectKey, Current]:
    """Return the current state of targets, as the remediator parses it. Raises Retriable."""
    store = Targets(lambda _: None)
    await store.page([*objects.values()])
    store.finish(known=True)
    return dict(store.objects)


def projected(
    settings: Settings, snapshot: Snapshot, *, only: str | None = None
) -> dict[str, dict[ObjectKey, bytes]]:
    """Project all objects as for OPA, or `only` those of one collection.

    Raises Terminal with the name of an invalid object.
    """
    found: dict[str, dict[ObjectKey, bytes]] = {}
    for resource in settings.replicate.resources:
        if only not in (None, resource.name):
            continue
        projection = projection_of(resource)
        objects = snapshot.objects.get(resource.name, {})
        found[resource.name] = {key: projection(item) for key, item in objects.items()}
    # Its records are no objects, and stay as they are.
    if TOPOLOGY in snapshot.objects and only in (None, TOPOLOGY):
        found[TOPOLOGY] = {key: item.body for key, item in snapshot.objects[TOPOLOGY].items()}
    return found


def projection_of(resource: Resource) -> Callable[[Item], bytes]:
    """Return the projection of objects for OPA; it raises Terminal with an object's name."""
    # The automatic projection (`auto`) does not change decisions.
    projection = configured(resource)

    def project(item: Item) -> bytes:
        try:
            return projection(item.body)
        except (*NO_JSON, KeyError) as error:
            msg = f"{resource.name} {item.key}: not a Kubernetes object: {error}"
            raise Terminal(msg) from error

    return project


def document(
    root: str, bodies: Bodies, documents: Mapping[ObjectKey, bytes] | None = None
) -> bytes:
    """Return the JSON document of OPA for these objects, with `documents`."""
    whole = {name: collection(objects) for name, objects in bodies.items()}
    ours = {root: whole, "kube_sync": {"epoch": {EPOCH: "loaded"}}}
    return msgspec.json.encode({**collection(documents or {}), **ours})


async def _read(configmaps: Iterable[Item], stores: Sequence[ConfigMaps[M]]) -> dict[ObjectKey, M]:
    await _fill(configmaps, stores)
    return {one.key: one for store in stores for one in store}


async def _fill(configmaps: Iterable[Item], stores: Iterable[ConfigMaps[M]]) -> None:
    items = [item for item in configmaps if not is_object(item)]
    for store in stores:
        inside = (i for i in items if store.scope in (None, i.key.namespace))
        await store.page([i for i in inside if _selected(i, store.selector)])
        store.finish(known=True)


def collection(objects: Mapping[ObjectKey, bytes]) -> dict[str, object]:
    """Return the objects of a collection as nested as in OPA."""
    found: dict[str, object] = {}
    for key, body in objects.items():
        if not key.namespace:
            found[key.name] = msgspec.Raw(body)
            continue
        inside = found.setdefault(key.namespace, {})
        if isinstance(inside, dict):
            inside[key.name] = msgspec.Raw(body)
    return found


def _selected(item: Item, selector: str | None) -> bool:
    return selector is None or read_configmap(item).carries(selector)
