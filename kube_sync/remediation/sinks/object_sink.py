"""A sink that keeps each placement in one object of its own, all of one kind.

An `ObjectForm` says how an object of that kind spells a placement; the rest is here. The objects
are cached by a watch. A write is bound to the state that was read, and so is a deletion. What an
object keeps of an earlier target of the same name is deleted first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.errors import NO_JSON
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import object_meta
from kube_sync.kube.slices import records_of
from kube_sync.kube.wholeobjects import delete_unchanged, put_object
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Decided, Nothing, Publish, Step, Write, after
from kube_sync.remediation.sinks.placement import clusters_of, kept, plan_placement
from kube_sync.remediation.sinks.sink import Changed

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kept:
    """The placement of a target as an object keeps it; `uid` is that of the target."""

    target: Key
    uid: str
    clusters: Collection[str]


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """How the objects of one kind keep placements.

    `read` parses an object, None: it is not of this sink. An object for which it raises LookupError
    or TypeError, or that is no JSON of its kind, is left as it is. `document` returns the whole
    object without a resourceVersion; its name has to be that of no other target.
    """

    gvr: GroupVersionResource
    read: Callable[[Item], Kept | None]
    document: Callable[[Kept], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Found:
    """An object that is there; `records` are those of moves, on an object of a leading sink."""

    place: ObjectKey
    version: str
    kept: Kept
    records: Mapping[str, str]


class ObjectSink:
    """Keeps the placements of targets in objects."""

    def __init__(self, name: str, form: ObjectForm, kube: KubeClient) -> None:
        self.name = name
        self._form = form
        self._kube = kube
        self._subscribers: list[Changed] = []
        self._found: dict[Key, _Found] = {}
        self.store = Cache[_Found](self._parse, self._differ, lambda: self._notify(None))

    @property
    def unknown(self) -> str:
        """What has not been listed yet."""
        return "" if self.store.served else f"{self._form.gvr} of ours"

    def subscribe(self, changed: Changed) -> None:
        """Call `changed` with the targets whose objects differ."""
        self._subscribers.append(changed)

    def keys(self) -> list[Key]:
        """Return the targets that have an object."""
        return list(self._found)

    def read(self, key: Key, target: Current) -> Current:
        """Return the target with the placement that its object keeps."""
        found = self._found.get(key)
        if found is None or found.kept.uid != target.uid:
            return kept(target, None)
        return kept(target, found.kept.clusters, found.records, found.version)

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        """Return the object to write, or its deletion."""
        found = self._found.get(key)
        if found is not None and (current is None or found.kept.uid != current.uid):
            uid = "" if current is None else current.uid
            return Publish(uid, {PLACEMENT: None}, version=found.version, content={})
        step = Nothing() if current is None else plan_placement(wanted, current)
        if current is None or not isinstance(step, Publish):
            return step
        return replace(step, content=records_of(after(step, current)))

    async def write(self, key: Key, step: Write) -> None:
        """Write or delete the object. Raises SyncError."""
        if not (isinstance(step, Publish) and isinstance(step.content, Mapping)):
            msg = f"not a step of {self.name}: {step}"
            raise TypeError(msg)
        found, text = self._found.get(key), step.annotations[PLACEMENT]
        if text is None:
            if found is not None:
                conditions = {"resourceVersion": step.version}
                await delete_unchanged(self._kube, self._form.gvr, found.place, conditions)
            return
        document = self._form.document(Kept(key, step.uid, sorted(clusters_of(text) or ())))
        metadata = document["metadata"]
        records = {**step.content, **records_of(step.annotations)}
        metadata["annotations"] = {**metadata.get("annotations", {}), **records}
        await put_object(self._kube, self._form.gvr, document, step.version)

    def _parse(self, item: Item) -> _Found | None:
        try:
            found = self._form.read(item)
            records = records_of(object_meta(item.body).annotations or {})
        except (*NO_JSON, LookupError, TypeError) as error:  # somebody else made it what it is
            why = type(error).__name__  # its text may quote the object
            log.warning("placement_unreadable", sink=self.name, key=str(item.key), error=why)
            return None
        return None if found is None else _Found(item.key, item.version, found, records)

    def _differ(self, changes: Changes[_Found]) -> None:
        for before, _ in changes.values():
            if before is not None:
                self._found.pop(before.kept.target, None)
        for _, now in changes.values():
            if now is not None:
                self._found[now.kept.target] = now
        self._notify([one.kept.target for pair in changes.values() for one in pair if one])

    def _notify(self, keys: Collection[Key] | None) -> None:
        for changed in self._subscribers:
            changed(keys)
