"""One replicated collection: what OPA holds of it, and what it does not hold yet.

Keeps true: for every key the newest body wins, a change that is undone before it was written
costs nothing, and a removal is only sent for what OPA really holds (removing what is not there
fails a whole PATCH). Of an object that cannot be read any more OPA keeps the last state that could:
to remove it would change what policies count. It is `unreadable` until it can be read again or is
gone, and nothing may be decided of it by that past state. Memory is one body for each key not yet
written, and a resourceVersion for each that is, and where decisions are about it a class and a uid,
with a digest where only some fields are kept: an event that changes none of these is not written.
Until all of several namespaces are listed, their document too. It makes no requests.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from kube_sync.decisions.classes import Classify, Member, Members
from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Event, Item
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa import paths
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.extent import WHOLE, Form
from kube_sync.replicator.firstload import Digests, FirstLoad, Loaded, digest
from kube_sync.replicator.narrowing import narrowing
from kube_sync.replicator.projection import Project, keeps_version, project

log: structlog.stdlib.BoundLogger = structlog.get_logger()


TOO_DEEP = "it is nested too deeply to be read"
EVERYWHERE = ""  # the scope of a LIST that knows no namespaces


@dataclass(frozen=True, slots=True)
class Change:
    """The wanted state of one key: a projected body, or None for an object that is gone."""

    version: str
    body: bytes | None
    arrived: float = 0.0  # the first event that OPA lacks, on the monotonic clock; 0 of a LIST
    member: Member | None = None  # of which class it is, where that is known


Batch = dict[ObjectKey, Change]


def _whole(item: Item) -> bytes:
    return item.body


class Mirror:
    """The Store of one Reflector, or of one for each namespace, read by the Writer.

    No `kube.cache.Cache`: it keeps JSON of what changed, not objects, and is the hot path.
    """

    def __init__(
        self,
        name: str,
        root: DataPath,
        news: Callable[[], None],
        *,
        gvr: GroupVersionResource | None = None,
        scopes: Iterable[str] = (EVERYWHERE,),
        projection: Project | None = project,
        values: bool = False,
        optional: bool = False,
        versioned: bool = True,
        proven: Callable[[Item], bytes] = _whole,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`news` is called whenever there is something to write.

        `gvr` is what is followed, None: nothing of the API server. `scopes` are the namespaces that
        are listed one by one. Without a `projection` nothing may be taken in before `narrow` says
        what to keep; `values` allows those of Secrets. A kind that is `optional` is empty where the
        API server lacks it. What is not `versioned` has no resourceVersion in it. `proven` returns
        the JSON of an object without what somebody only pretends that kube-sync wrote.
        """
        self.name = name
        self.gvr = gvr
        self._optional = optional
        self.known = True  # False while the API server lacks the kind
        self.members = Members()
        self.learning = False  # a LIST that tells the classes of what is held is due or under way
        self._path = (*root, name)
        self._proven = proven
        self._news = news
        self.shaped = asyncio.Event()  # it is known what to keep
        if projection is not None:
            self.shaped.set()
        self._project = projection = projection or project
        self._values = values
        self._clock = clock
        self._lag = metrics.replication_lag_seconds.labels(name)
        self._bytes = metrics.replicated_bytes.labels(name)
        self._unchanged = metrics.unchanged_events.labels(name)
        for checks in _CHECKS:
            checks.labels(name)  # 0 is told too: a first one is a rise
        self._versioned = versioned and keeps_version(projection)
        self._form = WHOLE
        self._digests: Digests | None = None  # of what OPA holds
        self._held: dict[ObjectKey, str] = {}
        self._sizes: Counter[str] = Counter()  # objects that OPA holds, by namespace
        self._pending: dict[ObjectKey, Change] = {}
        self._first: FirstLoad | None = None  # until OPA holds it
        self._begun = asyncio.Event()
        self._awaited = set(scopes)  # not listed yet
        self._together = len(self._awaited) > 1
        self._missing: set[str] = set()  # where the last LIST did not find the kind
        self._loaded = False
        # The uid of each object that cannot be read, and why: what OPA holds of it is of the past.
        self.unreadable: dict[ObjectKey, tuple[str, str]] = {}
        self._turned: set[ObjectKey] = set()  # those that became so, or are no more
        self._seen: dict[str, set[ObjectKey]] = {}  # by the LIST of a scope that is under way
        # Counted when somebody reads it: it costs an event nothing. Weakly, since the metric
        # outlives the epoch.
        mine = weakref.ref(self)
        metrics.pending_changes.labels(name).set_function(lambda: _pending_in(mine()))
        metrics.pending_seconds.labels(name).set_function(lambda: _age_in(mine()))

    def narrow(self, form: Form) -> None:
        """Keep only this of each object; to be said before any is taken in."""
        self._form = form
        self._project = narrowing(form.paths, values=self._values)
        self._versioned = keeps_version(self._project)
        self._digests = None if self._versioned else {}
        if self._first is not None:  # of a kind that the API server lacks
            self._first.digests = self._digests
        self.shaped.set()

    @property
    def lacks_nothing(self) -> bool:
        """Whether it counts as empty, since it is an optional kind that the API server lacks."""
        return self._optional and bool(self._missing)

    # As a Store

    async def page(self, items: Sequence[Item], *, scope: str = EVERYWHERE) -> None:
        """Take a part of a LIST; of the first one as fast as OPA takes it."""
        if self._awaits(scope):
            self._put_off(await self._begin().add(self._read(items)))
            return
        self._seen.setdefault(scope, set()).update(item.key for item in items)
        for item in items:
            self._upsert(item)

    def finish(self, *, known: bool, scope: str = EVERYWHERE) -> None:
        """Hold exactly the objects of the LIST in `scope`; what did not change stays unwritten.

        The first document is whole when every scope was listed.
        """
        first, seen = self._awaits(scope), self._seen.pop(scope, set())
        self._note(scope, known=known)
        if not first:
            self._remove_all_but(seen, scope)
        elif not self._awaited:
            self._begin().finish()
        self._news()

    def rescope(self, scopes: Iterable[str]) -> None:
        """Hold nothing until all `scopes` were listed: the kind came back as another one."""
        if self._awaited:
            self.abandon()
            self._awaited = set(scopes)
        else:
            self._remove_all_but(set(), EVERYWHERE)
            self._missing = set(scopes)
            self._note_known()
        self._together = len(set(scopes)) > 1
        self._seen.clear()
        self._news()

    def abandon(self, *, scope: str = EVERYWHERE) -> None:
        """Forget the pages of a LIST that broke off."""
        self._seen.pop(scope, None)
        if self._first is not None and self._awaits(scope) and not self.gathers(scope):
            self._first.abandon()
            self._first = None
            self._begun.clear()
            self._pending.clear()
            self._readable(list(self.unreadable))

    def gathers(self, scope: str) -> bool:
        """Whether the first LIST of `scope` is wanted whole, since others share its document."""
        return self._together and scope in self._awaited

    def gather(self, items: Iterable[Item]) -> None:
        """Take a whole first LIST of one of several scopes; nothing is sent before all are in."""
        self._put_off(self._document().put(self._read(items)))

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        if event.type == "DELETED":
            key = event.item.key
            self._readable([key])
            self._pending[key] = Change(event.version, None, self._since(key, event.arrived))
        else:
            self._upsert(event.item, event.arrived)
        self._news()

    # As what decisions are about

    def classify(self, classify: Classify | None) -> None:
        """Tell objects apart by this; what is held is unknown until it changes or is learnt."""
        if self.members.classify(classify):
            self.learning = False

    @property
    def unknown(self) -> int:
        """How many objects that OPA holds have no class, though classes are wanted."""
        return len(self._held) - self.members.known if self.members.wanted else 0

    def learn(self, items: Iterable[Item]) -> None:
        """Take a part of a LIST for the classes of what OPA holds of it, and for nothing else."""
        for item in items:
            if self._as_held(item) and self.members.of(item.key) is None:
                for found in self._read([item]):
                    self.members.note(item.key, self.members.read(found.body, item.uid))

    def turned(self) -> set[ObjectKey]:
        """Return which objects became readable or unreadable since this was asked last."""
        found, self._turned = self._turned, set()
        return found

    def moves(self, key: ObjectKey) -> bool:
        """Whether another state of an object may be in OPA already, or soon."""
        return key in self._pending

    # As the Writer's source

    async def first_load(self) -> tuple[DataPath, FirstLoad]:
        """Wait for the first LIST to begin; return where its objects go, and its document."""
        await self._begun.wait()
        return self._path, self._begin()

    @property
    def loaded(self) -> bool:
        """Whether OPA holds the collection."""
        return self._loaded

    @property
    def pending(self) -> int:
        """How many keys OPA does not hold as they are."""
        return len(self._pending)

    @property
    def pending_seconds(self) -> float:
        """For how long the oldest change that a watch told waits, 0 where there is none."""
        arrived = [change.arrived for change in self._pending.values() if change.arrived]
        return self._clock() - min(arrived) if arrived else 0.0

    @property
    def held(self) -> int:
        """How many objects OPA holds."""
        return len(self._held)

    def keys(self) -> Iterator[ObjectKey]:
        """Every object that OPA holds."""
        return iter(self._held)

    def holds(self, key: ObjectKey) -> str | None:
        """Return the resourceVersion that OPA has of an object, "" where it is projected away.

        None where OPA does not hold the object.
        """
        version = self._held.get(key)
        return version if version is None or self._versioned or not self._fits(key) else ""

    def batch(self, limit: int | None = None) -> Batch:
        """Return up to `limit` keys whose wanted state OPA does not hold, oldest first."""
        return dict(itertools.islice(self._pending.items(), limit))

    def operations(self, batch: Batch) -> list[bytes]:
        """Return the PATCH operations that turn what OPA holds into `batch`."""
        operations: list[bytes] = []
        sizes = self._sizes.copy()
        for key, change in batch.items():
            held, parent = key in self._held, (*self._path, key.namespace)
            if change.body is not None:
                if key.namespace and not sizes[key.namespace]:
                    operations.append(_add(parent, b"{}"))
                sizes[key.namespace] += not held
                operations.append(_add(self._at(key), change.body))
            elif held:
                sizes[key.namespace] -= 1
                operations.append(_remove(self._at(key)))
                if key.namespace and not sizes[key.namespace]:
                    operations.append(_remove(parent))
        return operations

    def first_written(self, first: FirstLoad) -> None:
        """Note that OPA holds the document of the first LIST, and nothing else."""
        self._loaded, self._first = True, None
        self._held = first.versions
        self._digests = first.digests
        self._bytes.inc(first.bytes)
        self._sizes = Counter(key.namespace for key in self._held)

    def written(self, batch: Batch) -> None:
        """Note that OPA holds `batch` now; a key that changed meanwhile stays pending."""
        now, written = self._clock(), 0
        for key, change in batch.items():
            if change.arrived:
                self._lag.observe(now - change.arrived)
            # The same object, not an equal one: a newer change may say the same and still be due.
            if self._pending.get(key) is change:
                del self._pending[key]
            if change.body is not None:
                written += len(change.body)
                if key not in self._held:
                    self._sizes[key.namespace] += 1
                self._held[key] = change.version
                if self._digests is not None:
                    self._digests[key] = digest(change.body)
            elif self._held.pop(key, None) is not None:
                self._sizes[key.namespace] -= 1
                if self._digests is not None:
                    del self._digests[key]
            self.members.note(key, None if key in self.unreadable else change.member)
        self._bytes.inc(written)

    def _remove_all_but(self, seen: set[ObjectKey], scope: str) -> None:
        sent = self._first.versions if self._first else ()
        gone = {
            key
            for key in {*self._held, *self._pending, *sent} - seen
            if scope in (EVERYWHERE, key.namespace)
        }
        # Removals first: a kind that came back with the other scope may have a namespace now where
        # an object of that name was, or an object where a namespace was.
        self._readable(
            [k for k in self.unreadable.keys() - seen if scope in (EVERYWHERE, k.namespace)]
        )
        changed = {key: change for key, change in self._pending.items() if key not in gone}
        self._pending = dict.fromkeys(gone, Change("", None)) | changed

    def _note(self, scope: str, *, known: bool) -> None:
        if scope == EVERYWHERE:
            self._awaited.clear()
            self._missing.clear()
        self._awaited.discard(scope)
        self._missing.discard(scope)
        if not known:
            self._missing.add(scope)
        self._note_known()

    def _note_known(self) -> None:
        # Only when it was found everywhere: with some namespaces missing the kind looks smaller
        # than it is.
        self.known = self._optional or not self._missing
        metrics.resource_known.labels(self.name).set(not self._missing)

    def _awaits(self, scope: str) -> bool:
        return bool(self._awaited) if scope == EVERYWHERE else scope in self._awaited

    def _put_off(self, late: Iterable[Loaded]) -> None:
        self._pending.update({found.key: Change(found.version, found.body) for found in late})

    def _since(self, key: ObjectKey, arrived: float) -> float:
        waiting = self._pending.get(key)
        return arrived if waiting is None else waiting.arrived or arrived

    def _upsert(self, item: Item, arrived: float = 0.0) -> None:
        if self._as_held(item):
            return
        for found in self._read([item]):
            if self._says_the_same(found):
                self._held[item.key] = item.version
                self.members.note(item.key, self.members.read(found.body, item.uid))
                self._unchanged.inc()
                continue
            since = self._since(item.key, arrived)
            member = self.members.read(found.body, item.uid)
            self._pending[item.key] = Change(item.version, found.body, since, member)

    def _as_held(self, item: Item) -> bool:
        return self._held.get(item.key) == item.version and item.key not in self._pending

    def _says_the_same(self, found: Loaded) -> bool:
        """Tell whether OPA holds this body, and nothing else is on its way."""
        if self._digests is None or found.key in self._pending:
            return False
        return self._digests.get(found.key) == digest(found.body)

    def _fits(self, key: ObjectKey) -> bool:
        """Tell whether an object lies where it has to for what is kept to be enough."""
        return self._form.namespaced in (None, bool(key.namespace))

    def _read(self, items: Iterable[Item]) -> Iterator[Loaded]:
        for item in items:
            if not item.whole:
                self._unread(item, TOO_DEEP)
                continue
            try:
                project_ = self._project if self._fits(item.key) else project
                found = Loaded(item.key, item.version, project_(self._proven(item)))
            except (*NO_JSON, KeyError) as error:
                # One object that cannot be read must not delay the others.
                log.warning(
                    "object_not_replicated", resource=self.name, key=str(item.key), error=str(error)
                )
                self._unread(item, f"it cannot be read: {error}")
            else:
                self._readable([item.key])
                yield found

    def _unread(self, item: Item, why: str) -> None:
        self.unreadable[item.key] = item.uid, why
        self._turned.add(item.key)
        self.members.note(item.key, None)  # it shares a decision with nobody

    def _readable(self, keys: Iterable[ObjectKey]) -> None:
        for key in keys:
            if self.unreadable.pop(key, None) is not None:
                self._turned.add(key)

    def _begin(self) -> FirstLoad:
        self._begun.set()
        return self._document()

    def _document(self) -> FirstLoad:
        if self._first is None:
            self._first = FirstLoad(None if self._digests is None else {})
        return self._first

    def _at(self, key: ObjectKey) -> DataPath:
        inside = (key.namespace, key.name) if key.namespace else (key.name,)
        return (*self._path, *inside)


_CHECKS = (metrics.audit_differences, metrics.selfcheck_decisions, metrics.selfcheck_differences)


def _pending_in(mirror: Mirror | None) -> int:
    return 0 if mirror is None else mirror.pending


def _age_in(mirror: Mirror | None) -> float:
    return 0.0 if mirror is None else mirror.pending_seconds


def _add(path: DataPath, body: bytes) -> bytes:
    where = msgspec.json.encode(paths.pointer(path))
    return b'{"op":"add","path":' + where + b',"value":' + body + b"}"


def _remove(path: DataPath) -> bytes:
    return b'{"op":"remove","path":' + msgspec.json.encode(paths.pointer(path)) + b"}"
