"""One replicated collection: what OPA holds of it, and which changes are pending.

Invariant: for each key the newest body wins; a change that is undone before it was written costs
nothing; a removal is sent only for what OPA holds (removing a missing path fails a whole PATCH).
OPA keeps the last readable state of an object that becomes unreadable, since removing it would
change what policies count. The object is `unreadable` until it can be read again or is gone, and
must not be decided by that past state. Memory: a body for each pending key; a resourceVersion for
each key in OPA, with a digest if only some fields are kept, so that an event that changes none of
them is not written; for targets of decisions a class and a uid. Until all of several namespaces are
listed, their document too. It makes no requests.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, KeysView, Sequence
from dataclasses import dataclass

from kube_sync.decisions.classes import Classified, Classify, Members
from kube_sync.kube.collection import Event, Item
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics, tracing
from kube_sync.opa.paths import DataPath, add_operation, remove_operation
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.bulk_load import EVERYWHERE, FirstLoad, Known, Loaded, Scopes
from kube_sync.replicator.held import Held
from kube_sync.replicator.projector import Projector


@dataclass(frozen=True, slots=True)
class Change:
    """The wanted state of one key: a projected body, or None if the object is gone."""

    version: str
    body: bytes | None
    arrived: float = 0.0  # the first event OPA lacks, on the monotonic clock; 0 of a LIST
    member: Classified | None = None  # its class, if known


Batch = dict[ObjectKey, Change]


class Mirror:
    """The Store of one Reflector, or of one for each namespace; the Writer reads it.

    Not a `kube.cache.Cache`: it keeps JSON of changes, not objects, and is the hot path.
    """

    def __init__(
        self,
        name: str,
        root: DataPath,
        on_change: Callable[[], None],
        *,
        gvr: GroupVersionResource | None = None,
        scopes: Iterable[str] = (EVERYWHERE,),
        projector: Projector | None = None,
        optional: bool = False,
        known: Known = lambda key, uid: (key, uid),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `on_change` whenever there is something to write.

        `gvr` is the resource, None if it is not from the API server. `scopes` are the namespaces
        that are listed separately. An `optional` kind that the API server lacks counts as empty.
        `known` returns the equal key and uid of an object that are kept elsewhere, to be shared.
        """
        self.name = name
        self.gvr = gvr
        self._optional, self._known_keys = optional, known
        self.known = True  # False while the API server lacks the kind
        self.members = Members()
        self.learning = False  # a LIST for missing classes is due or running
        self._path = (*root, name)
        self._on_change = on_change
        self._clock = clock
        self._projector = projector = projector or Projector(name)
        self.shaped, self.unreadable = projector.shaped, projector.unreadable
        self._digested = False  # whether OPA's objects have no resourceVersion to compare
        self._held = Held()
        self._sizes: Counter[str] = Counter()  # number of objects in OPA, by namespace
        self._pending: dict[ObjectKey, Change] = {}
        self._first: FirstLoad | None = None  # until OPA holds it
        self._begun = asyncio.Event()
        self._scopes = Scopes(scopes)
        self._loaded = False
        self._seen: dict[str, set[ObjectKey]] = {}  # keys in the running LIST of a scope
        self._measure()

    def _measure(self) -> None:
        name = self.name
        self._lag = metrics.replication_lag_seconds.labels(name)
        self._bytes = metrics.replicated_bytes.labels(name)
        self._unchanged = metrics.unchanged_events.labels(name)
        for checks in _CHECKS:
            checks.labels(name)  # export 0: a first failure is an increase
        _count_pending(self)

    def narrow(self, form: Form) -> None:
        """Keep only these fields of each object; call it before the first object."""
        self._projector.narrow(form)
        self._digested = not self._projector.versioned
        self._held = self._nothing()
        if self._first is not None:  # for a kind that the API server lacks
            self._first.held = self._nothing()

    @property
    def lacks_nothing(self) -> bool:
        """Whether it counts as empty: an optional kind that the API server lacks."""
        return self._optional and self._scopes.missing

    # The Store interface

    async def page(self, items: Sequence[Item], *, scope: str = EVERYWHERE) -> None:
        """Add one page of a LIST; during the first LIST as fast as OPA accepts it."""
        if self._scopes.awaits(scope):
            self._put_off(await self._begin().add(self._read(items)))
            return
        self._seen.setdefault(scope, set()).update(item.key for item in items)
        for item in items:
            self._upsert(item)

    def finish(self, *, known: bool, scope: str = EVERYWHERE) -> None:
        """Replace the objects of `scope` by those of the LIST; unchanged ones are not written."""
        first, seen = self._scopes.awaits(scope), self._seen.pop(scope, set())
        self._scopes.listed(scope, known=known)
        self._note_known()
        if not first:
            self._remove_all_but(seen, scope)
        elif not self._scopes.awaited:
            self._begin().finish()
        self._on_change()

    def rescope(self, scopes: Iterable[str]) -> None:
        """Hold nothing until all `scopes` are listed: the kind was replaced by another one."""
        if self._scopes.awaited:
            self.abandon()
            self._scopes.await_instead(scopes)
        else:
            self._remove_all_but(set(), EVERYWHERE)
            self._scopes.lose(scopes)
            self._note_known()
        self._seen.clear()
        self._on_change()

    def abandon(self, *, scope: str = EVERYWHERE) -> None:
        """Discard the pages of a LIST that broke off."""
        self._seen.pop(scope, None)
        if self._first is not None and self._scopes.abandons(scope):
            self._first.abandon()
            self._first = None
            self._begun.clear()
            self._pending.clear()
            self._projector.readable(list(self.unreadable))

    def gathers(self, scope: str) -> bool:
        """Return whether the first LIST of `scope` must be buffered: others share its document."""
        return self._scopes.gathers(scope)

    def gather(self, items: Iterable[Item]) -> None:
        """Add the whole first LIST of one of several scopes; it is sent when all are complete."""
        self._put_off(self._document().put(self._read(items)))

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        if event.item is None:
            return
        if event.type == "DELETED":
            key = event.item.key
            self._projector.readable([key])
            self._pending[key] = Change(event.version, None, self._since(key, event.arrived))
        else:
            self._upsert(event.item, event.arrived)
        self._on_change()

    # Classes, for targets of decisions

    def classify(self, classify: Classify | None) -> None:
        """Classify objects by this; those in OPA have no class until they change or are listed."""
        if self.members.classify(classify):
            self.learning = False

    @property
    def unknown(self) -> int:
        """The number of objects in OPA without a class, though classes are wanted."""
        return len(self._held) - self.members.known if self.members.is_classifying else 0

    def read_classes(self, items: Iterable[Item]) -> None:
        """Take the classes of objects that OPA holds from a page of a LIST, and nothing else."""
        unknown = (i for i in items if self._is_current(i) and self.members.of(i.key) is None)
        for item in unknown:
            if (found := self._projector.read(item)) is not None:
                self.members.note(item.key, self.members.read(found.body, item.uid))

    def take_readability_changes(self) -> set[ObjectKey]:
        """Return the objects that became readable or unreadable since the last call."""
        return self._projector.take_readability_changes()

    def is_pending(self, key: ObjectKey) -> bool:
        """Return whether OPA may have another state of an object already, or soon."""
        return key in self._pending

    # The Writer's interface

    async def first_load(self) -> tuple[DataPath, FirstLoad]:
        """Wait for the first LIST to begin; return the path of its objects, and its document."""
        await self._begun.wait()
        return self._path, self._begin()

    @property
    def loaded(self) -> bool:
        """Whether OPA holds the collection."""
        return self._loaded

    @property
    def pending(self) -> int:
        """The number of keys whose current state OPA does not hold."""
        return len(self._pending)

    @property
    def pending_seconds(self) -> float:
        """Age of the oldest pending watch event in seconds, 0 if there is none."""
        arrived = [change.arrived for change in self._pending.values() if change.arrived]
        return self._clock() - min(arrived) if arrived else 0.0

    @property
    def object_count(self) -> int:
        """The number of objects in OPA."""
        return len(self._held)

    def keys(self) -> KeysView[ObjectKey]:
        """Return a view of the keys of all objects in OPA."""
        return self._held.keys()

    def holds(self, key: ObjectKey) -> str | None:
        """Return the resourceVersion of an object in OPA, "" if it is projected away.

        None if OPA does not hold the object.
        """
        version = self._held.version(key)
        return version if version is None or self._projector.states_version(key) else ""

    def batch(self, limit: int | None = None) -> Batch:
        """Return up to `limit` pending keys with their wanted state, oldest first."""
        return dict(itertools.islice(self._pending.items(), limit))

    def operations(self, batch: Batch) -> list[bytes]:
        """Return the PATCH operations that apply `batch` to OPA's state."""
        return _operations(batch, self._path, self._held, self._sizes.copy())

    def first_written(self, first: FirstLoad) -> None:
        """Record that OPA holds the document of the first LIST, and nothing else."""
        self._loaded, self._first = True, None
        self._held = first.held
        self.members.adopt(first.members)
        self._bytes.inc(first.bytes)
        self._sizes = Counter(key.namespace for key in self._held)

    def written(self, batch: Batch) -> None:
        """Record that OPA holds `batch`; a key that changed meanwhile stays pending."""
        now, written, exemplar = self._clock(), 0, tracing.exemplar()
        for key, change in batch.items():
            if change.arrived:
                self._lag.observe(now - change.arrived, exemplar)
            # Compare by identity: a newer change may be equal and still pending.
            if self._pending.get(key) is change:
                del self._pending[key]
            if change.body is not None:
                written += len(change.body)
                if key not in self._held:
                    self._sizes[key.namespace] += 1
                self._held.put(key, change.version, change.body)
            elif self._held.remove(key):
                self._sizes[key.namespace] -= 1
            self.members.note(key, None if key in self.unreadable else change.member)
        self._bytes.inc(written)

    def _remove_all_but(self, seen: set[ObjectKey], scope: str) -> None:
        sent = self._first.held if self._first else ()
        gone = {
            key
            for key in {*self._held, *self._pending, *sent} - seen
            if scope in (EVERYWHERE, key.namespace)
        }
        # Removals first: a kind that came back with the other scope may have a namespace where an
        # object of that name was, or the reverse.
        self._projector.readable(
            [k for k in self.unreadable.keys() - seen if scope in (EVERYWHERE, k.namespace)]
        )
        changed = {key: change for key, change in self._pending.items() if key not in gone}
        self._pending = dict.fromkeys(gone, Change("", None)) | changed

    def _note_known(self) -> None:
        # Known only if found in all namespaces: otherwise the collection looks smaller than it is.
        self.known = self._optional or not self._scopes.missing
        metrics.resource_known.labels(self.name).set(not self._scopes.missing)

    def _put_off(self, late: Iterable[Loaded]) -> None:
        for found in late:
            member = self.members.read(found.body, found.uid)
            self._pending[found.key] = Change(found.version, found.body, member=member)

    def _since(self, key: ObjectKey, arrived: float) -> float:
        waiting = self._pending.get(key)
        return arrived if waiting is None else waiting.arrived or arrived

    def _upsert(self, item: Item, arrived: float = 0.0) -> None:
        if self._is_current(item):
            return
        if (found := self._projector.read(item)) is None:
            self.members.note(item.key, None)  # it shares a decision with no other object
        elif self._is_unchanged(found):
            self._held.renew(item.key, item.version)
            self.members.note(item.key, self.members.read(found.body, item.uid))
            self._unchanged.inc()
        else:
            since = self._since(item.key, arrived)
            member = self.members.read(found.body, item.uid)
            self._pending[item.key] = Change(item.version, found.body, since, member)

    def _is_current(self, item: Item) -> bool:
        return self._held.has_version(item.key, item.version) and item.key not in self._pending

    def _is_unchanged(self, found: Loaded) -> bool:
        """Return whether OPA holds this body, and no other change is pending."""
        return found.key not in self._pending and self._held.has_body(found.key, found.body)

    def _read(self, items: Iterable[Item]) -> Iterable[Loaded]:
        return filter(None, map(self._projector.read, items))

    def _begin(self) -> FirstLoad:
        self._begun.set()
        return self._document()

    def _document(self) -> FirstLoad:
        if self._first is None:
            self._first = FirstLoad(self._nothing(), self.members.fresh(), self._known_keys)
        return self._first

    def _nothing(self) -> Held:
        return Held(digested=self._digested)


