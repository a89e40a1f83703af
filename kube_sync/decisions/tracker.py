"""Track changes, and re-evaluate every decision that a change may affect.

A changed target is evaluated at once, unless its class has a cached decision. A change of the
policies, or of a collection that the decision reads, causes a sweep of all targets, once for each
class. If a policy compares targets with each other, a changed target causes a delayed sweep too; if
decisions change by themselves, sweeps are repeated. The tracker fills the queue, has its objects
evaluated, and updates the hub.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

import structlog

from kube_sync.decisions.basis import BasisPublisher
from kube_sync.decisions.budget_watcher import BudgetWatcher
from kube_sync.decisions.collections import Collection_, TrackedCollections
from kube_sync.decisions.evaluation_queue import OBJECT_CHANGED, Cause, EvaluationQueue, Sweep
from kube_sync.decisions.evaluation_worker import EvaluationWorker
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import Division
from kube_sync.decisions.records import Source
from kube_sync.decisions.sharing import Sharing
from kube_sync.decisions.unwritten import Documents, Unwritten
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import tracing
from kube_sync.opa.analysis.result import Reads
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.memory import give_back

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RESWEEP_SECONDS = 30.0  # between two sweeps if decisions change by themselves
_SETTLE_SECONDS = 2.0


class Tracker:
    """Keeps a DecisionHub current through one epoch of OPA's data."""

    def __init__(
        self,
        evaluator: Evaluator,
        hub: DecisionHub,
        targets: Mapping[str, GroupVersionResource],
        collections: Iterable[Collection_],
        *,
        static: bool = False,
        budget_watcher: BudgetWatcher | None = None,
        documents: Documents | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`targets` are the collections that decisions are made for, by name in OPA.

        `static`: OPA has policies of its own, of which the tracker is not notified. Without
        `budget_watcher` no limits are queried. `documents` is data besides the collections.
        """
        self._evaluator = evaluator
        self._hub = hub
        self._collections = TrackedCollections(hub, targets, collections)
        self._queue = EvaluationQueue(clock)
        places = tuple if documents is None else documents.places
        self._sharing = Sharing(hub, BasisPublisher(hub.basis, places, static=static))
        self._unwritten = Unwritten(
            self._collections, self._sharing.may_read, hub.freshness, documents, clock
        )
        self._budget_watcher = budget_watcher
        parts = self._collections, self._queue, self._sharing
        backoff = backoff or Backoff(longest=5.0)
        self._worker = EvaluationWorker(
            evaluator, hub, *parts, budget_watcher=budget_watcher, backoff=backoff
        )
        self._changed = asyncio.Event()
        self._loading: bool | None = None  # None: the first sweep has not begun
        self._static = static
        hub.basis.follow(self._unwritten.is_current, evaluator.epoch)
        self._modules = 0

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Handle a write of these objects' newest state into OPA."""
        # Even without policies: a kind that came back may be released now.
        self._changed.set()
        self._unwritten.note()
        is_read, is_target = self._sharing.may_read(name), name in self._collections.targets
        if is_read or is_target:
            self._hub.data += 1
        if self._budget_watcher is not None:
            self._budget_watcher.written(name)
        if is_read:
            self._sharing.invalidate()
        if self._loading is None or self._has_nothing_to_decide():
            return  # the first sweep has every object
        is_loading = self._collections.is_loading(name)
        trace = tracing.context()
        cause = Cause("data", _source(name, keys), trace)
        if is_loading or (is_read and not is_target):
            self._queue.request_sweep(cause)  # its hold ends when all is evaluated again
        if is_target:
            self._queue.add(name, keys, Cause("object", None, trace) if trace else OBJECT_CHANGED)
            if is_read:
                self._queue.schedule_sweep(Cause("object", cause.source, trace), _SETTLE_SECONDS)

    def expect(self, collection: Collection_, target: GroupVersionResource | None) -> None:
        """Hold until this collection, new or a replacement, is loaded and decided on."""
        if self._collections.expect(collection, target):
            self._retargeted(collection.name, target)

    def retarget(self, name: str, target: GroupVersionResource | None) -> None:
        """Make a collection a target of decisions, or not any more."""
        if self._collections.retarget(name, target):
            self._retargeted(name, target)

    def forget(self, name: str) -> None:
        """Handle that a collection is being removed from OPA."""
        if self._collections.forget(name):
            self._retargeted(name, None)
        if self._budget_watcher is not None:
            self._budget_watcher.removing(name)

    def _retargeted(self, name: str, target: GroupVersionResource | None) -> None:
        self._queue.drop(name)
        if target is None:
            self._sharing.forget(name)
        self._queue.request_sweep(Cause("data"))
        self._changed.set()

    def wake(self) -> None:
        """Check which collections are known, and which objects became readable or unreadable."""
        self._unwritten.note()
        # Right away: OPA may hold the emptied collection before an answer arrives.
        self._collections.hold_missing()
        for name, keys in self._collections.take_readability_changes():
            if not self._has_nothing_to_decide():
                self._queue.add(name, keys, OBJECT_CHANGED)
        self._changed.set()

    def policies_changing(self) -> None:
        """Record that OPA may hold another set of policies from now on."""
        # Objects of one class by what the old policies read may be decided differently by the new.
        self._sharing.policies_changing()
        self._evaluator.policies_changing()
        self._queue.policies_changing()
        if self._budget_watcher is not None:
            self._budget_watcher.policies_changing()

    def policies_changed(self, digest: str, modules: int, reads: Reads) -> None:
        """Record that OPA holds another set of policies, of so many modules."""
        self._modules = modules
        self._queue.policies_changed()
        self._sharing.policies_changed(digest, reads)
        self._evaluator.policies_changed(reads)
        if self._budget_watcher is not None:
            self._budget_watcher.policies_changed(
                reads.beside, is_empty=not (modules or self._static)
            )
        self._queue.request_sweep(Cause("policy"))
        self._changed.set()

    def policies_renamed(self, digest: str, modules: int) -> None:
        """Record that OPA holds, or may hold, another set that decides the same."""
        self._modules = modules
        self._sharing.policies_renamed(digest)

    def division_changing(self) -> None:
        """Record that objects may be divided differently among sets of policies from now on."""
        self._sharing.division_changing()

    def division_changed(self, division: Division) -> None:
        """Let each object be decided by its set of policies."""
        # In one step: from now on that set decides on it, and no other.
        self._worker.evaluator = division.evaluator
        self._sharing.division_changed(division)
        if self._loading is None:
            return  # all are evaluated first
        for name in self._collections.targets:
            keys = filter(division.is_touched, self._collections.keys(name))
            self._queue.add(name, keys, Cause("policy"))
        self._changed.set()

    async def run(self, policies: asyncio.Event) -> NoReturn:
        """Once the first policies are in force, keep the hub current."""
        self._hub.hold("load", "OPA is being loaded")
        self._loading = None
        try:
            await policies.wait()
            self._queue.request_sweep(Cause("load"))
            while True:
                self._changed.clear()
                await self._process_queue()
                self._sharing.awaited.expect({})  # those left do not exist any more
                self._end_load()
                await self._wait()
        finally:
            self._hub.basis.leave()

    def _end_load(self) -> None:
        """Release readers once everything was decided on in this epoch, whatever changed since.

        Under constant changes of policies or objects there is always something to evaluate again.
        """
        if self._loading and not self._sharing.awaited:
            self._loading = False
            self._collections.forget_deleted()
            self._hub.release("load")
            log.info("decisions_current", targets=self._hub.count)

    async def _process_queue(self) -> None:
        """Evaluate until the queue is empty, changed targets before swept ones."""
        while True:
            self._collections.hold_missing()
            if self._queue.may_sweep and not self._collections.learning:
                self._begin_sweep()
            if self._queue.is_due:
                await self._worker.process_next()
                self._end_load()
            elif await self._worker.finish():
                self._end_load()
            elif self._queue.is_empty:
                await self._worker.settle_limits()
                self._collections.release_decided()
                break
            else:
                await self._wait_for_change(self._queue.sweep_wait_seconds)
                self._changed.clear()
        if self._queue.end_sweep():
            give_back()  # the tables of all objects: 100 bytes for each, and it takes 2 ms
            if self._sharing.is_impure:
                self._queue.schedule_sweep(Cause("data"), _RESWEEP_SECONDS)
        is_deciding = not self._has_nothing_to_decide()
        for name in self._collections.targets:
            self._sharing.measure(self._collections.by_name[name], is_deciding=is_deciding)

    def _begin_sweep(self) -> None:
        if (cause := self._queue.begin_sweep()) is None:
            return
        if not self._has_nothing_to_decide():
            sweep: Sweep = {}
            for name in self._collections.targets:
                collection, keys = self._collections.by_name[name], self._collections.keys(name)
                sweep |= self._sharing.group_by_class(collection, keys, cause)
            self._queue.replace_sweep(sweep)
        if self._loading is None:
            self._loading = True
            self._sharing.awaited.expect(self._queue.sweep)

    def _has_nothing_to_decide(self) -> bool:
        """Return whether every decision is known to be undefined, so that no query is needed."""
        return not self._static and not self._modules and not self._hub.count

    async def _wait(self) -> None:
        scheduled = self._queue.scheduled
        limits = self._budget_watcher.seconds if self._budget_watcher is not None else None
        times = (None if scheduled is None else scheduled[0], limits)
        timeout = min((seconds for seconds in times if seconds is not None), default=None)
        if await self._wait_for_change(timeout) or scheduled is None or timeout != scheduled[0]:
            return  # the timeout was for the limits
        cause = scheduled[1]
        if cause.kind == "data":  # such changes cause no notification
            self._sharing.invalidate()
        self._queue.request_sweep(cause)

    async def _wait_for_change(self, seconds: float | None) -> bool:
        """Wait for a change; return whether it came in time."""
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


def _source(name: str, keys: Collection[ObjectKey]) -> Source | None:
    return Source(name, str(next(iter(keys))), len(keys)) if keys else None
