"""Holds the objects of all followed kinds, as last delivered by the API server, and their changes.

Invariant: an object is here exactly while it exists at the API server. A kind that the API server
does not know keeps its objects for a while, since after a restart every CustomResourceDefinition is
unknown for a moment. It knows nothing of HTTP, API versions and graphs, and never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.topology.controller.events import ResourceEvent, means_the_same
from kube_sync.topology.controller.kind_store import KindStore
from kube_sync.topology.nodes import Body, GroupKind, Kind, Locator
from kube_sync.topology.raw_json import is_same

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# A starting API server serves its CustomResourceDefinitions within seconds.
_GONE_AFTER = 30.0


@dataclass(slots=True)
class _Followed:
    """The objects of one kind."""

    kind: Kind
    store: Store | None = None  # the present one; others are ignored
    listed: bool = False  # or known to be absent
    absent_since: float | None = None  # though there are objects
    held: dict[Locator, ObjectKey] = field(default_factory=dict)


class World:
    """The state that a topology is made of."""

    def __init__(
        self,
        news: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        gone_after: float = _GONE_AFTER,
    ) -> None:
        """`news` is called when there may be something to `take`; `gone_after` is in seconds."""
        self._news = news
        self._clock = clock
        self._gone_after = gone_after
        self._followed: dict[GroupKind, _Followed] = {}
        self._objects: dict[Locator, Body] = {}
        # The state at the last `take` of objects that have changed since.
        self._before: dict[Locator, tuple[GroupKind, ObjectKey, Body | None]] = {}

    def store(self, kind: Kind) -> Store:
        """Return a new Store for a kind; an earlier one is ignored from now on.

        Its objects are kept until the first LIST of the new one is complete.
        """
        followed = self._followed.setdefault(kind.id, _Followed(kind))
        followed.kind = kind
        followed.store = store = KindStore(self, kind)
        self._news()
        return store

    def forget(self, kind: GroupKind) -> None:
        """Drop the objects of a kind, which is not followed any more."""
        followed = self._followed.pop(kind, None)
        if followed is not None:
            self._release(followed)
            self._news()

    def objects(self) -> Iterator[Body]:
        """Yield every object, from a snapshot at the first one."""
        yield from self.snapshot().values()

    def snapshot(self) -> dict[Locator, Body]:
        """Return every object."""
        return dict(self._objects)

    def get(self, locator: Locator) -> Body | None:
        """Return the newest state of an object, which may be newer than the last `take`."""
        return self._objects.get(locator)

    def take(self) -> Sequence[ResourceEvent]:
        """Return the changes since the last call, sorted by locator, one event per object."""
        for followed in self._followed.values():
            if followed.absent_since is not None and self._is_over(followed.absent_since):
                log.info("kind_gone", kind=str(followed.kind.id), objects=len(followed.held))
                self._release(followed)
        before, self._before = self._before, {}
        events = (self._event(name, *before[name]) for name in sorted(before))
        return [event for event in events if event is not None]

    @property
    def waiting(self) -> frozenset[GroupKind]:
        """The kinds whose objects are not known yet."""
        return frozenset(id_ for id_, one in self._followed.items() if not one.listed)

    @property
    def due(self) -> float | None:
        """When there is something to `take` without further news, on the clock; None: never."""
        found = [one.absent_since for one in self._followed.values()]
        absent = [since for since in found if since is not None]
        return min(absent) + self._gone_after if absent else None

    # For its stores

    def listens(self, store: Store, kind: GroupKind) -> bool:
        """Return whether a store is still that of its kind."""
        return kind in self._followed and self._followed[kind].store is store

    def replace(self, kind: GroupKind, objects: Mapping[Locator, tuple[ObjectKey, Body]]) -> None:
        """Hold exactly these objects of a kind."""
        followed = self._followed[kind]
        followed.listed, followed.absent_since = True, None
        for name in followed.held.keys() - objects.keys():
            self._drop(followed, name)
        for name, (key, body) in objects.items():
            self._put(followed, name, key, body)
        self._news()

    def absent(self, kind: GroupKind) -> None:
        """Record that the API server does not know a kind."""
        followed = self._followed[kind]
        followed.listed = True
        if followed.held and followed.absent_since is None:
            followed.absent_since = self._clock()
            log.warning("kind_not_known", kind=str(kind), objects=len(followed.held))
        self._news()

    def change(self, kind: GroupKind, name: Locator, key: ObjectKey, body: Body | None) -> None:
        """Set the state of an object, None: it is deleted."""
        if body is not None:
            self._put(self._followed[kind], name, key, body)
        else:
            self._drop(self._followed[kind], name)
        self._news()

    def _put(self, followed: _Followed, name: Locator, key: ObjectKey, body: Body) -> None:
        old = self._objects.get(name)
        if body is not old:
            self._before.setdefault(name, (followed.kind.id, key, old))
            self._objects[name], followed.held[name] = body, key

    def _drop(self, followed: _Followed, name: Locator) -> None:
        key = followed.held.pop(name, None)
        if key is not None:
            old = self._objects.pop(name)
            self._before.setdefault(name, (followed.kind.id, key, old))

    def _release(self, followed: _Followed) -> None:
        followed.absent_since = None
        for name in list(followed.held):
            self._drop(followed, name)

    def _is_over(self, since: float) -> bool:
        return self._clock() - since >= self._gone_after

    def _event(
        self, name: Locator, kind: GroupKind, key: ObjectKey, old: Body | None
    ) -> ResourceEvent | None:
        new = self._objects.get(name)
        if is_same(old, new):
            return None
        meaning = old is None or new is None or not means_the_same(old, new)
        return ResourceEvent(kind, key.namespace, key.name, old, new, meaning)
