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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import structlog

from kube_sync.config import Resource, Settings
from kube_sync.decisions.sealing import Seals
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, SyncError, first_of
from kube_sync.kube.client import KubeClient
from kube_sync.objects import SECRET_VALUES
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.reads import Reads, withheld
from kube_sync.policies.required_fields import WHOLE, Extent, Form, Need
from kube_sync.replicator.class_backfill import ClassBackfill, Widen
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.replica import (
    Currency,
    Replica,
    ReplicaMaker,
    TopologyOrigin,
    selection,
    wanted,
)
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


_SHRINK_SECONDS = 5.0  # an edit that is taken back in this time lists nothing twice


class Reconfigured(SyncError):
    """The configuration changed in the middle of the first load: begin again with the new one."""


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
        self._readiness = readiness
        self._backoff = backoff
        self._maker = ReplicaMaker(
            kube, readiness, wake, currency=currency, seals=seals or Seals(), topology=topology
        )
        self._news = asyncio.Event()
        self._arriving: dict[str, str] = {}  # why each is not in yet
        self._classes = ClassBackfill()
        self._grown = grown
        self._shrink = shrink
        self._shrink_at: float | None = None  # on the loop's clock
        self._distrusted = set() if distrusted is None else distrusted
        self._extent = Extent(self._distrusted)
        self._replicas = {r.name: self._replica(r) for r in wanted(settings)}

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
        self._classes.change(reads)
        self._classify()

    def widen(self, name: str, widen: Widen | None) -> None:
        """Tell them apart by what this adds too, for what has this name beside them; None: none."""
        self._classes.widen(name, widen)
        self._classify()

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

    async def run(self, writer: Writer, decider: Tracker) -> NoReturn:
        """Follow all resources, and the configuration. Raises EpochLost and Reconfigured."""
        try:
            await self._run(writer, decider)
        finally:
            # The next epoch may be about others, and says all that it knows itself. But nothing
            # is current for that: whoever begins it holds all first.
            for name in [*self._replicas]:
                self._replicas[name].feed.forget()
                self._unmeasure(name)

    async def _run(self, writer: Writer, decider: Tracker) -> NoReturn:
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
        resources = {resource.name: resource for resource in wanted(self._settings)}
        gone = [name for name in self._replicas if name not in resources]
        late = self._shrink_at is not None and self._clock() >= self._shrink_at
        if late:
            self._shrink_at = None
        new = {n: self._replica(r) for n, r in resources.items() if self._differs(n, r, late=late)}
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

    def _announce(self, decider: Tracker, new: dict[str, Replica], gone: list[str]) -> None:
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

    async def _take_out(self, names: Iterable[str], writer: Writer) -> None:
        olds = [self._replicas.pop(name) for name in names if name in self._replicas]
        for old in olds:  # all at once: one that is still loading would announce itself again
            old.cancel()
        for old in olds:
            await old.ended()
            await writer.drop(old.mirror)

    def _withdrawn(self, name: str, decider: Tracker) -> None:
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
            replica.mirror = self._maker.mirror(replica.resource, self._settings)
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
        if old is None or old.selection != selection(self._settings.replicate, resource):
            return True
        if old.form is None:
            return False
        form = self._form(resource)
        return old.form != form and (late or not old.form.holds(form))

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _replica(self, resource: Resource) -> Replica:
        replica = self._maker.replica(resource, self._settings)
        self._shape(replica)
        return replica

    def _shape(self, replica: Replica) -> None:
        """Let what is listed in as soon as it is known what to keep of it."""
        if not replica.mirror.shaped.is_set() and self._extent.known:
            replica.form = self._form(replica.resource)
            replica.mirror.narrow(replica.form)

    def _form(self, resource: Resource) -> Form:
        target = resource.name in self._settings.placement.resources
        form = self._extent.form(resource.name, target=target)
        return form.without(SECRET_VALUES) if resource.withholds else form


@dataclass(frozen=True, slots=True)
class _Change:
    """What a change of the configuration works on."""

    writer: Writer
    decider: Tracker
    group: asyncio.TaskGroup
