"""The resources of one epoch, as the configuration has them now: added, withdrawn, exchanged.

Keeps true: a resource whose selection did not change is not touched, whatever happens to others;
decisions are held, and the process is not ready, from before a collection is asked for until OPA
holds it and all was decided again; a collection that is exchanged for another one of its name is
replaced whole, so OPA never holds less than one of them; of one that is withdrawn nothing is left.
So is one with `fields: auto` when more of it is read, and a little after less of it is.

A resource that goes or changes before the first load of all is in ends the epoch (Reconfigured):
that load may be waiting for just this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads, joined, withheld
from kube_sync.decisions.classes import shares_classes
from kube_sync.decisions.sealing import Seals
from kube_sync.decisions.tracked import Collection_
from kube_sync.errors import EpochLost, Misconfigured, SyncError, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.objects import SECRET_VALUES, GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.extent import WHOLE, Extent, Form, Need
from kube_sync.replicator.firstload import EVERYWHERE
from kube_sync.replicator.lessons import Lessons
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.projection import configured, verbatim
from kube_sync.replicator.projector import Projector
from kube_sync.replicator.selection import Feed
from kube_sync.runtime.backoff import Backoff
from kube_sync.settings import TOPOLOGY, PolicyTopology, Replicate, Resource, Settings, supplied

log: structlog.stdlib.BoundLogger = structlog.get_logger()


# Says where, and how much: what `replicate` says of namespaces and fields is not for it.
_TOPOLOGY = Resource("", "", TOPOLOGY, namespaces=(), fields="all")
_CANARY = "canary"
_SHRINK_SECONDS = 5.0  # an edit that is taken back in this time lists nothing twice


class Reconfigured(SyncError):
    """The configuration changed in the middle of the first load: begin again with the new one."""


class Target(Protocol):
    """Where collections are written to, the Writer."""

    loaded: asyncio.Event

    async def add(self, mirror: Mirror) -> None:
        """Load one more."""
        ...

    async def drop(self, mirror: Mirror) -> None:
        """Write no more of it."""
        ...

    async def withdraw(self, name: str) -> None:
        """Remove it."""
        ...


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


class Decider(Protocol):
    """Who decides on collections, the Tracker."""

    def expect(self, found: Collection_, target: GroupVersionResource | None) -> None:
        """Hold until it is in."""
        ...

    def retarget(self, name: str, target: GroupVersionResource | None) -> None:
        """Decide about it, or not."""
        ...

    def forget(self, name: str) -> None:
        """Take note that it goes."""
        ...

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Take note that it changed."""
        ...

    def wake(self) -> None:
        """Look again: more classes are known."""
        ...


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


