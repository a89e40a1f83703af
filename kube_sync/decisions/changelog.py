"""The log of the latest decision of each object, in order of sequence numbers, as stream lines.

Invariant: each object has at most one entry, its latest, so memory is bounded by the number of
objects and of those that ended lately. A reader's only state is the number up to which it has read:
a slow reader gets only the latest entry of each object, and costs no other anything. Entries of
ended objects are kept for a while, for readers that know the object; a reader that has not read an
entry that is dropped has to start over.

A line has two parts, each encoded once for all readers, when the first one needs it. Objects with
equal decisions change alike: they share one Verdict, and its part of the line; the other part names
the object.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    VERSION,
    DecisionRecord,
    DeletedRecord,
    Source,
    Target,
    encode,
)

_encoder = msgspec.json.Encoder()


class _Head(msgspec.Struct, frozen=True, tag="decision", tag_field="type"):
    object: Target
    uid: str
    seq: int
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


class EncodedVerdict:
    """A Verdict, and its encoded part of the line."""

    __slots__ = ("_tail", "verdict")

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self._tail: bytes | None = None

    @property
    def is_undefined(self) -> bool:
        """Whether there is no decision (any more)."""
        return self.verdict.decision is None and self.verdict.failure is None

    def tail(self) -> bytes:
        """Return the end of the line."""
        if self._tail is None:
            self._tail = b"," + _encoder.encode(self.verdict)[1:] + b"\n"
        return self._tail


class Entry:
    """The latest entry of one object; `encoded` is None if the object was deleted."""

    __slots__ = ("_head", "encoded", "is_ended", "seq", "superseded", "target", "uid")

    def __init__(self, target: Target, uid: str, seq: int, encoded: EncodedVerdict | None) -> None:
        self.target = target
        self.uid = uid
        self.seq = seq
        self.encoded = encoded
        self.is_ended = encoded is None or encoded.is_undefined  # only this entry is kept of it
        self.superseded = False
        self._head: bytes | None = None

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
        )

    def supersede(self) -> None:
        """Mark that the object has a newer entry, or that this one is dropped."""
        self.superseded = True
        self._head = None  # encoded again for a reader that holds it

    def parts(self) -> tuple[bytes, bytes]:
        """Return the line, in its two encoded parts."""
        if self._head is None:
            if self.encoded is None:
                self._head = encode(DeletedRecord(self.target, self.seq))
            else:
                self._head = _encoder.encode(_Head(self.target, self.uid, self.seq))[:-1]
        return self._head, b"" if self.encoded is None else self.encoded.tail()


ENDED = 10_000  # deletions and decisions that became undefined, kept for slow readers

# Superseded entries that are not worth removing: so many, plus a share of the others.
_SLACK, _SHARE = 1_000, 4
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
        self.current: dict[Target, Entry] = {}
        self.forgotten = 0  # the highest number that was dropped
        self._limit = ended
        self._ended: dict[Target, Entry] = {}  # oldest first
        self._entries: list[Entry] = []

    def find_ended(self, target: Target) -> Entry | None:
        """Return the entry of an object without a decision, if it is still kept."""
        return self._ended.get(target)

    def add(self, target: Target, uid: str, encoded: EncodedVerdict | None) -> Entry:
        """Add a verdict on an object, None: it was deleted; return the entry."""
        self.seq += 1
        entry = Entry(target, uid, self.seq, encoded)
        if (old := self.current.get(target)) is not None:
            old.supersede()
        elif self._ended and (gone := self._ended.pop(target, None)) is not None:
            gone.supersede()
        if entry.is_ended:
            self.current.pop(target, None)
            self._end(entry)
        else:
            self.current[target] = entry
        self._entries.append(entry)
        needed = len(self.current) + len(self._ended)
        if len(self._entries) > needed + needed // _SHARE + _SLACK:
            self._entries = [entry for entry in self._entries if not entry.superseded]
        return entry

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

    def _end(self, entry: Entry) -> None:
        self._ended[entry.target] = entry
        if len(self._ended) > self._limit:
            oldest = self._ended.pop(next(iter(self._ended)))
            oldest.supersede()
            self.forgotten = oldest.seq
