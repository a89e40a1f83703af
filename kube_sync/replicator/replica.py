"""One resource on its way into OPA: where its objects come from, and what takes them in.

Keeps true: two replicas with an equal `selection` want the same objects in the same form.
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
from kube_sync.observability.readiness import Readiness
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.bulk_load import EVERYWHERE
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.projection import configured, verbatim
from kube_sync.replicator.projector import Projector
from kube_sync.replicator.selection import Feed

# Says where, and how much: what `replicate` says of namespaces and fields is not for it.
_TOPOLOGY = Resource("", "", TOPOLOGY, namespaces=(), fields="all")


class Origin(Protocol):
    """Where the objects of a collection come from."""

    async def run(self, mirror: Mirror) -> None:
        """Keep a Mirror current until cancelled."""
        ...

    async def learn(self, mirror: Mirror) -> None:
        """Hand it all objects once more. Raises SyncError."""
        ...

    def forget(self) -> None:
        """Say nothing of it any more."""
        ...

    def release(self) -> None:
        """Let nobody wait for it to be current."""
        ...


Currency = Callable[[str, str | None], None]  # told why something is not current; None: it is
# Where the topology comes from: who builds the replicator knows how it is made.
TopologyOrigin = Callable[[PolicyTopology, Readiness, Currency], Origin]


@dataclass(slots=True)
class Replica:
    """One resource on its way into OPA."""

    resource: Resource
    selection: object  # equal to another one when the same objects are wanted in the same form
    mirror: Mirror
    feed: Origin
    form: Form | None = None  # how much of it to keep, once that is known
    task: asyncio.Task[None] | None = field(default=None)

    async def follow(self) -> None:
        """Keep the Mirror current until cancelled; it is listed while it waits for its form."""
        await self.feed.run(self.mirror)

    def cancel(self) -> None:
        """Ask the API server no more."""
        if self.task is not None:
            self.task.cancel()

    async def ended(self) -> None:
        """Wait until nothing of it runs, and say nothing of it any more."""
        if self.task is not None:
            await asyncio.wait([self.task])
        self.feed.forget()
        self.feed.release()


class ReplicaMaker:
    """Makes replicas as the configuration has them."""

    def __init__(
        self,
        kube: KubeClient,
        readiness: Readiness,
        wake: Callable[[], None],
        *,
        currency: Currency,
        seals: Seals,
        topology: TopologyOrigin | None,
    ) -> None:
        self._kube = kube
        self._readiness = readiness
        self._wake = wake
        self._currency = currency
        self._seals = seals
        self._topology = topology

    def replica(self, resource: Resource, settings: Settings) -> Replica:
        """Return a replica that nothing runs of yet. Raises Misconfigured."""
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
            proven=partial(self._seals.proven, resource.gvr),
        )
        return Mirror(
            name,
            root,
            self._wake,
            gvr=resource.gvr,
            scopes=replicate.namespaces_of(resource) or (EVERYWHERE,),
            projector=projector,
            optional=name in supplied(settings),
        )

    def _feed(self, resource: Resource, settings: Settings) -> Origin:
        if resource is not _TOPOLOGY:
            replicate, ready = settings.replicate, self._readiness
            return Feed(self._kube, replicate, resource, ready, currency=self._currency)
        if self._topology is None:
            msg = "replicate.topology: this process does not know where a topology comes from"
            raise Misconfigured(msg)
        return self._topology(settings.topology, self._readiness, self._currency)


def wanted(settings: Settings) -> tuple[Resource, ...]:
    """Return all collections, and what is one although it is no resource."""
    replicate = settings.replicate
    return (*replicate.resources, *([_TOPOLOGY] if replicate.topology else ()))


def selection(replicate: Replicate, resource: Resource) -> object:
    """Return what is equal where the same objects are wanted in the same form."""
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
