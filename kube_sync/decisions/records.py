"""The records of the decision stream: newline-delimited JSON, each with its version `v: 1`.

A stream begins with one `decision` record for each resource that has one, then a `bookmark`; then
only changes follow. `seq` grows by one with each change of the replicator process named by
`instance`. A slow reader gets the latest state of each resource, not every step. docs/decisions.md
is the contract with readers.

Decisions depend on the data in OPA. While a collection cannot be listed or watched, or OPA accepts
no writes, they are made on the former state, and the stream goes on. So it reports at once every
stale source and for how long; readers decide how long is too long.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.freshness import Freshness, StaleSource

_NAMED = 100  # unreadable objects of a collection: many must not fill the stream
VERSION: Literal[1] = 1


class Target(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One resource that decisions are made for."""

    group: str
    version: str
    resource: str
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, gvr: GroupVersionResource, key: ObjectKey) -> Target:
        """Return the resource of a collection with this key."""
        return cls(gvr.group, gvr.version, gvr.resource, key.name, key.namespace)

    @property
    def gvr(self) -> GroupVersionResource:
        """Its collection."""
        return GroupVersionResource(self.group, self.version, self.resource)

    @property
    def key(self) -> ObjectKey:
        """Its key in the collection."""
        return ObjectKey(self.namespace, self.name)


class Source(msgspec.Struct, frozen=True):
    """The first of `count` changes that caused an evaluation; `collection` is its name in OPA."""

    collection: str
    object: str  # namespace/name, or the bare name of a cluster-scoped object
    count: int = 1


class DecisionRecord(msgspec.Struct, frozen=True, tag="decision", tag_field="type"):
    """The current decision on one resource; `decision` is null if there is none (any more).

    `failure` says why there is no usable decision now; with `last_good`, `decision` is the last
    good one, which stays in effect. `cause` is why the replicator evaluated it: `load`, `object`,
    `data` or `policy`, and `source` the changed object of another collection or target, if known.
    It was decided by the policies with the digest `policy`, over OPA's data after `data` writes of
    this replicator, or later. `trace` is the context in which it was made, if its trace is sampled.
    """

    object: Target
    uid: str
    decision: Decision | None
    seq: int
    cause: str
    policy: str
    old: Decision | None = None
    failure: str | None = None
    data: int = 0
    source: Source | None = None
    last_good: bool = False
    trace: str | msgspec.UnsetType = msgspec.UNSET
    v: Literal[1] = VERSION


GroupMember = tuple[str, str, str, int]  # namespace, name, uid and seq of an object
GROUP = "decisions"  # the type of a GroupRecord


class GroupRecord(msgspec.Struct, frozen=True, tag=GROUP, tag_field="type"):
    """The DecisionRecords of several objects of a collection that differ in nothing else.

    Sent only to readers that ask for it; the fields are those of a DecisionRecord.
    """

    collection: GroupVersionResource
    objects: tuple[GroupMember, ...]
    decision: Decision | None
    cause: str
    policy: str
    old: Decision | None = None
    failure: str | None = None
    data: int = 0
    source: Source | None = None
    last_good: bool = False
    trace: str | msgspec.UnsetType = msgspec.UNSET
    v: Literal[1] = VERSION

    def records(self) -> Iterator[DecisionRecord]:
        """Yield the record of each object."""
        gvr = self.collection
        for namespace, name, uid, seq in self.objects:
            yield DecisionRecord(
                Target(gvr.group, gvr.version, gvr.resource, name, namespace),
                uid,
                self.decision,
                seq,
                self.cause,
                self.policy,
                self.old,
                self.failure,
                self.data,
                self.source,
                self.last_good,
                self.trace,
            )


class DeletedRecord(msgspec.Struct, frozen=True, tag="deleted", tag_field="type"):
    """The resource was deleted."""

    object: Target
    seq: int
    v: Literal[1] = VERSION


class Unreadable(msgspec.Struct, frozen=True):
    """An unreadable object that is no target, but that decisions may depend on, and why."""

    object: Target
    uid: str
    reason: str


class Stale(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stale source of decisions, and for how many seconds when this was sent."""

    source: str  # a collection by its name in OPA, or another source
    seconds: float
    reason: str
    unreadable: tuple[Unreadable, ...] = ()  # the objects concerned; of many the first


class Budget(msgspec.Struct, frozen=True):
    """The limits of policies on moves: the document `data.kube_sync_budget`.

    `failure` says why its present value is unusable; with `last_good`, `document` is the value in
    effect meanwhile (null: no limits); without it that is unknown, and a reader keeps its last
    value.
    """

    document: Any = None
    failure: str | None = None
    last_good: bool = False


class StatusRecord(msgspec.Struct, frozen=True, tag="status", tag_field="type"):
    """Why the decisions may not be acted on now; an empty list: they may.

    `notes` are warnings that do not invalidate decisions. `stale` are the stale sources; a reader
    decides how long to act on them. `budget` are the limits on moves, None if no policy sets any;
    while `held` has reasons it may be out of date.
    """

    held: tuple[str, ...]
    instance: str
    notes: tuple[str, ...] = ()
    stale: tuple[Stale, ...] = ()
    budget: Budget | None = None
    v: Literal[1] = VERSION


class BookmarkRecord(msgspec.Struct, frozen=True, tag="bookmark", tag_field="type"):
    """Everything up to `seq` has been sent; also a keep-alive, and where to resume."""

    seq: int
    instance: str
    v: Literal[1] = VERSION


Record = DecisionRecord | DeletedRecord | StatusRecord | BookmarkRecord

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_grouped: msgspec.json.Decoder[Record | GroupRecord] = msgspec.json.Decoder(Record | GroupRecord)


def encode(record: Record) -> bytes:
    """Return the record as one line."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes) -> Record:
    """Decode one line. Raises msgspec.DecodeError, also for an unknown version."""
    return _decoder.decode(line)


def decode_grouped(line: bytes) -> Iterable[Record]:
    """Decode one line, which may be of several objects. Raises as `decode` does."""
    record = _grouped.decode(line)
    return record.records() if isinstance(record, GroupRecord) else (record,)


DecisionFreshness: TypeAlias = Freshness[Unreadable]
StaleSources: TypeAlias = tuple[StaleSource[Unreadable], ...]


def report_unreadable(
    freshness: DecisionFreshness,
    name: str,
    gvr: GroupVersionResource | None,
    found: Mapping[ObjectKey, tuple[str, str]],
) -> None:
    """Report the unreadable objects of a collection, given uid and reason of each."""
    source, keys = f"{name} that cannot be read", heapq.nsmallest(_NAMED, found)
    if not keys:
        freshness.report(source, None)
        return
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    named = () if gvr is None else tuple(Unreadable(Target.of(gvr, k), *found[k]) for k in keys)
    freshness.report(source, f"{keys[0]}: {found[keys[0]][1]}{more}", named)


def stale_records(freshness: DecisionFreshness, sources: StaleSources) -> tuple[Stale, ...]:
    """Return the stale sources as records of the stream."""
    return tuple(Stale(one.source, freshness.age(one), one.reason, one.details) for one in sources)