_CHECKS = (metrics.audit_differences, metrics.selfcheck_decisions, metrics.selfcheck_differences)


def _count_pending(mirror: Mirror) -> None:
    """Compute the gauges of pending changes on scrape, so that they cost an event nothing."""
    # A weak reference, since the metric outlives the epoch.
    mine, name = weakref.ref(mirror), mirror.name

    def pending() -> int:
        return 0 if (found := mine()) is None else found.pending

    def seconds() -> float:
        return 0.0 if (found := mine()) is None else found.pending_seconds

    metrics.pending_changes.labels(name).set_function(pending)
    metrics.pending_seconds.labels(name).set_function(seconds)


def _operations(
    batch: Batch, path: DataPath, held: Collection[ObjectKey], sizes: Counter[str]
) -> list[bytes]:
    """Return the operations from `held` below a path, with `sizes` by namespace, to `batch`."""
    operations: list[bytes] = []
    for key, change in batch.items():
        existed, parent = key in held, (*path, key.namespace)
        at = (*parent, key.name) if key.namespace else (*path, key.name)
        if change.body is not None:
            if key.namespace and not sizes[key.namespace]:
                operations.append(add_operation(parent, b"{}"))
            sizes[key.namespace] += not existed
            operations.append(add_operation(at, change.body))
        elif existed:
            sizes[key.namespace] -= 1
            operations.append(remove_operation(at))
            if key.namespace and not sizes[key.namespace]:
                operations.append(remove_operation(parent))
    return operations
