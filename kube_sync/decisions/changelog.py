"""The log of the latest decision of each object, in order of sequence numbers, as stream lines.

Invariant: each object has at most one entry, its latest, so memory is bounded by the number of
objects and of those that ended lately. A reader's only state is the number up to which it has read:
a slow reader gets only the latest entry of each object, and costs no other anything. Entries of
ended objects are kept for a while, for readers that know the object; a reader that has not read an
entry that is dropped has to start over.

A line has two parts. Objects with equal decisions change alike: they share one Verdict, and its
part of the line, which is encoded once for all readers, when the first one needs it. The other part
names the object, and is encoded for each reader. Readers that want it so get one line for entries
in a row that share a verdict: its first part names all their objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    GROUP,
    VERSION,
    DecisionRecord,
    DeletedRecord,
    GroupMember,
    Source,
    Target,
    encode,
)
from kube_sync.objects import GroupVersionResource, ObjectKey

_encoder = msgspec.json.Encoder()


class _Head(msgspec.Struct, frozen=True, tag="decision", tag_field="type"):
    object: Target
    uid: str
    seq: int
    v: Literal[1] = VERSION


class _GroupHead(msgspec.Struct, frozen=True, tag=GROUP, tag_field="type"):
    collection: GroupVersionResource
    objects: list[GroupMember]
    v: Literal[1] = VERSION


class Verdict(msgspec.Struct, frozen=True, weakref=False):
    """The part of a DecisionRecord without the object; the fields are the record's."""

    decision: Decision | None
    old: Decision | None
    failure: str | None
    cause: str
    policy: str
    data: int
    source: Source | None
    last_good: bool
    trace: str | msgspec.UnsetType = msgspec.UNSET


class EncodedVerdict:
    """A Verdict, and its encoded part of the line."""

    __slots__ = ("_tail", "is_undefined", "verdict")

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.is_undefined = verdict.decision is None and verdict.failure is None
        self._tail: bytes | None = None

    def tail(self) -> bytes:
        """Return the end of the line."""
        if self._tail is None:
            self._tail = b"," + _encoder.encode(self.verdict)[1:] + b"\n"
        return self._tail


class Entry(msgspec.Struct, eq=False, gc=False):
    """The latest entry of one object; `encoded` is None if the object was deleted.

    There is one for each object, so it shares the key with whoever published it, and keeps no part
    of the line: to encode that for another reader takes a microsecond, to keep it took 200 bytes.
    """

    gvr: GroupVersionResource
    key: ObjectKey
    uid: str
    seq: int
    encoded: EncodedVerdict | None
    superseded: bool = False  # the object has a newer entry, or this one is dropped

    @property
    def is_ended(self) -> bool:
        """Whether only this entry is kept of the object: there is no decision on it."""
        return self.encoded is None or self.encoded.is_undefined

    @property
    def target(self) -> Target:
        """The object, as in records."""
        return Target.of(self.gvr, self.key)

    @property
    def record(self) -> DecisionRecord | DeletedRecord:
        """The record for readers."""
        if self.encoded is None:
            return DeletedRecord(self.target, self.seq)
        verdict = self.encoded.verdict
        return DecisionRecord(
            self.target,
            self.uid,
            verdict.decision,
            self.seq,
            verdict.cause,
            verdict.policy,
            verdict.old,
            verdict.failure,
            verdict.data,
            verdict.source,
            verdict.last_good,
            verdict.trace,
        )

    def agrees_with(self, other: Entry) -> bool:
        """Return whether the lines of both differ in the object alone."""
        return self.encoded is not None and self.encoded is other.encoded and self.gvr == other.gvr

    def parts(self) -> tuple[bytes, bytes]:
        """Return the line, in its two encoded parts."""
        if self.encoded is None:
            return encode(DeletedRecord(self.target, self.seq)), b""
        head = _encoder.encode(_Head(self.target, self.uid, self.seq))[:-1]
        return head, self.encoded.tail()


# An entry, and the verdict that it replaces; None: there was no decision, and no failure.
Replaced = tuple[Entry, EncodedVerdict | None]


def parts_of(entries: Sequence[Entry]) -> tuple[bytes, ...]:
    """Return one line for entries that agree, in its encoded parts."""
    if len(entries) > 1 and (encoded := entries[0].encoded) is not None:
        objects = [(e.key.namespace, e.key.name, e.uid, e.seq) for e in entries]
        return _encoder.encode(_GroupHead(entries[0].gvr, objects))[:-1], encoded.tail()
    return entries[0].parts() if entries else ()


