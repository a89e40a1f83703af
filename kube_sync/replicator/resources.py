"""The replicated resources of one epoch, reconciled with the configuration and policies' needs.

Invariant: a resource whose selection did not change is not touched. From before a new collection is
listed until OPA holds it and all was decided again, decisions are held and the process is not
ready. A collection that replaces another one of its name is replaced whole, so OPA always holds one
of the two; of a removed one nothing is left. A resource with `fields: auto` is replaced when
policies read more of it, and after a delay when they read less.

Removing or changing a resource before the first load is complete ends the epoch (Reconfigured): the
load may be waiting for just this resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import structlog

from kube_sync.config import Resource, Settings
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import EpochLost, SyncError, first_of
from kube_sync.objects import SECRET_VALUES
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Reads, withheld
from kube_sync.policies.required_fields import WHOLE, Extent, Form, Need
from kube_sync.replicator.class_backfill import ClassBackfill, Widen
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.replica import Replica, ReplicaMaker, selection, wanted
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.cooperative import in_own_task

log: structlog.stdlib.BoundLogger = structlog.get_logger()


_SHRINK_SECONDS = 5.0  # an edit reverted within this time lists nothing twice


class Reconfigured(SyncError):
    """The configuration changed during the first load: restart with the new one."""


class Resources:
    """The replicated resources of one epoch."""

    def __init__(
        self,
        settings: Settings,
        maker: ReplicaMaker,
        readiness: Readiness,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        grown: Callable[[], None] = lambda: None,
        shrink: float = _SHRINK_SECONDS,
        distrusted: set[str] | None = None,
    ) -> None:
        """Call `grown` when OPA holds more.

        Fields that nobody reads any more stay for `shrink` seconds. `distrusted` resources are
        replicated as whole objects.
        """
        self._settings = settings
        self._readiness = readiness
        self._backoff = backoff
        self._maker = maker
        self._news = asyncio.Event()
        self._arriving: dict[str, str] = {}  # why each is not loaded yet
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
        """Reconcile with these settings from now on."""
        self._settings = settings
        self._shrink_at = self._clock() + self._shrink
        self._news.set()

    def policies_changed(self, reads: Reads | None) -> None:
        """Classify the targets by the input fields in `reads`, None: not at all."""
        self._classes.change(reads)
        self._classify()

    def widen(self, name: str, widen: Widen | None) -> None:
        """Classify also by the fields that this adds for the evaluation `name`; None removes it."""
        self._classes.widen(name, widen)
        self._classify()

    # The data that policies depend on

    @property
    def narrowed(self) -> bool:
        """Whether policies determine the fields to replicate of any resource."""
        replicate = self._settings.replicate
        return any(map(replicate.is_auto, replicate.resources))

    def begin(self, needs: Iterable[Need | None]) -> None:
        """List the resources, with the fields that these sets of policies need.

        The first is that of the set that will be in force. Targets are classified by it from their
        first LIST on: otherwise they would be listed once more before decisions are made.
        """
        needs = [*needs]
        if needs and needs[0] is not None:
            self.policies_changed(needs[0].reads)
        self._extent.may_come(needs)
        self._extent_known()
        for replica in self._replicas.values():
            self._measure(replica)

    def hold(self, needs: Iterable[Need | None]) -> bool:
        """Replicate also what these need; return whether OPA holds it already."""
        if self._extent.may_come(needs):
            self._shrink_at = None
            self._extent_known()
        return all(map(self._is_enough, self._settings.replicate.resources))

    def settle(self, need: Need | None) -> None:
        """Replicate only what this one needs, after a delay."""
        if self._extent.is_in_force(need):
            self._shrink_at = self._clock() + self._shrink
            self._extent_known()

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:
        """Return the fields that are read and excluded by the configuration, by module."""
        return withheld(reads, self._settings)

    def narrowed_to(self, name: str) -> Form | None:
        """Return the fields of each object in OPA, if it is a target and not kept whole."""
        replica = self._replicas.get(name)
        if replica is None or name in self._arriving or replica.form == WHOLE:
            return None
        return replica.form

    def distrust(self, name: str) -> None:
        """Replicate whole objects of it for the life of this process."""
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
        """Reflect all resources, and reconcile. Raises EpochLost and Reconfigured."""
        try:
            await self._run(writer, decider)
        finally:
            # The next epoch may have other resources and reports all conditions anew. But no source
            # is current because of this: the next epoch holds all decisions first.
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
        """Wait for a change, or until unread fields may be removed."""
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
        # First, in one step: from here on nobody acts on a partial state.
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
        # After `expect`: a target that was renamed keeps its decisions.
        for name in gone:
            decider.forget(name)

    async def _take_out(self, names: Iterable[str], writer: Writer) -> None:
        olds = [self._replicas.pop(name) for name in names if name in self._replicas]
        for old in olds:  # cancel all first: one that is loading would report its condition again
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
        """Load a resource and keep it current; retry a load that OPA rejects by another LIST."""
        backoff = self._backoff()
        name = replica.resource.name
        while True:
            try:
                await in_own_task(self._load(replica, change))
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

    async def _load(self, replica: Replica, change: _Change) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(replica.follow())
            await change.writer.add(replica.mirror)
            self._arrived(replica.resource.name)
            self._classify()
            self._measure(replica)
            log.info("resource_added", resource=replica.resource.name)

    def _classify(self) -> None:
        targets = {resource.name for resource in self._settings.targets()}
        for name, replica in self._replicas.items():
            self._classes.classify(replica.mirror, target=name in targets)

    def _measure(self, replica: Replica) -> None:
        if not replica.mirror.shaped.is_set():
            return
        named = WHOLE.count if replica.resource.paths is None else len(replica.resource.paths)
        count = named if replica.form is None else replica.form.count
        metrics.replicated_fields.labels(replica.resource.name).set(count)

    def _tell(self, old: Replica | None, new: Replica) -> None:
        """Log why a resource is listed again, if policies read other fields."""
        if old is None or old.form is None or new.form is None or old.form == new.form:
            return
        name, fields = new.resource.name, new.form.count
        if old.form.holds(new.form):
            log.info("fields_shrink", resource=name, fields=fields)
            return
        target = name in self._settings.placement.names
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
        """Return whether it has to be replaced; `late`: also if it only holds too much."""
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
        """Set the Mirror's fields as soon as they are known, so that its LIST is processed."""
        if not replica.mirror.shaped.is_set() and self._extent.known:
            replica.form = self._form(replica.resource)
            replica.mirror.narrow(replica.form)

    def _form(self, resource: Resource) -> Form:
        target = resource.name in self._settings.placement.names
        form = self._extent.form(resource.name, target=target)
        return form.without(SECRET_VALUES) if resource.withholds else form


@dataclass(frozen=True, slots=True)
class _Change:
    """What a reconciliation works on."""

    writer: Writer
    decider: Tracker
    group: asyncio.TaskGroup
