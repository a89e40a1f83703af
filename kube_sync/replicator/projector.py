"""Project the objects of one collection for OPA, and record which cannot be read.

Invariant: an object that cannot be read is recorded with its uid until it can be read again or is
gone; the others go on. An object of another scope than the projection was derived for is kept
whole. It makes no requests and keeps no body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Item
from kube_sync.objects import ObjectKey
from kube_sync.policies.required_fields import WHOLE, Form
from kube_sync.replicator.bulk_load import Loaded
from kube_sync.replicator.path_projection import narrowing
from kube_sync.replicator.projection import Project, keeps_version, project

log: structlog.stdlib.BoundLogger = structlog.get_logger()

TOO_DEEP = "it is nested too deeply to be read"


def _whole(item: Item) -> bytes:
    return item.body


class Projector:
    """Projects the objects of one collection."""

    def __init__(
        self,
        name: str,
        projection: Project | None = project,
        *,
        values: bool = False,
        versioned: bool = True,
        proven: Callable[[Item], bytes] = _whole,
    ) -> None:
        """Without a `projection`, `narrow` must be called before the first object is read.

        `values` allows the values of Secrets. If not `versioned`, objects have no resourceVersion.
        `proven` returns an object's JSON without annotations that only pretend to be written by
        kube-sync.
        """
        self._name = name
        self._values = values
        self._proven = proven
        self._form = WHOLE
        self._project = projection or project
        self.versioned = versioned and keeps_version(self._project)
        self.shaped = asyncio.Event()  # set once the fields to keep are known
        if projection is not None:
            self.shaped.set()
        # uid and reason of each object that cannot be read: OPA's state of it is outdated.
        self.unreadable: dict[ObjectKey, tuple[str, str]] = {}
        self._readability_changes: set[ObjectKey] = (
            set()
        )  # those that became unreadable or readable

    def narrow(self, form: Form) -> None:
        """Keep only these fields of each object; call it before the first object."""
        self._form = form
        self._project = narrowing(form.paths, values=self._values)
        self.versioned = keeps_version(self._project)
        self.shaped.set()

    def read(self, item: Item) -> Loaded | None:
        """Return the projection of an object, None if it cannot be read."""
        if not item.whole:
            self._unread(item, TOO_DEEP)
            return None
        key = item.key
        try:
            project_ = self._project if self._fits(key) else project
            found = Loaded(key, item.version, project_(self._proven(item)), item.uid)
        except (*NO_JSON, KeyError) as error:
            # An unreadable object must not delay the others.
            log.warning(
                "object_not_replicated", resource=self._name, key=str(key), error=str(error)
            )
            self._unread(item, f"it cannot be read: {error}")
            return None
        if key in self.unreadable:
            self.readable([key])
        return found

    def readable(self, keys: Iterable[ObjectKey]) -> None:
        """Record that these can be read again, or are gone."""
        for key in keys:
            if self.unreadable.pop(key, None) is not None:
                self._readability_changes.add(key)

    def take_readability_changes(self) -> set[ObjectKey]:
        """Return the objects that became readable or unreadable since the last call."""
        found, self._readability_changes = self._readability_changes, set()
        return found

    def states_version(self, key: ObjectKey) -> bool:
        """Return whether the projection of an object has its resourceVersion."""
        return self.versioned or not self._fits(key)

    def _fits(self, key: ObjectKey) -> bool:
        """Return whether an object has the scope that the projection was derived for."""
        return self._form.namespaced in (None, bool(key.namespace))

    def _unread(self, item: Item, why: str) -> None:
        self.unreadable[item.key] = item.uid, why
        self._readability_changes.add(item.key)