ENDED = 10_000  # deletions and decisions that became undefined, kept for slow readers

# Superseded entries that are not worth removing: so many, plus a share of the others.
_SLACK, _SHARE = 1_000, 8
_seq = attrgetter("seq")


@dataclass(frozen=True, slots=True)
class Page:
    """The next entries for a reader."""

    entries: list[Entry]
    upto: int  # all numbers up to this are read then
    complete: bool  # no entries follow


class ChangeLog:
    """The latest entry of each object."""

    def __init__(self, ended: int = ENDED) -> None:
        """Keep the last `ended` entries of objects without a decision."""
        self.seq = 0
        self.forgotten = 0  # the highest number that was dropped
        self._limit = ended
        self._current: dict[GroupVersionResource, dict[ObjectKey, Entry]] = {}
        self._ended: dict[tuple[GroupVersionResource, ObjectKey], Entry] = {}  # oldest first
        self._entries: list[Entry] = []
        self._most = _SLACK  # entries, before superseded ones are removed

    def __len__(self) -> int:
        """Return the number of objects with a decision, or a failure."""
        return sum(map(len, self._current.values()))

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries of objects with a decision, or a failure."""
        for entries in self._current.values():
            yield from entries.values()

    def of(self, gvr: GroupVersionResource) -> Mapping[ObjectKey, Entry]:
        """Return the entries of a collection's objects with a decision, or a failure."""
        return self._current.get(gvr, {})

    def get(self, target: Target) -> Entry | None:
        """Return the entry of an object with a decision, or a failure."""
        return self.of(target.gvr).get(target.key)

    def find_ended(self, gvr: GroupVersionResource, key: ObjectKey) -> Entry | None:
        """Return the entry of an object without a decision, if it is still kept."""
        return self._ended.get((gvr, key))

    def add(
        self, gvr: GroupVersionResource, key: ObjectKey, uid: str, encoded: EncodedVerdict | None
    ) -> tuple[Entry, Entry | None]:
        """Add a verdict on an object, None: it was deleted.

        Returns the entry, and the one that it replaces if there was a decision, or a failure.
        """
        self.seq += 1
        if (current := self._current.get(gvr)) is None:
            current = self._current[gvr] = {}
        old = current.get(key)
        # Of two equal keys the one that is shared: the other is of one event.
        entry = Entry(gvr, key if old is None else old.key, uid, self.seq, encoded)
        if old is not None:
            old.superseded = True
        elif self._ended and (gone := self._ended.pop((gvr, key), None)) is not None:
            gone.superseded = True
        if encoded is None or encoded.is_undefined:
            current.pop(key, None)
            self._end(entry)
        else:
            current[key] = entry
        self._entries.append(entry)
        if len(self._entries) > self._most:
            self._compact()
        return entry, old

    def known(self, gvr: GroupVersionResource, key: ObjectKey, uid: str) -> tuple[ObjectKey, str]:
        """Return the equal key and uid that the current entry of an object has, or these.

        What is loaded anew keeps those: half a million others would be 100 MB more for a while,
        which Python hardly gives back.
        """
        if (entry := self.of(gvr).get(key)) is None:
            return key, uid
        return entry.key, entry.uid if entry.uid == uid else uid

    def after(self, seq: int, known: int, limit: int) -> Page:
        """Return up to `limit` entries after `seq`, without those that ended up to `known`."""
        found: list[Entry] = []
        entries = self._entries
        for index in range(bisect_right(entries, seq, key=_seq), len(entries)):
            entry = entries[index]
            if entry.superseded or (entry.is_ended and entry.seq <= known):
                continue
            if len(found) == limit:
                return Page(found, found[-1].seq, complete=False)
            found.append(entry)
        return Page(found, self.seq, complete=True)

    def _compact(self) -> None:
        """Remove superseded entries if they are many."""
        needed = len(self) + len(self._ended)
        self._most = needed + needed // _SHARE + _SLACK
        if len(self._entries) > self._most:
            self._entries = [entry for entry in self._entries if not entry.superseded]

    def _end(self, entry: Entry) -> None:
        self._ended[entry.gvr, entry.key] = entry
        if len(self._ended) > self._limit:
            oldest = self._ended.pop(next(iter(self._ended)))
            oldest.superseded = True
            self.forgotten = oldest.seq
