"""Takes snapshots of the configured cluster, or reads them from an export.

Invariant: a cluster is only read; an export has what a plan uses, so that the same edit
has the same plan from both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

import msgspec

from kube_sync.config import CLUSTERS, TOPOLOGY, Resource, Settings
from kube_sync.decisions.requested import FIELD_MANAGER
from kube_sync.errors import NO_JSON, Broken, NotFound, Refused, Terminal
from kube_sync.inspect.plan import topology
from kube_sync.inspect.plan.extra_documents import record_of
from kube_sync.inspect.plan.placement_policies import OBJECTS, is_object, listed_objects
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Objects, Snapshot
from kube_sync.inspect.survey.clusterobjects import sources_of
from kube_sync.inspect.survey.exported import Exported, read_objects
from kube_sync.inspect.survey.places import discover_places, guess_places
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.collection import Item, KubeCollection, ResourceVersion
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.meta import object_meta
from kube_sync.kube.policymaps import data_maps, policy_maps
from kube_sync.kube.reflector import items_of
from kube_sync.objects import ObjectKey
from kube_sync.replicator.projection import Fields, is_secret, tidy, withhold

_MAPS = Resource("", "v1", "configmaps")


_fields = msgspec.json.Decoder(Fields)


async def snapshot_of(request: Request, settings: Settings, progress: Progress) -> Snapshot:
    """Return the snapshot to plan with. Raises SyncError, Broken."""
    if request.exported is not None:
        return await of_file(request.exported, settings, request.cluster_scoped)
    async with kube_client(settings.kubernetes) as client:
        return await of_cluster(client, settings, progress)


async def of_cluster(client: KubeClient, settings: Settings, progress: Progress) -> Snapshot:
    """Take a snapshot of the cluster. Raises SyncError, Broken if a target is not served."""
    replicate = settings.replicate
    places, unknown = await discover_places(client, replicate)
    if missing := sorted(unknown & {resource.name for resource in settings.targets()}):
        # A plan without objects would report that nothing moves.
        raise Broken(f"{name}: the API server does not know this kind" for name in missing)
    objects: dict[str, Objects] = {}
    for resource in replicate.resources:
        found: dict[ObjectKey, Item] = {}
        if resource.name not in unknown:
            for source in sources_of(client, replicate, resource, places[resource.name]):
                async for item in items_of(source):
                    found[item.key] = item
                    progress.report(f"{resource.name}: {len(found)} objects read …")
        objects[resource.name] = found
    if replicate.topology:
        with progress.during("reading the topology"):
            objects[TOPOLOGY] = await topology.of_cluster(client, settings.topology)
        places[TOPOLOGY] = topology.place(replicate)
    notes = tuple(f"{name}: the API server does not know this kind" for name in sorted(unknown))
    policies = [
        *await _configmaps(client, settings),
        *await listed_objects(client, settings.policies),
    ]
    return Snapshot(places, objects, policies, notes)


async def of_file(file: str, settings: Settings, cluster_scoped: Collection[str] = ()) -> Snapshot:
    """Read an export. Raises Misconfigured, Terminal, Broken."""
    exported = await asyncio.to_thread(read_objects, file, "--from")
    places = guess_places(settings.replicate, cluster_scoped, exported)
    objects: dict[str, Objects] = {
        resource.name: {item.key: item for item in _read(exported, resource)}
        for resource in settings.replicate.resources
    }
    if settings.replicate.topology and (records := topology.of_export(exported)):
        objects[TOPOLOGY], places[TOPOLOGY] = records, topology.place(settings.replicate)
    if not any(objects[resource.name] for resource in settings.targets()):
        names = ", ".join(settings.placement.names)
        raise Broken([f"--from: {exported.file}: there are no {names} in it"])
    # Where it is of another version, perhaps: a plan without clusters looks as if nothing changed.
    notes = tuple(
        f"there are no {resource.gvr} in {exported.file}"
        for resource in settings.replicate.resources
        if resource.name == CLUSTERS and not objects[CLUSTERS]
    )
    policies = (*_read(exported, _MAPS), *_read(exported, OBJECTS))
    return Snapshot(places, objects, policies, notes)


def lines(snapshot: Snapshot, settings: Settings) -> Iterator[str]:
    """Yield the lines of an export: an object a line, each once. Raises Terminal."""
    seen: set[tuple[str, ObjectKey]] = set()
    for resource in settings.replicate.resources:
        for item in snapshot.objects[resource.name].values():
            seen.add((resource.resource, item.key))
            yield exported_line(item)
    yield from topology.lines(snapshot.objects.get(TOPOLOGY, {}))
    for item in snapshot.configmaps:
        kind = OBJECTS if is_object(item) else _MAPS
        if (kind.resource, item.key) not in seen:
            yield exported_line(item)


def exported_line(item: Item) -> str:
    """Encode one object without bookkeeping and without a Secret's values. Raises Terminal.

    The managedFields of the remediator are kept: what it would remove depends on them.
    """
    try:
        whole = _fields.decode(item.body)
        managed = FIELD_MANAGER.encode() in bytes(whole["metadata"])
        tidy(whole, managed=managed, applied=False)
    except (*NO_JSON, KeyError) as error:
        msg = f"{item.key}: not a Kubernetes object: {error}"
        raise Terminal(msg) from error
    if is_secret(whole):
        withhold(whole)
    return msgspec.json.encode(whole).decode()


async def deleted_uids(client: KubeClient, settings: Settings, uids: Collection[str]) -> set[str]:
    """Return which of these uids of targets no longer exist. Raises SyncError."""
    left = set(uids)
    places, _ = await discover_places(client, settings.replicate)
    for resource in settings.targets():
        if resource.name in places:
            for source in sources_of(client, settings.replicate, resource, places[resource.name]):
                async for item in items_of(source):
                    left.discard(item.uid)
    return left


async def _configmaps(client: KubeClient, settings: Settings) -> list[Item]:
    policies, found = settings.policies, dict[ObjectKey, Item]()
    stores = (policy_maps(policies, lambda: None), data_maps(policies, lambda: None))
    scopes = [(store.scope, store.selector) for found in stores for store in found]
    for scope, selector in scopes:
        source = KubeCollection(client, CONFIGMAPS, namespace=scope, label_selector=selector)
        async for item in items_of(source):
            found[item.key] = item
    record = await _record(client, record_of(settings))
    return [*found.values(), *(item for item in record if item.key not in found)]


async def _record(client: KubeClient, key: ObjectKey) -> list[Item]:
    """Return the record of last good versions, if there is one."""
    try:
        return [_item(await client.request("GET", CONFIGMAPS.path(key.namespace, key.name)))]
    except (NotFound, Refused):  # the user may lack the right to read it
        return []


def _read(exported: Exported, resource: Resource) -> Iterator[Item]:
    return map(_item, exported.bodies(resource))


def _item(body: bytes) -> Item:
    metadata = object_meta(body)
    version = ResourceVersion(metadata.resource_version)
    return Item(ObjectKey(metadata.namespace, metadata.name), metadata.uid, version, body)
