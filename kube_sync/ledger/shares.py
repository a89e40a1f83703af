"""The share of the ledger that each namespace has, and the summary of what is beyond it.

Keeps true: whoever may write in one namespace cannot push the history of others out of a ledger
that is bounded. A namespace that holds more than its share (the size divided by the number of
namespaces, a tenth at least) has its changes summarised: every few minutes one row of the chain
says how many there were and of which kind, and rows follow with what stands by then, as many as
there is room for. With more than twice its share its writes are summarised too, in pairs (intent
and outcome), and rows follow with the last outcome of each workload. What failed stays whole as far
as three shares; what was approved, what was never answered, policies, and what lies in no namespace
always do. It belongs to the thread that writes.
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
_PENDING = 20_000  # objects of which what stands is still to be written; writes under way
_ROW = 600  # bytes, with its part of the indexes
_CHANGES, _WRITES, _FAILURES = 1, 2, 3  # shares that a namespace has before these are summarised
_SUMMARISED = frozenset({"decision", "gone", "held"})
_DONE = frozenset({"applied", "gone"})  # outcomes of a write that did not fail
_TEXTS = "FROM texts WHERE digest IN (input, CASE kind WHEN 'intent' THEN new END)"
_SIZE = f"{_ROW} + length(note) + coalesce((SELECT sum(length(body)) {_TEXTS}), 0)"

_Where = tuple[str, str, bool]  # collection, name, whether it is about a write
_Said = tuple[Entry, Sequence[Text]]


@dataclass(slots=True)
class _Summary:
    """What was not written of one namespace since `begin` (Unix seconds)."""

    begin: float
    counts: Counter[str] = field(default_factory=Counter)
    pending: dict[_Where, _Said] = field(default_factory=dict)  # the latest of each object
    has_writes: bool = False
    under_way: dict[str, tuple[float, _Said]] = field(default_factory=dict)  # intents, since when
    answered: set[str] = field(default_factory=set)  # refs, some of which are reported twice

    def copied(self) -> _Summary:
        return replace(
            self,
            counts=self.counts.copy(),
            pending=self.pending.copy(),
            under_way=self.under_way.copy(),
            answered=self.answered.copy(),
        )

    def count(self, kind: str) -> None:
        self.counts[kind] += 1
        metrics.ledger_summarised.labels(kind).inc()

    def keep(self, entry: Entry, texts: Sequence[Text]) -> None:
        """Have it written when there is room, unless there is news by then."""
        where = entry.collection, entry.name, entry.kind == "outcome"
        self.pending.pop(where, None)
        if len(self.pending) < _PENDING:
            self.pending[where] = _without_inputs(entry, texts)


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
        named = {entry.input, entry.new if entry.kind == "intent" else ""} - {""}
        if named:
            size += sum(len(one.body) for one in texts if one.digest in named)
        self._held[entry.namespace] = self._held.get(entry.namespace, 0) + size

    def removing(self, db: sqlite3.Connection, upto: int) -> None:
        """Count the rows up to one, which are about to be taken away, no more."""
        asked = f"SELECT namespace, {_SIZE} FROM records WHERE seq <= ?"  # noqa: S608 - our own
        for namespace, size in db.execute(asked, (upto,)).fetchall():
            self._held[namespace] -= size
        self._held = +self._held

    def take(self, entry: Entry, texts: Sequence[Text], now: float) -> list[_Said]:
        """Return what to write where this is news: itself, or what begins a summary, or nothing."""
        if entry.ref and entry.kind == "intent":
            return self._begin_write(entry, texts, now)
        if entry.ref and entry.kind == "outcome":
            return self._end_write(entry, texts)
        if entry.kind not in _SUMMARISED:
            return [(entry, texts)]
        found, begun = self._summaries.get(entry.namespace), list[_Said]()
        if found is None:
            if not self._is_over(entry.namespace):
                return [(entry, texts)]
            found, begun = self._begun(entry.namespace, now)
        found.count(entry.kind)
        if entry.kind != "held":
            found.keep(entry, texts)
        return begun

    def stands(self, entry: Entry) -> None:
        """Take note that what the ledger says of an object is so (again)."""
        found = self._summaries.get(entry.namespace)
        if found is not None and entry.kind in ("decision", "gone"):
            found.pending.pop((entry.collection, entry.name, False), None)

    def _begin_write(self, entry: Entry, texts: Sequence[Text], now: float) -> list[_Said]:
        """Keep an intent until it is known what became of it, where writes are summarised."""
        if entry.approved or not self._is_over(entry.namespace, _WRITES):
            return [(entry, texts)]
        found, begun = self._summaries.get(entry.namespace), list[_Said]()
        if found is None or not found.has_writes:
            found, begun = self._begun(entry.namespace, now, writes=True)
        if entry.ref in found.answered:
            return begun
        if len(found.under_way) >= _PENDING:
            return [*begun, (entry, texts)]
        found.under_way.setdefault(entry.ref, (now, (entry, texts)))
        return begun

    def _end_write(self, entry: Entry, texts: Sequence[Text]) -> list[_Said]:
        """Summarise a write whose intent is in no row; one whose intent is gets its outcome."""
        found = self._summaries.get(entry.namespace)
        if found is None or (entry.ref not in found.under_way and entry.ref not in found.answered):
            return [(entry, texts)]
        if (begun := found.under_way.pop(entry.ref, None)) is None:
            return []  # reported once more
        failed = entry.status not in _DONE
        if failed and not self._is_over(entry.namespace, _FAILURES):
            return [begun[1], (entry, texts)]
        found.answered.add(entry.ref)
        found.count("intent")
        found.count("outcome")
        found.keep(entry, texts)
        return []

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
            said += _unanswered(found, now - every)
            found.begin, found.counts, found.answered = now, Counter(), set()
            found.has_writes = self._is_over(namespace, _WRITES)
            if not (found.pending or found.under_way or self._is_over(namespace)):
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

    def _begun(
        self, namespace: str, now: float, *, writes: bool = False
    ) -> tuple[_Summary, list[_Said]]:
        """Begin to summarise; return what says so, which stands if this process is killed."""
        found = self._summaries.setdefault(namespace, _Summary(now))
        found.has_writes = found.has_writes or writes
        log.warning("ledger_namespace_summarised", namespace=namespace, writes=writes)
        what = "changes and writes" if writes else "changes"
        return found, [_noted(namespace, (now, now), f"from here on its {what} are summarised", 0)]

    def _is_over(self, namespace: str, shares: int = _CHANGES) -> bool:
        """Tell whether it has more than so many shares, or all but a part of what others have."""
        most = shares * self._share
        if math.isfinite(most):
            most = min(most, self._max_size - (self._max_size - self._share) / shares)
        return namespace != "" and self._held.get(namespace, 0) > most


def _unanswered(found: _Summary, before: float) -> Iterator[_Said]:
    """Yield the intents since before then of which nobody said what became of them."""
    for ref, (since, said) in [*found.under_way.items()]:
        if since <= before:
            del found.under_way[ref]
            yield said


def _without_inputs(entry: Entry, texts: Sequence[Text]) -> _Said:
    kept = [one for one in texts if one.digest in (entry.old, entry.new)]
    return msgspec.structs.replace(entry, data="", input=""), kept


def _summary(namespace: str, found: _Summary, now: float) -> _Said:
    kinds = ", ".join(f"{many} {kind}" for kind, many in sorted(found.counts.items()))
    during = found.begin, now
    return _noted(namespace, during, f"summarised are {kinds}", found.counts.total())


def _noted(namespace: str, during: tuple[float, float], what: str, many: int) -> _Said:
    reason = f"the namespace has more than its share of the ledger: {what}"
    body = msgspec.json.encode(GapNote(many, *during, reason)).decode()
    return Entry(kind="summary", namespace=namespace, note=body), ()
