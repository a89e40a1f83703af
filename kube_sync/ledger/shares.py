"""The share of the ledger that each namespace has, and the summary of what is beyond it.

Keeps true: whoever may write in one namespace cannot push the history of others out of a ledger
that is bounded. A namespace that holds more than its share (the size divided by the number of
namespaces, a tenth at least) has its changes summarised: every few minutes one row of the chain
says how many there were and of which kind, and rows follow with what stands by then, as many as
there is room for. Rows of writes, of policies and of what lies in no namespace are never
summarised. It belongs to the thread that writes.
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
_ROOM = 0.5  # of the size, for what others leave of it, to those that have more than their share
_FLOOR = 0.25  # of a share, for these where others leave nothing
_PENDING = 20_000  # objects of which what stands is still to be written
_ROW = 600  # bytes, with its part of the indexes
_SUMMARISED = frozenset({"decision", "gone", "held"})
_INPUT = "FROM texts WHERE digest = input"
_SIZE = f"{_ROW} + length(note) + coalesce((SELECT length(body) {_INPUT}), 0)"

_Where = tuple[str, str]  # collection, name
_Said = tuple[Entry, Sequence[Text]]


@dataclass(slots=True)
class _Summary:
    """What was not written of one namespace since `begin` (Unix seconds)."""

    begin: float
    counts: Counter[str] = field(default_factory=Counter)
    pending: dict[_Where, _Said] = field(default_factory=dict)  # the latest of each object

    def copied(self) -> _Summary:
        return replace(self, counts=self.counts.copy(), pending=self.pending.copy())


class Shares:
    """The bytes that namespaces hold in one ledger."""

    def __init__(self, max_size: float, max_age: float) -> None:
        """Of `max_size` bytes, which hold what happened in `max_age` seconds."""
        self._max_size = max_size
        self._max_age = max_age
        self._held: Counter[str] = Counter()
        self._summaries: dict[str, _Summary] = {}
        self._saved: tuple[Counter[str], dict[str, _Summary]] = Counter(), {}
        self._share = math.inf  # of each namespace, bytes

    def load(self, db: sqlite3.Connection) -> None:
        """Count what a file holds, by SQLite alone."""
        self._held, self._summaries = Counter(), {}
        db.execute("CREATE TEMP TABLE held (namespace PRIMARY KEY, bytes) WITHOUT ROWID")
        try:
            db.execute(
                f"INSERT INTO temp.held SELECT namespace, {_SIZE} FROM main.records WHERE true"  # noqa: S608 - our own
                " ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes"
            )
            self._held.update(dict(db.execute("SELECT namespace, bytes FROM temp.held")))
        finally:
            db.execute("DROP TABLE temp.held")

    def begin(self) -> None:
        """Take note of all of it, for `undo`."""
        summaries = {name: one.copied() for name, one in self._summaries.items()}
        self._saved = self._held.copy(), summaries
        many = len(self._held.keys() - {""})
        # One that is alone has all.
        self._share = self._max_size * max(1 / many, _LEAST) if many > 1 else math.inf

    def undo(self) -> None:
        """Make it what it was at `begin`: what was added since was not written."""
        self._held, self._summaries = self._saved

    def added(self, entry: Entry, texts: Iterable[Text]) -> None:
        """Count a row that is added."""
        size = _ROW + len(entry.note)
        if entry.input:
            size += sum(len(one.body) for one in texts if one.digest == entry.input)
        self._held[entry.namespace] = self._held.get(entry.namespace, 0) + size

    def removing(self, db: sqlite3.Connection, upto: int) -> None:
        """Count the rows up to one, which are about to be taken away, no more."""
        asked = f"SELECT namespace, {_SIZE} FROM records WHERE seq <= ?"  # noqa: S608 - our own
        for namespace, size in db.execute(asked, (upto,)).fetchall():
            self._held[namespace] -= size
        self._held = +self._held

    def take(self, entry: Entry, texts: Sequence[Text], now: float) -> list[_Said]:
        """Return what to write where this is news: itself, or what begins a summary, or nothing."""
        found = self._summaries.get(entry.namespace)
        is_over = found is not None or self._is_over(entry.namespace)
        if not is_over or entry.kind not in _SUMMARISED:
            return [(entry, texts)]
        begun: list[_Said] = []
        if found is None:
            found = self._summaries[entry.namespace] = _Summary(now)
            log.warning("ledger_namespace_summarised", namespace=entry.namespace)
            begun = [_summary(entry.namespace, found, now)]
        found.counts[entry.kind] += 1
        metrics.ledger_summarised.labels(entry.kind).inc()
        if entry.kind != "held":
            where = entry.collection, entry.name
            found.pending.pop(where, None)
            if len(found.pending) < _PENDING:
                found.pending[where] = _without_inputs(entry, texts)
        return begun

    def stands(self, entry: Entry) -> None:
        """Take note that what the ledger says of an object is so (again)."""
        found = self._summaries.get(entry.namespace)
        if found is not None and entry.kind in ("decision", "gone"):
            found.pending.pop((entry.collection, entry.name), None)

    def is_due(self, now: float, every: float = EVERY_SECONDS) -> bool:
        """Tell whether there is a summary to write."""
        return any(now >= found.begin + every for found in self._summaries.values())

    def due(self, now: float, every: float = EVERY_SECONDS) -> list[_Said]:
        """Return the summaries that are to be written by now, with what stands since."""
        many = len(self._summaries)
        said: list[_Said] = []
        for namespace, found in [*self._summaries.items()]:
            if now < found.begin + every:
                continue
            if found.counts:
                said.append(_summary(namespace, found, now))
            said += self._latest(namespace, found, now, many)
            found.begin, found.counts = now, Counter()
            if not found.pending and not self._is_over(namespace):
                del self._summaries[namespace]
                log.info("ledger_namespace_in_full", namespace=namespace)
        return said

    def _latest(self, namespace: str, found: _Summary, now: float, many: int) -> Iterator[_Said]:
        """Yield what stands of objects, the longest first, as far as there is room for it."""
        others = self._held.total() - self._held[namespace]
        left = max(_ROOM * self._max_size - others, _FLOOR * self._share)
        room = left / many / self._max_age * (now - found.begin)
        while found.pending and room > 0:
            where = next(iter(found.pending))
            room -= _ROW
            yield found.pending.pop(where)

    def _is_over(self, namespace: str) -> bool:
        return namespace != "" and self._held.get(namespace, 0) > self._share


def _without_inputs(entry: Entry, texts: Sequence[Text]) -> _Said:
    kept = [one for one in texts if one.digest == entry.new]
    return msgspec.structs.replace(entry, data="", input=""), kept


def _summary(namespace: str, found: _Summary, now: float) -> _Said:
    share = "the namespace has more than its share of the ledger"
    if found.counts:
        kinds = ", ".join(f"{many} {kind}" for kind, many in sorted(found.counts.items()))
        reason = f"{share}: summarised are {kinds}"
    else:
        reason = f"{share}: from here on its changes are summarised"
    note = GapNote(found.counts.total(), found.begin, now, reason)
    body = msgspec.json.encode(note).decode()
    return Entry(kind="summary", namespace=namespace, note=body), ()
