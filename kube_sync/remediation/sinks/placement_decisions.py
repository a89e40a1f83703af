"""The sinks that publish placements as PlacementDecisions, of the kind that a Form describes.

The slices that are there are cached by a watch. Requests are sent one after the other, each while
this process may write, and bound to the state that was read; an answer is cached before its watch
event arrives.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec
import structlog

from kube_sync.guard import HISTORY
from kube_sync.kube.cache import Cache, Changes, Write
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.slices import Published, Slice
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Decided, Publish, Step
from kube_sync.remediation.plan import Write as Planned
from kube_sync.remediation.sinks.forms import Form
from kube_sync.remediation.sinks.publication import Slices, Subject, carried_out, publish
from kube_sync.remediation.sinks.sink import Changed, names
from kube_sync.remediation.sinks.slices import mark, marked

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Api(Protocol):
    """Writes slices; each method raises SyncError."""

    async def kind(self, gvr: GroupVersionResource) -> str:
        """Return the kind of a resource."""

    async def apply(self, wanted: Slice, found: Published | None) -> Published:
        """Create or update a slice."""

    async def delete(self, found: Published) -> None:
        """Delete a slice."""


class PlacementDecisionSink:
    """Publishes the placements of the resources of some collections in one form."""

    def __init__(
        self,
        form: Form,
        api: Api,
        collections: Collection[GroupVersionResource],
        fenced: FencedWriter,
    ) -> None:
        """Publish the placements of the resources of `collections`."""
        self._form = form
        self._api = api
        self._collections = {marked(gvr): gvr for gvr in collections}
        self._fenced = fenced
        self._subscribers: list[Changed] = []
        self._slices: dict[tuple[str, str], dict[ObjectKey, Published]] = {}
        self.published = Cache[Published](
            lambda item: form.shape.parse(item.body), self._republished, self._notify
        )
        form.subscribe(self._notify)

    @property
    def name(self) -> str:
        """The name of the form."""
        return self._form.name

    @property
    def unknown(self) -> str:
        """What has not been listed yet."""
        if not self.published.served:
            return f"{self._form.shape.gvr} of ours"
        return "" if self._form.known else "ClusterProfiles"

    def subscribe(self, changed: Changed) -> None:
        """Call `changed` with the targets whose slices, or the form of them, differ."""
        self._subscribers.append(changed)

    def keys(self) -> list[Key]:
        """Return the targets that have slices."""
        return [key for subject in self._slices if (key := self._key(*subject)) is not None]

    def read(self, key: Key, target: Current) -> Current:
        """Return the target with the placement that is published."""
        return carried_out(target, self._found(key))

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        """Return the slices to write and to delete."""
        return publish(Subject(*key), wanted, current, self._found(key), self._form)

    async def write(self, key: Key, step: Planned) -> None:
        """Write slices, and then delete others. Raises SyncError."""
        if not (isinstance(step, Publish) and isinstance(step.content, Slices)):
            msg = f"not a step of {self.name}: {step}"
            raise TypeError(msg)
        slices = step.content
        if history := step.annotations.get(HISTORY):
            slices = slices.with_records({HISTORY: history})
        for wanted in slices.write:
            await self._apply(key, wanted)
        for found in slices.remove:
            await self._delete(key, found)

    async def _apply(self, key: Key, wanted: Slice) -> None:
        owner = msgspec.structs.replace(wanted.owner, kind=await self._api.kind(key[0]))
        owned, found = replace(wanted, owner=owner), self.published.get(wanted.key)
        with self.published.writing(wanted.key) as write:
            written = await self._fenced.send("apply", partial(self._api.apply, owned, found))
        self._answered(key, write, written)
        metrics.placement_decision_writes.labels(self.name, "applied").inc()
        clusters = len(wanted.choices)
        log.info("placement_decision_applied", **names(self, key), clusters=clusters)

    async def _delete(self, key: Key, found: Published) -> None:
        await self._fenced.send("delete", partial(self._api.delete, found))
        self.published.put(found.key, None)
        metrics.placement_decision_writes.labels(self.name, "deleted").inc()
        log.info("placement_decision_deleted", **names(self, key))

    def _answered(self, key: Key, write: Write, written: Published) -> None:
        """Cache a response, unless the watch is ahead: then the target has to be planned again."""
        held = self.published.get(write.key)
        if write.overtaken or (held is not None and held.is_later(written)):
            self._notify([key])
        else:
            self.published.put(write.key, written)

    def _found(self, key: Key) -> list[Published]:
        gvr, name = key
        found = self._slices.get((name.namespace, mark(gvr, name.name)), {})
        return [found[one] for one in sorted(found)]

    def _republished(self, differences: Changes[Published]) -> None:
        for key, (before, now) in differences.items():
            if before is not None:
                self._drop(before)
            if now is not None:
                self._slices.setdefault(now.subject, {})[key] = now
                self._changed(*now.subject)
        metrics.placement_decisions.labels(self.name).set(len(self.published))

    def _drop(self, found: Published) -> None:
        where = found.subject
        del self._slices[where][found.key]
        if not self._slices[where]:
            del self._slices[where]
        self._changed(*where)

    def _changed(self, namespace: str, subject: str) -> None:
        if (key := self._key(namespace, subject)) is not None:
            self._notify([key])

    def _key(self, namespace: str, subject: str) -> Key | None:
        """Return the target of slices; None: it is of a collection that this sink does not have."""
        collection, _, name = subject.rpartition("/")
        gvr = self._collections.get(collection)
        return None if gvr is None else (gvr, ObjectKey(namespace, name))

    def _notify(self, keys: Collection[Key] | None = None) -> None:
        for changed in self._subscribers:
            changed(keys)
