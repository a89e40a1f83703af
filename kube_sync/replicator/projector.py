"""What OPA is to hold of each object of one collection, and which objects cannot be read.

Keeps true: an object that cannot be read is told of once, with its uid, until it can be read again
or is gone; the others go on. An object that lies elsewhere than what is kept was said for is kept
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
        """Without a `projection` nothing may be read before `narrow` says what to keep.

        `values` allows those of Secrets. What is not `versioned` has no resourceVersion in it.
        `proven` returns the JSON of an object without what somebody only pretends that kube-sync
        wrote.
        """
        self._name = name
        self._values = values
        self._proven = proven
        self._form = WHOLE
        self._project = projection or project
        self.versioned = versioned and keeps_version(self._project)
        self.shaped = asyncio.Event()  # it is known what to keep
        if projection is not None:
            self.shaped.set()
        # The uid of each object that cannot be read, and why: what OPA holds of it is of the past.
        self.unreadable: dict[ObjectKey, tuple[str, str]] = {}
        self._turned: set[ObjectKey] = set()  # those that became so, or are no more

    def narrow(self, form: Form) -> None:
        """Keep only this of each object; to be said before any is read."""
        self._form = form
        self._project = narrowing(form.paths, values=self._values)
        self.versioned = keeps_version(self._project)
        self.shaped.set()

    def read(self, item: Item) -> Loaded | None:
        """Return what to keep of an object, None where it cannot be read."""
        if not item.whole:
            self._unread(item, TOO_DEEP)
            return None
        key = item.key
        try:
            project_ = self._project if self._fits(key) else project
            found = Loaded(key, item.version, project_(self._proven(item)))
        except (*NO_JSON, KeyError) as error:
            # One object that cannot be read must not delay the others.
            log.warning(
                "object_not_replicated", resource=self._name, key=str(key), error=str(error)
            )
            self._unread(item, f"it cannot be read: {error}")
            return None
        if key in self.unreadable:
            self.readable([key])
        return found

    def readable(self, keys: Iterable[ObjectKey]) -> None:
        """Take note that these can be read again, or are gone."""
        for key in keys:
            if self.unreadable.pop(key, None) is not None:
                self._turned.add(key)

    def turned(self) -> set[ObjectKey]:
        """Return which objects became readable or unreadable since this was asked last."""
        found, self._turned = self._turned, set()
        return found

    def states_version(self, key: ObjectKey) -> bool:
        """Tell whether what is kept of an object has its resourceVersion in it."""
        return self.versioned or not self._fits(key)

    def _fits(self, key: ObjectKey) -> bool:
        """Tell whether an object lies where it has to for what is kept to be enough."""
        return self._form.namespaced in (None, bool(key.namespace))

    def _unread(self, item: Item, why: str) -> None:
        self.unreadable[item.key] = item.uid, why
        self._turned.add(item.key)
