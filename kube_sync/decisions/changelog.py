"""The latest change of every object, in the order of their numbers.

Keeps true: for each object there is at most one entry, its latest, so memory is bounded by the
number of objects and of those that ended lately. A reader is nothing but the number that it has
read up to: whoever is slow finds only the latest of each object, and costs nobody else anything.
What ended is kept for a while, for readers that knew it; a reader that has not heard of one that is
forgotten can only start afresh.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter

from kube_sync.decisions.entries import Entry, Told
from kube_sync.decisions.records import Target

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

    def add(self, target: Target, uid: str, told: Told | None) -> Entry:
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
