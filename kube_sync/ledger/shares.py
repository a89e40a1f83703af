"""Quotas of the ledger per namespace, and summaries of the changes over them.

Invariant: a user who can write in one namespace cannot push the history of others out of a
bounded ledger. The changes of a namespace over its share (the size divided by the number of
namespaces, at least a tenth) are summarised: every few minutes one row has their number by kind,
and further rows have the current states, as many as there is room for. Over twice its share its
writes are summarised too, in pairs (intent and outcome), and further rows have the last outcome of
each workload. Failures are recorded one by one up to three shares; approved writes, intents
without an outcome, policies, and objects without a namespace always are. It belongs to the
thread that writes.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import structlog

from kube_sync.ledger.entries import Entry, GapNote, Text
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EVERY_SECONDS: Final = 300.0

_LEAST = 0.1  # of the size, for each namespace
_ROOM = 0.5  # of the size left free by others, for namespaces over their share
_FLOOR = 0.25  # of a share, for these if others leave nothing
_PENDING = 20_000  # objects whose state is still to be written; writes without an outcome
_ROW = 600  # bytes, with its part of the indexes
_CHANGES, _WRITES, _FAILURES = 1, 2, 3  # shares of a namespace above which these are summarised
_SUMMARISED = frozenset({"decision", "gone", "held"})
_DONE = frozenset({"applied", "gone"})  # outcomes of a successful write
_TEXTS = "FROM texts WHERE digest IN (input, CASE kind WHEN 'intent' THEN new END)"
_SIZE = f"{_ROW} + length(note) + coalesce((SELECT sum(length(body)) {_TEXTS}), 0)"

_Where = tuple[str, str, bool]  # collection, name, whether it is a write
_EntryWithTexts = tuple[Entry, Sequence[Text]]


@dataclass(slots=True)
class _Summary:
    """The unwritten entries of one namespace since `begin` (Unix seconds)."""

    begin: float
    counts: Counter[str] = field(default_factory=Counter)
    # The latest entry of each object.
    pending: dict[_Where, _EntryWithTexts] = field(default_factory=dict)
    has_writes: bool = False
    # Intents without an outcome, since when.
    in_flight: dict[str, tuple[float, _EntryWithTexts]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)  # refs of outcomes, which may be reported twice

    def copied(self) -> _Summary:
        return replace(
            self,
            counts=self.counts.copy(),
            pending=self.pending.copy(),
            in_flight=self.in_flight.copy(),
            answered=self.answered.copy(),
        )

    def count(self, kind: str) -> None:
        self.counts[kind] += 1
        metrics.ledger_summarised.labels(kind).inc()

    def keep(self, entry: Entry, texts: Sequence[Text]) -> None:
        """Keep an entry until there is room, or a newer one replaces it."""
        where = entry.collection, entry.name, entry.kind == "outcome"
        self.pending.pop(where, None)
        if len(self.pending) < _PENDING:
            self.pending[where] = _without_inputs(entry, texts)


class Shares:
    """The bytes of each namespace in one ledger."""

    def __init__(self, max_size: float, max_age: float) -> None:
        """Share `max_size` bytes, which hold the entries of `max_age` seconds."""
        self._max_size = max_size
        self._max_age = max_age
        self._bytes: Counter[str] = Counter()
        self._summaries: dict[str, _Summary] = {}
        self._saved: tuple[Counter[str], dict[str, _Summary]] = Counter(), {}
        self._share = math.inf  # of each namespace, in bytes

    def load(self, db: sqlite3.Connection) -> None:
        """Count the rows of a file, by SQLite alone."""
        self._bytes, self._summaries = Counter(), {}
        db.execute("CREATE TEMP TABLE held (namespace PRIMARY KEY, bytes) WITHOUT ROWID")
        try:
            db.execute(
                f"INSERT INTO temp.held SELECT namespace, {_SIZE} FROM main.records WHERE true"  # noqa: S608 - our own
                " ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes"
            )
            self._bytes.update(dict(db.execute("SELECT namespace, bytes FROM temp.held")))
        finally:
            db.execute("DROP TABLE temp.held")

    def begin(self) -> None:
        """Take a snapshot for `undo`."""
        summaries = {name: one.copied() for name, one in self._summaries.items()}
        self._saved = self._bytes.copy(), summaries
        many = len(self._bytes.keys() - {""})
        # A single namespace has the whole size.
        self._share = self._max_size * max(1 / many, _LEAST) if many > 1 else math.inf

    def undo(self) -> None:
        """Restore the snapshot of `begin`: the transaction failed."""
        self._bytes, self._summaries = self._saved

    def added(self, entry: Entry, texts: Iterable[Text]) -> None:
        """Count a row that is added."""
        size = _ROW + len(entry.note)
        named = {entry.input, entry.new if entry.kind == "intent" else ""} - {""}
        if named:
            size += sum(len(one.body) for one in texts if one.digest in named)
        self._bytes[entry.namespace] = self._bytes.get(entry.namespace, 0) + size

    def removing(self, db: sqlite3.Connection, upto: int) -> None:
        """Subtract the rows up to `upto`, which are about to be pruned."""
        query = f"SELECT namespace, {_SIZE} FROM records WHERE seq <= ?"  # noqa: S608 - our own
        for namespace, size in db.execute(query, (upto,)).fetchall():
            self._bytes[namespace] -= size
        self._bytes = +self._bytes

    def entries_for(self, entry: Entry, texts: Sequence[Text], now: float) -> list[_EntryWithTexts]:
        """Return the entries to write for a new one: itself, the begin of a summary, or none."""
        if entry.ref and entry.kind == "intent":
            return self._begin_write(entry, texts, now)
        if entry.ref and entry.kind == "outcome":
            return self._end_write(entry, texts)
        if entry.kind not in _SUMMARISED:
            return [(entry, texts)]
        found, begun = self._summaries.get(entry.namespace), list[_EntryWithTexts]()
        if found is None:
            if not self._is_over(entry.namespace):
                return [(entry, texts)]
            found, begun = self._begun(entry.namespace, now)
        found.count(entry.kind)
        if entry.kind != "held":
            found.keep(entry, texts)
        return begun

    def drop_pending(self, entry: Entry) -> None:
        """Drop the pending state of an object: the ledger has it (again)."""
        found = self._summaries.get(entry.namespace)
        if found is not None and entry.kind in ("decision", "gone"):
            found.pending.pop((entry.collection, entry.name, False), None)

    def _begin_write(
        self, entry: Entry, texts: Sequence[Text], now: float
    ) -> list[_EntryWithTexts]:
        """Keep an intent until its outcome is known, if writes are summarised."""
        if entry.approved or not self._is_over(entry.namespace, _WRITES):
            return [(entry, texts)]
        found, begun = self._summaries.get(entry.namespace), list[_EntryWithTexts]()
        if found is None or not found.has_writes:
            found, begun = self._begun(entry.namespace, now, writes=True)
        if entry.ref in found.answered:
            return begun
        if len(found.in_flight) >= _PENDING:
            return [*begun, (entry, texts)]
        found.in_flight.setdefault(entry.ref, (now, (entry, texts)))
        return begun

    def _end_write(self, entry: Entry, texts: Sequence[Text]) -> list[_EntryWithTexts]:
        """Summarise a write without a row of its intent; otherwise return its outcome to write."""
        found = self._summaries.get(entry.namespace)
        if found is None or (entry.ref not in found.in_flight and entry.ref not in found.answered):
            return [(entry, texts)]
        if (begun := found.in_flight.pop(entry.ref, None)) is None:
            return []  # a repeated report
        failed = entry.status not in _DONE
        if failed and not self._is_over(entry.namespace, _FAILURES):
            return [begun[1], (entry, texts)]
        found.answered.add(entry.ref)
        found.count("intent")
        found.count("outcome")
        found.keep(entry, texts)
        return []

    def is_due(self, now: float, every: float = EVERY_SECONDS) -> bool:
        """Return whether a summary is due."""
        return any(now >= found.begin + every for found in self._summaries.values())

    def due(self, now: float, every: float = EVERY_SECONDS) -> list[_EntryWithTexts]:
        """Return the summaries that are due, with the states after them."""
        many = len(self._summaries)
        entries: list[_EntryWithTexts] = []
        for namespace, found in [*self._summaries.items()]:
            if now < found.begin + every:
                continue
            if found.counts:
                entries.append(_summary(namespace, found, now))
            entries += self._latest(namespace, found, now, many)
            entries += _unanswered(found, now - every)
            found.begin, found.counts, found.answered = now, Counter(), set()
            found.has_writes = self._is_over(namespace, _WRITES)
            if not (found.pending or found.in_flight or self._is_over(namespace)):
                del self._summaries[namespace]
                log.info("ledger_namespace_in_full", namespace=namespace)
        return entries

    def _latest(
        self, namespace: str, found: _Summary, now: float, many: int
    ) -> Iterator[_EntryWithTexts]:
        """Yield pending states, the oldest first, as far as there is room."""
        others = self._bytes.total() - self._bytes[namespace]
        left = max(_ROOM * self._max_size - others, _FLOOR * self._share)
        room = left / many / self._max_age * (now - found.begin)
        while found.pending and room > 0:
            where = next(iter(found.pending))
            room -= _ROW
            yield found.pending.pop(where)

    def _begun(
        self, namespace: str, now: float, *, writes: bool = False
    ) -> tuple[_Summary, list[_EntryWithTexts]]:
        """Begin a summary; return its first row, which remains if this process is killed."""
        found = self._summaries.setdefault(namespace, _Summary(now))
        found.has_writes = found.has_writes or writes
        log.warning("ledger_namespace_summarised", namespace=namespace, writes=writes)
        what = "changes and writes" if writes else "changes"
        return found, [_noted(namespace, (now, now), f"from here on its {what} are summarised", 0)]

    def _is_over(self, namespace: str, shares: int = _CHANGES) -> bool:
        """Return whether it has more than `shares` shares, or leaves others less than a part."""
        most = shares * self._share
        if math.isfinite(most):
            most = min(most, self._max_size - (self._max_size - self._share) / shares)
        return namespace != "" and self._bytes.get(namespace, 0) > most


def _unanswered(found: _Summary, before: float) -> Iterator[_EntryWithTexts]:
    """Yield the intents from before that time without an outcome."""
    for ref, (since, intent) in [*found.in_flight.items()]:
        if since <= before:
            del found.in_flight[ref]
            yield intent


def _without_inputs(entry: Entry, texts: Sequence[Text]) -> _EntryWithTexts:
    kept = [one for one in texts if one.digest in (entry.old, entry.new)]
    return msgspec.structs.replace(entry, data="", input=""), kept


def _summary(namespace: str, found: _Summary, now: float) -> _EntryWithTexts:
    kinds = ", ".join(f"{many} {kind}" for kind, many in sorted(found.counts.items()))
    during = found.begin, now
    return _noted(namespace, during, f"summarised are {kinds}", found.counts.total())


def _noted(namespace: str, during: tuple[float, float], what: str, many: int) -> _EntryWithTexts:
    reason = f"the namespace has more than its share of the ledger: {what}"
    body = msgspec.json.encode(GapNote(many, *during, reason)).decode()
    return Entry(kind="summary", namespace=namespace, note=body), ()
