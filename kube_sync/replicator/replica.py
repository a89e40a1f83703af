"""One replicated resource: the origin of its objects, and the Mirror that receives them.

Invariant: two replicas with equal `selection` want the same objects in the same form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kube_sync.config import TOPOLOGY, PolicyTopology, Replicate, Resource, Settings, supplied
from kube_sync.decisions.sealing import Seals
from kube_sync.errors import Misconfigured
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.bulk_load import EVERYWHERE
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.projection import configured, verbatim
from kube_sync.replicator.projector import Projector
from kube_sync.replicator.selection import Feed

# The topology has its own scope and fields: those that `replicate` sets do not apply.
_TOPOLOGY = Resource("", "", TOPOLOGY, namespaces=(), fields="all")


class Origin(Protocol):
    """The source of a collection's objects."""

    async def run(self, mirror: Mirror) -> None:
        """Keep a Mirror current until cancelled."""

    async def list_classes(self, mirror: Mirror) -> None:
        """Pass all objects to the Mirror once more, for their classes. Raises SyncError."""

    def forget(self) -> None:
        """Remove its readiness conditions."""

    def release(self) -> None:
        """Remove it from the sources that must be current."""


Currency = Callable[[str, str | None], None]  # receives why a source is not current; None: it is
# Returns the equal key and uid of an object that are kept elsewhere, or those that it is given.
KnownObjects = Callable[[GroupVersionResource, ObjectKey, str], tuple[ObjectKey, str]]
# The topology's origin is injected: only the process that builds the replicator knows it.
TopologyOrigin = Callable[[PolicyTopology, Readiness, Currency], Origin]


@dataclass(slots=True)
class Replica:
    """One replicated resource."""

    resource: Resource
    selection: object  # equal if the same objects are wanted in the same form
    mirror: Mirror
    feed: Origin
    form: Form | None = None  # the fields to keep, once known
    task: asyncio.Task[None] | None = field(default=None)

    async def follow(self) -> None:
        """Keep the Mirror current until cancelled; it is listed even while its form is unknown."""
        await self.feed.run(self.mirror)

    def cancel(self) -> None:
        """Stop its reflectors."""
        if self.task is not None:
            self.task.cancel()

    async def ended(self) -> None:
        """Wait until its task has ended, and remove its conditions."""
        if self.task is not None:
            await asyncio.wait([self.task])
        self.feed.forget()
        self.feed.release()


class ReplicaMaker:
    """Creates replicas from the configuration."""

    def __init__(
        self,
        kube: KubeClient,
        readiness: Readiness,
        wake: Callable[[], None],
        *,
        currency: Currency = lambda _source, _reason: None,
        seals: Seals | None = None,
        topology: TopologyOrigin | None = None,
        known: KnownObjects = lambda _gvr, key, uid: (key, uid),
        seen: Callable[[str, Item], None] = lambda _collection, _item: None,
    ) -> None:
        """Call `wake` when a Mirror has something to write.

        `currency` receives why a source is not current, or None. `seals` verify the annotations
        that go into OPA. `topology` makes the topology's origin, if it is wanted. `known` returns
        the key and uid of an object that are kept elsewhere already. `seen` is called with each
        object that is a target of decisions, if moves add first.
        """
        self._kube = kube
        self._readiness = readiness
        self._wake = wake
        self._currency = currency
        self._seals = seals or Seals()
        self._topology = topology
        self._known = known
        self._seen = seen

    def replica(self, resource: Resource, settings: Settings) -> Replica:
        """Return a replica that is not running yet. Raises Misconfigured."""
        selected = selection(settings.replicate, resource)
        feed = self._feed(resource, settings)
        return Replica(resource, selected, self.mirror(resource, settings), feed)

    def mirror(self, resource: Resource, settings: Settings) -> Mirror:
        """Return an empty Mirror."""
        name, replicate = resource.name, settings.replicate
        root = (replicate.root,)
        if resource is _TOPOLOGY:
            projector = Projector(name, verbatim, versioned=False)
            return Mirror(name, root, self._wake, projector=projector)
        projector = Projector(
            name,
            None if replicate.is_auto(resource) else configured(resource),
            values=resource.secrets,
            proven=self._proven(resource, settings),
        )
        return Mirror(
            name,
            root,
            self._wake,
            gvr=resource.gvr,
            scopes=replicate.namespaces_of(resource) or (EVERYWHERE,),
            projector=projector,
            optional=name in supplied(settings),
            known=partial(self._known, resource.gvr),
        )

    def _proven(self, resource: Resource, settings: Settings) -> Callable[[Item], bytes]:
        proven = partial(self._seals.without_unsealed_note, resource.gvr)
        if settings.remediate.moves == "together" or resource not in settings.targets():
            return proven

        def seen(item: Item) -> bytes:
            self._seen(resource.name, item)
            return proven(item)

        return seen

    def _feed(self, resource: Resource, settings: Settings) -> Origin:
        if resource is not _TOPOLOGY:
            replicate, ready = settings.replicate, self._readiness
            return Feed(self._kube, replicate, resource, ready, currency=self._currency)
        if self._topology is None:
            msg = "replicate.topology: this process does not know where a topology comes from"
            raise Misconfigured(msg)
        return self._topology(settings.topology, self._readiness, self._currency)


def wanted(settings: Settings) -> tuple[Resource, ...]:
    """Return all collections to replicate, with the topology, which is no resource."""
    replicate = settings.replicate
    return (*replicate.resources, *([_TOPOLOGY] if replicate.topology else ()))


def selection(replicate: Replicate, resource: Resource) -> object:
    """Return a value that is equal if the same objects are wanted in the same form."""
    return (
        resource.gvr,
        resource.label_selector,
        resource.field_selector,
        resource.paths,
        resource.secrets,
        replicate.is_auto(resource),
        replicate.namespaces_of(resource),
        replicate.ignored_of(resource),
    )
