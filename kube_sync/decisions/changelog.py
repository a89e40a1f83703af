"""The latest change of every object, in the order of their numbers, and its line of the stream.

Keeps true: for each object there is at most one entry, its latest, so memory is bounded by the
number of objects and of those that ended lately. A reader is nothing but the number that it has
read up to: whoever is slow finds only the latest of each object, and costs nobody else anything.
What ended is kept for a while, for readers that knew it; a reader that has not heard of one that is
forgotten can only start afresh.

A line is in two parts that are each encoded once, whoever reads it, when the first reader wants
them. Objects that are decided alike change alike: what is said of them is one Verdict, and its part
of the line is shared by all of them; the other part names the object.
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
    """What a DecisionRecord says beside the name of its object; the fields are the record's."""

    decision: Decision | None
    old: Decision | None
    failure: str | None
    cause: str
    policy: str
    data: int
    source: Source | None
    last_good: bool


class EncodedVerdict:
    """A Verdict, and its part of the line."""

    __slots__ = ("_tail", "verdict")

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self._tail: bytes | None = None

    @property
    def undefined(self) -> bool:
        """Whether nothing is decided (any more)."""
        return self.verdict.decision is None and self.verdict.failure is None

    def tail(self) -> bytes:
        """Return the end of the line."""
        if self._tail is None:
            self._tail = b"," + _encoder.encode(self.verdict)[1:] + b"\n"
        return self._tail


class Entry:
    """What was last said of one object; `told` is None of one that is gone."""

    __slots__ = ("_head", "ended", "seq", "superseded", "target", "told", "uid")

    def __init__(self, target: Target, uid: str, seq: int, told: EncodedVerdict | None) -> None:
        self.target = target
        self.uid = uid
        self.seq = seq
        self.told = told
        self.ended = told is None or told.undefined  # nothing is kept of it but this
        self.superseded = False
        self._head: bytes | None = None

    @property
    def record(self) -> DecisionRecord | DeletedRecord:
        """The record that readers get."""
        if self.told is None:
            return DeletedRecord(self.target, self.seq)
        said = self.told.verdict
        return DecisionRecord(
            self.target,
            self.uid,
            said.decision,
            self.seq,
            said.cause,
            said.policy,
            said.old,
            said.failure,
            said.data,
            said.source,
            said.last_good,
        )

    def supersede(self) -> None:
        """Take note that something newer was said of the object, or that this is forgotten."""
        self.superseded = True
        self._head = None  # made anew for whoever took it before

    def parts(self) -> tuple[bytes, bytes]:
        """Return the line, in the two parts that are kept."""
        if self._head is None:
            if self.told is None:
                self._head = encode(DeletedRecord(self.target, self.seq))
            else:
                self._head = _encoder.encode(_Head(self.target, self.uid, self.seq))[:-1]
        return self._head, b"" if self.told is None else self.told.tail()


ENDED = 10_000  # deletions and decisions that became undefined, kept for readers that are behind

# Superseded entries that are not worth the time to sweep them out: so many, and a share of others.
_SLACK, _SHARE = 1_000, 4
_seq = attrgetter("seq")


@dataclass(frozen=True, slots=True)
class Page:
    """What comes next for a reader."""

    entries: list[Entry]
    upto: int  # all numbers up to this have been read then
    complete: bool  # there is nothing after it


class ChangeLog:
    """What was last said of every object."""

    def __init__(self, ended: int = ENDED) -> None:
        """Keep the last `ended` of the objects that nothing is decided of any more."""
        self.seq = 0
        self.current: dict[Target, Entry] = {}
        self.forgotten = 0  # the highest number that no reader can be told of any more
        self._limit = ended
        self._ended: dict[Target, Entry] = {}  # oldest first
        self._entries: list[Entry] = []

    def ended(self, target: Target) -> Entry | None:
        """Return how an object that nothing is decided of ended, if that is still known."""
        return self._ended.get(target)

    def add(self, target: Target, uid: str, told: EncodedVerdict | None) -> Entry:
        """Take in what is said of an object now, None: it is gone; return it as readers get it."""
        self.seq += 1
        entry = Entry(target, uid, self.seq, told)
        if (old := self.current.get(target)) is not None:
            old.supersede()
        elif self._ended and (gone := self._ended.pop(target, None)) is not None:
            gone.supersede()
        if entry.ended:
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
        """Return up to `limit` entries after `seq`, without what ended up to `known`."""
        found: list[Entry] = []
        entries = self._entries
        for index in range(bisect_right(entries, seq, key=_seq), len(entries)):
            entry = entries[index]
            if entry.superseded or (entry.ended and entry.seq <= known):
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
