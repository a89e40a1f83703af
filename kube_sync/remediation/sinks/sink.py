"""Controller that keeps published objects of one kind equal to placements.

Level-based, with its own queue and watch: a reconcile compares the decision, the placement of the
resource and the published objects (of the kind that its Form names), and writes the difference. It
writes nothing while decisions are held, before everything that is compared has been listed, or
without the Lease; a request that is under way when the Lease expires is abandoned (as in `writer`).
Runs until cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NoReturn, Protocol

import structlog

from kube_sync.errors import SyncError, Terminal
from kube_sync.kube.cache import Cache, Changes, Write
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.kube.reflector import Store
from kube_sync.kube.slices import Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import DecisionCache, Key
from kube_sync.remediation.sinks.forms import Form
from kube_sync.remediation.sinks.publication import Placed, Publication, Subject, Unusable, publish
from kube_sync.remediation.sinks.slices import mark, marked
from kube_sync.remediation.sinks.subjects import placed
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RETRY_SECONDS = 1.0
# A person approves placements, not this: what a resource has by now was approved.
_WRITES = ("enforce", "manual")


class Api(Protocol):
    """Writes slices; each method raises SyncError."""

    async def kind(self, gvr: GroupVersionResource) -> str:
        """Return the kind of a resource."""
        ...

    async def apply(self, wanted: Slice, found: Published | None) -> Published:
        """Create or update a slice."""
        ...

    async def delete(self, found: Published) -> None:
        """Delete a slice."""
        ...


class PlacementSink:
    """Reconciles the objects of one form with the placements of resources."""

    def __init__(
        self,
        form: Form,
        api: Api,
        decisions: DecisionCache,
        mode: Callable[[str], str],
        fenced: FencedWriter,
    ) -> None:
        """Take the mode of a namespace from `mode`.

        The caller wakes the sink when `fenced` may write again.
        """
        self._form = form
        self._api = api
        self._mode = mode
        self._fenced = fenced
        self._queue = WorkQueue[Key](form.name, lambda: Backoff(_RETRY_SECONDS))
        self._held: dict[Key, Unusable] = {}
        self._subjects: dict[GroupVersionResource, Cache[Placed]] = {}
        self._slices: dict[tuple[str, str], dict[ObjectKey, Published]] = {}
        self._decisions = decisions
        self._published = Cache[Published](
            lambda item: form.shape.parse(item.body), self._republished, self.wake
        )
        form.subscribe(self.wake)
        decisions.subscribe(self._add, self._released)

    @property
    def published(self) -> Store:
        """The Store for published objects."""
        return self._published

    @property
    def held(self) -> Mapping[Key, Unusable]:
        """The resources whose published objects are not updated, and why."""
        return self._held

    def subjects(self, gvr: GroupVersionResource) -> Store:
        """Return the Store for the metadata of one collection with decisions."""

        def changed(differences: Changes[Placed]) -> None:
            self._add((gvr, key) for key in differences)

        return self._subjects.setdefault(gvr, Cache(placed, changed, self.wake))

    def wake(self) -> None:
        """Enqueue everything: a hold has ended, or this process may write now."""
        self._add(self._decisions.known())
        self._released()

    def _released(self) -> None:
        """Enqueue what is published; keys with decisions are enqueued separately."""
        for namespace, subject in self._slices:
            self._enqueue(namespace, subject)

    def _add(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queue.add(key)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled; several of these may run concurrently."""
        # Yield after each: it takes long, and without a write a hundred would block the loop.
        await work(self._queue, self._process, turn=1)

    async def _process(self, key: Key) -> Result:
        """Reconcile one key; the end of whatever stops it here enqueues the key again."""
        if not self._is_known(key) or not self._fenced.may_write:
            return Result()
        try:
            await self._reconcile(key)
        except Fenced:
            # Requeue: the Lease may just have been renewed, and then nothing wakes this key.
            metrics.placement_decision_writes.labels(self._form.name, "fenced").inc()
            log.warning("placement_decision_fenced", **self._names(key))
            raise
        except Terminal as error:
            metrics.placement_decision_writes.labels(self._form.name, "refused").inc()
            log.warning("placement_decision_refused", **self._names(key), error=str(error))
        except SyncError as error:
            # A conflict too: by the retry the watch has delivered the newer object.
            metrics.placement_decision_writes.labels(self._form.name, "retried").inc()
            log.warning("placement_decision_delayed", **self._names(key), error=str(error))
            raise
        return Result()

    def _is_known(self, key: Key) -> bool:
        subjects = self._subjects.get(key[0])
        listed = subjects is not None and subjects.served and self._published.served
        return listed and self._form.known and self._decisions.may_act(key)

    async def _reconcile(self, key: Key) -> None:
        gvr, name = key
        mode = self._mode(name.namespace)
        found = self._slices.get((name.namespace, mark(gvr, name.name)), {})
        decided, now = self._decisions.get(key), self._subjects[gvr].get(name)
        if mode == "off" or not (found or decided):
            self._set_hold(key, None)
            return
        publication = publish(
            Subject(gvr, name, await self._api.kind(gvr)),
            decided,
            now,
            [found[one] for one in sorted(found)],
            self._form,
        )
        self._set_hold(key, publication.held)
        if mode in _WRITES:
            await self._write(key, publication)
        elif publication.write or publication.remove:
            metrics.placement_decision_writes.labels(self._form.name, mode).inc()
            log.info("placement_decision_not_written", **self._names(key), mode=mode)

    async def _write(self, key: Key, publication: Publication) -> None:
        for wanted in publication.write:
            found = self._published.get(wanted.key)
            with self._published.writing(wanted.key) as write:
                written = await self._fenced.send("apply", partial(self._api.apply, wanted, found))
            self._answered(key, write, written)
            metrics.placement_decision_writes.labels(self._form.name, "applied").inc()
            log.info("placement_decision_applied", **self._names(key), clusters=len(wanted.choices))
        for found in publication.remove:
            await self._fenced.send("delete", partial(self._api.delete, found))
            self._published.put(found.key, None)
            metrics.placement_decision_writes.labels(self._form.name, "deleted").inc()
            log.info("placement_decision_deleted", **self._names(key))

    def _answered(self, key: Key, write: Write, written: Published) -> None:
        """Cache a response, unless the watch is ahead: then enqueue the key again."""
        held = self._published.get(write.key)
        if write.overtaken or (held is not None and held.is_later(written)):
            self._queue.add(key)
        else:
            self._published.put(write.key, written)

    def _set_hold(self, key: Key, held: Unusable | None) -> None:
        before = self._held.get(key)
        if before == held:
            return
        if before is not None:
            del self._held[key]
            metrics.placement_decisions_held.labels(self._form.name, before.code).dec()
        if held is not None:
            self._held[key] = held
            metrics.placement_decisions_held.labels(self._form.name, held.code).inc()
            log.info("placement_decision_held", **self._names(key), reason=held.reason)

    def _republished(self, differences: Changes[Published]) -> None:
        for key, (before, now) in differences.items():
            if before is not None:
                self._drop(before)
            if now is not None:
                self._slices.setdefault(now.subject, {})[key] = now
                self._enqueue(*now.subject)
        metrics.placement_decisions.labels(self._form.name).set(len(self._published))

    def _drop(self, found: Published) -> None:
        where = found.subject
        del self._slices[where][found.key]
        if not self._slices[where]:
            del self._slices[where]
        self._enqueue(*where)

    def _enqueue(self, namespace: str, subject: str) -> None:
        collection, _, name = subject.rpartition("/")
        for gvr in self._subjects:
            if marked(gvr) == collection:
                self._queue.add((gvr, ObjectKey(namespace, name)))

    def _names(self, key: Key) -> dict[str, str]:
        return {"sink": self._form.name, "gvr": str(key[0]), "key": str(key[1])}
