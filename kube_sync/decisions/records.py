"""The lines of the decision stream: newline-delimited JSON, each with its version `v: 1`.

A stream begins with one `decision` record for each resource that has one, then a `bookmark`;
after that come changes only. `seq` grows by one with each change of the replicator process named
by `instance`. A reader that is slow gets the latest state of each resource, not every step.
docs/decisions.md is the contract with readers.

Decisions stand on what OPA holds. While a collection cannot be watched or listed, or OPA takes
nothing, they are made on the state before, and the stream goes on. So it names every stale source
at once and for how long; how much of that is too much, readers decide.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.freshness import Freshness, StaleSource

_NAMED = 100  # objects of a collection that cannot be read: who makes many fills no stream
VERSION: Literal[1] = 1


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource that decisions are about."""

    group: str
    version: str
    resource: str
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, gvr: GroupVersionResource, key: ObjectKey) -> Target:
        """Return the one that lives at `key`."""
        return cls(gvr.group, gvr.version, gvr.resource, key.name, key.namespace)

    @property
    def gvr(self) -> GroupVersionResource:
        """The collection it is in."""
        return GroupVersionResource(self.group, self.version, self.resource)

    @property
    def key(self) -> ObjectKey:
        """Where it lives in its collection."""
        return ObjectKey(self.namespace, self.name)


class Source(msgspec.Struct, frozen=True):
    """The first of `count` changes that made OPA be asked; `collection` is its name in OPA."""

    collection: str
    object: str  # namespace/name, or the bare name of a cluster-scoped object
    count: int = 1


class DecisionRecord(msgspec.Struct, frozen=True, tag="decision", tag_field="type"):
    """What is decided of one resource now; `decision` is null where nothing is (any more).

    `failure` says why there is no usable decision now; with `last_good`, `decision` is the one
    that stands meanwhile. `cause` is what made the replicator ask: `load`, `object`, `data` or
    `policy`, and `source` which object of another collection or target it was, where that is known.
    It was decided by the policies with the digest `policy`, over the data as OPA held it after
    `data` writes of this replicator, or later.
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
    v: Literal[1] = VERSION


class DeletedRecord(msgspec.Struct, frozen=True, tag="deleted", tag_field="type"):
    """The resource is gone."""

    object: Target
    seq: int
    v: Literal[1] = VERSION


class Unreadable(msgspec.Struct, frozen=True):
    """An object that no decision is about, but may stand on, and why it cannot be read."""

    object: Target
    uid: str
    reason: str


class Stale(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that decisions stand on is not current; for so many seconds when this was sent."""

    source: str  # a collection by its name in OPA, or what else it is
    seconds: float
    reason: str
    unreadable: tuple[Unreadable, ...] = ()  # the objects that it is for; of many the first


class Budget(msgspec.Struct, frozen=True):
    """What policies say of how much may move: the document `data.kube_sync_budget`.

    `failure` says why what it is now cannot be used; with `last_good`, `document` is what stands
    meanwhile (null: nothing), without it nobody knows, and what a reader knew before stands.
    """

    document: Any = None
    failure: str | None = None
    last_good: bool = False


class StatusRecord(msgspec.Struct, frozen=True, tag="status", tag_field="type"):
    """Why the decisions may not be acted on now; an empty list: they may.

    `notes` are what is wrong beside that: the decisions that were told stand. `stale` is what they
    stand on and is not current: how long a reader acts on them all the same is for it to say.
    `budget` is how much may move, None where no policy says; while there are reasons in `held` it
    may be out of date.
    """

    held: tuple[str, ...]
    instance: str
    notes: tuple[str, ...] = ()
    stale: tuple[Stale, ...] = ()
    budget: Budget | None = None
    v: Literal[1] = VERSION


class BookmarkRecord(msgspec.Struct, frozen=True, tag="bookmark", tag_field="type"):
    """Everything up to `seq` has been sent; also a sign of life, and where to resume."""

    seq: int
    instance: str
    v: Literal[1] = VERSION


Record = DecisionRecord | DeletedRecord | StatusRecord | BookmarkRecord

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return the record as one line."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes) -> Record:
    """Read one line. Raises msgspec.DecodeError, also for a version that is not known."""
    return _decoder.decode(line)


DecisionFreshness: TypeAlias = Freshness[Unreadable]
StaleSources: TypeAlias = tuple[StaleSource[Unreadable], ...]


def report_unreadable(
    freshness: DecisionFreshness,
    name: str,
    gvr: GroupVersionResource | None,
    found: Mapping[ObjectKey, tuple[str, str]],
) -> None:
    """Report what cannot be read of a collection: the uid of each object, and why."""
    source, keys = f"{name} that cannot be read", heapq.nsmallest(_NAMED, found)
    if not keys:
        freshness.report(source, None)
        return
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    named = () if gvr is None else tuple(Unreadable(Target.of(gvr, k), *found[k]) for k in keys)
    freshness.report(source, f"{keys[0]}: {found[keys[0]][1]}{more}", named)


def stale_records(freshness: DecisionFreshness, sources: StaleSources) -> tuple[Stale, ...]:
    """Return stale sources as the stream sends them now."""
    return tuple(Stale(one.source, freshness.age(one), one.reason, one.details) for one in sources)