class Resources:
    """What is replicated in one epoch."""

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        readiness: Readiness,
        wake: Callable[[], None],
        *,
        backoff: Callable[[], Backoff] = Backoff,
        grown: Callable[[], None] = lambda: None,
        shrink: float = _SHRINK_SECONDS,
        distrusted: set[str] | None = None,
        currency: Currency = lambda _source, _reason: None,
        seals: Seals | None = None,
        topology: TopologyOrigin | None = None,
    ) -> None:
        """`wake` is called when a Mirror has something to write, `grown` when OPA holds more.

        `shrink` is how long what nobody reads any more stays, in seconds. Of what is `distrusted`
        whole objects are held. `currency` is told why what is replicated is not current, or None.
        `seals` tell which notes go into OPA. `topology` is where it comes from, if it is wanted.
        """
        self._settings = settings
        self._kube = kube
        self._readiness = readiness
        self._wake = wake
        self._backoff = backoff
        self._currency = currency
        self._seals = seals or Seals()
        self._topology = topology
        self._news = asyncio.Event()
        self._arriving: dict[str, str] = {}  # why each is not in yet
        self._classes = Lessons()
        self._reads: Reads | None = None
        self._staged: dict[str, Reads] = {}  # of what is beside what is in force
        self._grown = grown
        self._shrink = shrink
        self._shrink_at: float | None = None  # on the loop's clock
        self._distrusted = set() if distrusted is None else distrusted
        self._extent = Extent(self._distrusted)
        self._replicas = {r.name: self._replica(r) for r in self._wanted()}

    @property
    def mirrors(self) -> list[Mirror]:
        """The Mirrors of all resources."""
        return [replica.mirror for replica in self._replicas.values()]

    def configure(self, settings: Settings) -> None:
        """Replicate these resources from now on."""
        self._settings = settings
        self._shrink_at = self._clock() + self._shrink
        self._news.set()

    def policies_changed(self, reads: Reads | None) -> None:
        """Tell the objects that are decided on apart by what is read of them, None: by nothing."""
        self._reads = reads
        self._reclassify()

    def staged_changed(self, name: str, reads: Reads | None) -> None:
        """Tell them apart by what these say too, which a lane reads; None: there is no such lane.

        What it reads of all of an object tells nothing apart: who asks the lane asks for each.
        """
        if reads is None or not shares_classes(reads):
            self._staged.pop(name, None)
        else:
            self._staged[name] = reads
        self._reclassify()

    def canary_changed(self, reads: Reads | None) -> None:
        """Tell them apart by what these say too, whatever that is: they decide on a part of all."""
        if reads is None:
            self._staged.pop(_CANARY, None)
        else:
            self._staged[_CANARY] = reads
        self._reclassify()

    def _reclassify(self) -> None:
        self._classes.change(None if self._reads is None else self._of_all(self._reads))
        self._classify()

    def _of_all(self, reads: Reads) -> Reads:
        for name, staged in self._staged.items():
            both = joined(reads, staged)
            reads = both if name == _CANARY else replace(reads, input=both.input)
        return reads

    # As what policies stand on

    @property
    def narrowed(self) -> bool:
        """Whether the policies say of any resource which fields to hold."""
        replicate = self._settings.replicate
        return any(map(replicate.is_auto, replicate.resources))

    def begin(self, needs: Iterable[Need | None]) -> None:
        """List the resources, to hold of them what these sets of policies need."""
        self._extent.may_come(needs)
        self._extent_known()
        for replica in self._replicas.values():
            self._measure(replica)

    def hold(self, needs: Iterable[Need | None]) -> bool:
        """Hold what these need beside what was needed before; returns whether OPA does."""
        if self._extent.may_come(needs):
            self._shrink_at = None
            self._extent_known()
        return all(map(self._is_enough, self._settings.replicate.resources))

    def settle(self, need: Need | None) -> None:
        """Hold only what this one needs, from a little later on."""
        if self._extent.is_in_force(need):
            self._shrink_at = self._clock() + self._shrink
            self._extent_known()

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:
        """Return what is read that the configuration keeps out, by module."""
        return withheld(reads, self._settings)

    def narrowed_to(self, name: str) -> Form | None:
        """Return what OPA holds of each object, where decisions are about it and it is a part."""
        replica = self._replicas.get(name)
        if replica is None or name in self._arriving or replica.form == WHOLE:
            return None
        return replica.form

    def distrust(self, name: str) -> None:
        """Hold whole objects of it, as long as this process lives."""
        self._distrusted.add(name)
        self._news.set()

    def _extent_known(self) -> None:
        for replica in self._replicas.values():
            self._shape(replica)
        self._news.set()

    def _is_enough(self, resource: Resource) -> bool:
        if not self._settings.replicate.is_auto(resource):
            return True
        form, replica = self._form(resource), self._replicas.get(resource.name)
        if replica is None or replica.form is None or resource.name in self._arriving:
            return False
        return replica.form.holds(form)

    async def run(self, writer: Target, decider: Decider) -> NoReturn:
        """Follow all resources, and the configuration. Raises EpochLost and Reconfigured."""
        try:
            await self._run(writer, decider)
        finally:
            # The next epoch may be about others, and says all that it knows itself. But nothing
            # is current for that: whoever begins it holds all first.
            for name in [*self._replicas]:
                self._replicas[name].feed.forget()
                self._unmeasure(name)

    async def _run(self, writer: Target, decider: Decider) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for replica in self._replicas.values():
                replica.task = group.create_task(replica.follow())
                self._measure(replica)
            group.create_task(self._classes.run(self._replicas.values, decider.wake))
            change = _Change(writer, decider, group)
            while True:
                await self._wait()
                await self._reconcile(change)

    async def _wait(self) -> None:
        """Wait for news, or until what nobody reads any more may go."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._shrink_at):
                await self._news.wait()
        self._news.clear()

    async def _reconcile(self, change: _Change) -> None:
        wanted = {resource.name: resource for resource in self._wanted()}
        gone = [name for name in self._replicas if name not in wanted]
        late = self._shrink_at is not None and self._clock() >= self._shrink_at
        if late:
            self._shrink_at = None
        new = {n: self._replica(r) for n, r in wanted.items() if self._differs(n, r, late=late)}
        if (gone or new) and not change.writer.loaded.is_set():
            msg = f"the configuration changed during the load: {', '.join([*gone, *new])}"
            raise Reconfigured(msg)
        # First of all, in one step: from here on nobody acts on what is half done.
        self._announce(change.decider, new, gone)
        await self._take_out([*gone, *new], change.writer)
        for name in gone:
            await change.writer.withdraw(name)
            self._withdrawn(name, change.decider)
        for name, replica in new.items():
            self._replicas[name] = replica
            replica.task = change.group.create_task(self._bring_in(replica, change))

    def _announce(self, decider: Decider, new: dict[str, Replica], gone: list[str]) -> None:
        targets = {resource.name: resource.gvr for resource in self._settings.targets()}
        for name, replica in new.items():
            self._await(name, "is being loaded")
            self._tell(self._replicas.get(name), replica)
            decider.expect(replica.mirror, targets.get(name))
        for name in self._replicas.keys() - new.keys() - set(gone):
            decider.retarget(name, targets.get(name))
        self._classify()
        # After what is expected: a target that has another name now keeps its decisions.
        for name in gone:
            decider.forget(name)

    async def _take_out(self, names: Iterable[str], writer: Target) -> None:
        olds = [self._replicas.pop(name) for name in names if name in self._replicas]
        for old in olds:  # all at once: one that is still loading would announce itself again
            old.cancel()
        for old in olds:
            await old.ended()
            await writer.drop(old.mirror)

    def _withdrawn(self, name: str, decider: Decider) -> None:
        self._unmeasure(name)
        self._arrived(name)
        decider.written(name, ())
        log.info("resource_withdrawn", resource=name)

    def _unmeasure(self, name: str) -> None:
        for metric in (
            metrics.replicated_objects,
            metrics.resource_known,
            metrics.replicated_fields,
        ):
            metric.remove(name)

    async def _bring_in(self, replica: Replica, change: _Change) -> None:
        """Load it, and follow it; a load that OPA refuses begins again with another LIST."""
        backoff = self._backoff()
        name = replica.resource.name
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(replica.follow())
                    await change.writer.add(replica.mirror)
                    self._arrived(name)
                    self._classify()
                    self._measure(replica)
                    log.info("resource_added", resource=name)
            except* EpochLost:
                raise
            except* SyncError as errors:
                self._await(name, str(first_of(errors)))
            await backoff.wait()
            replica.mirror = self._mirror(replica.resource)
            if replica.form is not None:
                replica.mirror.narrow(replica.form)
            targets = {resource.name: resource.gvr for resource in self._settings.targets()}
            change.decider.expect(replica.mirror, targets.get(name))

    def _classify(self) -> None:
        targets = {resource.name for resource in self._settings.targets()}
        for name, replica in self._replicas.items():
            self._classes.give(replica.mirror, target=name in targets)

    def _measure(self, replica: Replica) -> None:
        if not replica.mirror.shaped.is_set():
            return
        named = WHOLE.count if replica.resource.paths is None else len(replica.resource.paths)
        count = named if replica.form is None else replica.form.count
        metrics.replicated_fields.labels(replica.resource.name).set(count)

    def _tell(self, old: Replica | None, new: Replica) -> None:
        """Say why a resource is listed again, where that is for what policies read."""
        if old is None or old.form is None or new.form is None or old.form == new.form:
            return
        name, fields = new.resource.name, new.form.count
        if old.form.holds(new.form):
            log.info("fields_shrink", resource=name, fields=fields)
            return
        target = name in self._settings.placement.resources
        asked = self._extent.asked(name, old.form, target=target, within=new.form)
        log.info("fields_grow", resource=name, fields=fields, asked=asked)

    def _await(self, name: str, why: str) -> None:
        self._arriving[name] = why
        self._report()

    def _arrived(self, name: str) -> None:
        if self._arriving.pop(name, None) is not None:
            self._report()
            self._grown()

    def _report(self) -> None:
        reasons = [f"{name}: {why}" for name, why in sorted(self._arriving.items())]
        self._readiness.reporter("data")("; ".join(reasons) or None)

    def _differs(self, name: str, resource: Resource, *, late: bool) -> bool:
        """Tell whether it has to be exchanged; `late`: also where it only holds too much."""
        old = self._replicas.get(name)
        if old is None or old.selection != _selection(self._settings.replicate, resource):
            return True
        if old.form is None:
            return False
        form = self._form(resource)
        return old.form != form and (late or not old.form.holds(form))

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _replica(self, resource: Resource) -> Replica:
        selection, mirror = _selection(self._settings.replicate, resource), self._mirror(resource)
        replica = Replica(resource, selection, mirror, self._feed(resource))
        self._shape(replica)
        return replica

    def _wanted(self) -> tuple[Resource, ...]:
        """Return all collections, and what is one although it is no resource."""
        replicate = self._settings.replicate
        return (*replicate.resources, *([_TOPOLOGY] if replicate.topology else ()))

    def _feed(self, resource: Resource) -> Origin:
        if resource is _TOPOLOGY:
            if self._topology is None:
                msg = "replicate.topology: this process does not know where a topology comes from"
                raise Misconfigured(msg)
            return self._topology(self._settings.topology, self._readiness, self._currency)
        replicate = self._settings.replicate
        return Feed(self._kube, replicate, resource, self._readiness, currency=self._currency)

    def _shape(self, replica: Replica) -> None:
        """Let what is listed in as soon as it is known what to keep of it."""
        if not replica.mirror.shaped.is_set() and self._extent.known:
            replica.form = self._form(replica.resource)
            replica.mirror.narrow(replica.form)

    def _form(self, resource: Resource) -> Form:
        target = resource.name in self._settings.placement.resources
        form = self._extent.form(resource.name, target=target)
        return form.without(SECRET_VALUES) if resource.withholds else form

    def _mirror(self, resource: Resource) -> Mirror:
        replicate = self._settings.replicate
        if resource is _TOPOLOGY:
            projector = Projector(TOPOLOGY, verbatim, versioned=False)
            return Mirror(TOPOLOGY, (replicate.root,), self._wake, projector=projector)
        scopes = replicate.namespaces_of(resource) or (EVERYWHERE,)
        projector = Projector(
            resource.name,
            None if replicate.is_auto(resource) else configured(resource),
            values=resource.secrets,
            proven=partial(self._seals.proven, resource.gvr),
        )
        return Mirror(
            resource.name,
            (replicate.root,),
            self._wake,
            gvr=resource.gvr,
            scopes=scopes,
            projector=projector,
            optional=resource.name in supplied(self._settings),
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """What a change of the configuration works on."""

    writer: Target
    decider: Decider
    group: asyncio.TaskGroup


def _selection(replicate: Replicate, resource: Resource) -> object:
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
