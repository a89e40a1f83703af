"""Read-only queries of the ledger, while its writer has it open.

Invariant: an index finds the state at a time, however many rows there are. Nothing is guessed:
a query of a time before the first row, or within a gap, says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kube_sync.errors import NotFound, Terminal
from kube_sync.kube.naming import DEFAULT, Reference, is_built_in, spellings, within
from kube_sync.ledger.database import BUSY_SECONDS, SCHEMA
from kube_sync.ledger.entries import ROW, Entry, Row, row_of, standing_since
from kube_sync.objects import GroupVersionResource

_OF = "namespace = ? AND name = ? AND collection = ?"
_DECIDED = "kind IN ('decision', 'gone')"
_WRITES = "kind IN ('intent', 'outcome', 'held')"
_NO_ROW = 1 << 62  # greater than any number
_LATER = 100  # gaps recorded after a time that may have begun before it


@dataclass(frozen=True, slots=True)
class Object:
    """One object; `collection` is spelt as kubectl accepts it, `replicasets.v1.apps`."""

    collection: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As the command line takes it."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.collection}/{where}{self.name}"


@dataclass(frozen=True, slots=True)
class DecisionAt:
    """The state of an object at a time, by `row`, or by `after`, the first row that came later.

    Of the time before the first row only the decision is known, as `old` of `after`; without both
    rows nothing is known. `gaps` came between `row` and that time, or cover it.
    """

    row: Row | None
    after: Row | None
    written: Row | None  # the last write of the object before that time
    gaps: tuple[Row, ...]

    def told(self, time: float) -> Row | None:
        """Return the row with the state at `time`: `row`, or `after` if it is a repetition.

        Pruning repeats states that are older than the oldest row.
        """
        if self.row is not None or self.after is None:
            return self.row
        since = standing_since(self.after.entry)
        return self.after if since is not None and since <= time else None


class _Begin(msgspec.Struct):
    begin: float


class Reading:
    """A ledger that is open for reading."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def bounds(self) -> tuple[float, float] | None:
        """Return the times of the first and the last row, in Unix seconds."""
        asked = "SELECT time FROM records ORDER BY seq"  # time grows with it, and has no index
        first, last = (
            self.db.execute(f"{asked} {order} LIMIT 1").fetchone() for order in ("", "DESC")
        )
        return None if first is None or last is None else (first[0] / 1e6, last[0] / 1e6)

    def find(self, of: Reference, namespace: str | None) -> Object:
        """Return the object that is named; `namespace`: of the command line. Raises NotFound."""
        there: dict[Object, bool] = {}  # whether it is of a kind that was meant
        for one in within(of, namespace):
            for key in one.keys(namespace):
                for collection in self._collections(key.namespace, key.name):
                    found = Object(collection, key.namespace, key.name)
                    there[found] = there.get(found, False) or is_called(collection, one.kind)
        meant = [found for found, fits in there.items() if fits]
        if len(meant) == 1:
            return meant[0]
        several = " or ".join(map(str, meant or there))
        if meant:
            msg = f"{of[0].text}: it may be {several}: say which"
            raise NotFound(msg)
        likely = of[0] if of[0].kind is not None and is_built_in(of[0].kind) else of[-1]
        where = likely.namespace or namespace or DEFAULT
        hint = f"; of that name there is {several}" if there else ""
        hint = hint or ("" if namespace or likely.namespace else " (-n NAMESPACE?)")
        msg = f"nothing is recorded of {of[0].text} in namespace {where}{hint}"
        raise NotFound(msg)

    def history(
        self,
        of: Object | None = None,
        since: float = 0.0,
        limit: int = 1_000,
        wanted: Callable[[Entry], bool] = lambda _entry: True,
    ) -> list[Row]:
        """Return the newest rows since then (Unix seconds), of one object or of all, in order.

        Among those of an object is what says that changes in its namespace were summarised; of
        all, those that are `wanted`.
        """
        if of is not None:
            rows = self._newest(of, "time >= ?", (_micros(since),), limit)
            rows += self._summaries(of.namespace, since, limit)
            return sorted(rows, key=lambda row: row.seq)[-limit:]
        # Time grows with the number.
        asked = f"SELECT {ROW} FROM records WHERE seq >= ? ORDER BY seq DESC"  # noqa: S608 - our own names
        found = map(row_of, self.db.execute(asked, (self._first_since(_micros(since)),)))
        return [*islice((row for row in found if wanted(row.entry)), limit)][::-1]

    def decisions(self, since: float, limit: int) -> list[Row]:
        """Return the newest policy decisions since then (Unix seconds), in order."""
        asked = (
            f"SELECT {ROW} FROM records WHERE seq >= ? AND kind = 'decision' AND policy != ''"  # noqa: S608 - our own names
            " ORDER BY seq DESC LIMIT ?"
        )
        found = self.db.execute(asked, (self._first_since(_micros(since)), limit))
        return [row_of(one) for one in found][::-1]

    def at(self, of: Object, time: float) -> DecisionAt:
        """Return the state of an object at `time` (Unix seconds)."""
        row = self._one(of, _DECIDED, time)
        after = None if row is not None else self._next(of, time)
        written = self._one(of, _WRITES, time)
        gaps = self._gaps(of.namespace, row.seq if row is not None else 0, time)
        return DecisionAt(row, after, written, tuple(gaps))

    def following(self, of: Object, time: float) -> Row | None:
        """Return the next decision on an object after `time` (Unix seconds)."""
        return self._next(of, time)

    def writes(self, of: Object, since: Row | None, time: float, limit: int) -> list[Row]:
        """Return the newest rows about writes after a row until then, in order."""
        begin = (0, 0) if since is None else (since.time, since.seq)
        values = (begin[0], _micros(time), begin[1])
        return self._newest(of, f"time BETWEEN ? AND ? AND seq > ? AND {_WRITES}", values, limit)

    def outcome(self, ref: str) -> Row | None:
        """Return the outcome of a write, None if it is unknown."""
        asked = f"SELECT {ROW} FROM records WHERE ref = ? AND ref != '' AND kind = 'outcome'"  # noqa: S608 - our own names
        found = self.db.execute(asked, (ref,)).fetchone()
        return None if found is None else row_of(found)

    def text(self, digest: str) -> bytes | None:
        """Return a text by its digest, None if it is not stored (any more)."""
        asked = "SELECT body FROM texts WHERE digest = ?"
        found = self.db.execute(asked, (digest,)).fetchone()
        return None if found is None else found[0]

    def modules(self, policy: str) -> dict[str, str] | None:
        """Return the policy modules of a digest by id, None if not all of them are known."""
        asked = "SELECT new FROM records WHERE kind = 'policy' AND policy = ? ORDER BY seq DESC"
        row = self.db.execute(f"{asked} LIMIT 1", (policy,)).fetchone()
        listed = None if row is None else self.text(row[0])
        if listed is None:
            return None
        found: dict[str, str] = {}
        for module, digest in msgspec.json.decode(listed, type=dict[str, str]).items():
            if (body := self.text(digest)) is None:
                return None  # of another set of policies
            found[module] = body.decode()
        return found

    def _gaps(self, namespace: str, since: int, time: float) -> Iterator[Row]:
        """Yield the gaps after row `since` that are recorded until `time`, or began until then.

        A gap is recorded once the file can be written again, and a summary at its end, so the row
        comes after the times that it covers. A summary is about one namespace.
        """
        asked = (
            f"SELECT {ROW} FROM records WHERE kind IN ('gap', 'summary')"  # noqa: S608 - our own names
            " AND namespace IN ('', ?) AND seq > ? AND time"
        )
        values = (namespace, since, _micros(time))
        yield from map(row_of, self.db.execute(f"{asked} <= ? ORDER BY seq", values))
        later = self.db.execute(f"{asked} > ? ORDER BY seq LIMIT {_LATER}", values)
        yield from (row for row in map(row_of, later) if _began(row) <= time)

    def _summaries(self, namespace: str, since: float, limit: int) -> Iterator[Row]:
        asked = (  # the second condition is that of the index
            f"SELECT {ROW} FROM records WHERE kind = 'summary' AND kind IN ('gap', 'summary')"  # noqa: S608 - our own names
            " AND namespace = ? AND time >= ? ORDER BY seq DESC LIMIT ?"
        )
        return map(row_of, self.db.execute(asked, (namespace, _micros(since), limit)))

    def _first_since(self, time: int) -> int:
        """Return the number of the first row that is not before a time, by binary search."""
        low, high = self.db.execute("SELECT min(seq), max(seq) + 1 FROM records").fetchone()
        if low is None:
            return 0
        while low < high:
            middle = (low + high) // 2
            asked = "SELECT seq, time FROM records WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
            found: tuple[int, int] = self.db.execute(asked, (middle,)).fetchone()
            if found[1] < time:
                low = middle + 1
            else:
                high = min(middle, found[0])
        return int(low)

    def _collections(self, namespace: str, name: str) -> list[str]:
        """Return the collections with an object of that name, however many rows are about it."""
        of = "namespace = ? AND name = ?"
        asked = f"SELECT collection FROM records WHERE filed = 0 AND {of}"  # noqa: S608 - our own names
        known = {one for (one,) in self.db.execute(asked, (namespace, name))}
        asked = f"SELECT min(collection) FROM records WHERE filed = 1 AND {of} AND collection > ?"  # noqa: S608 - our own names
        found = ""
        while True:
            (found,) = self.db.execute(asked, (namespace, name, found)).fetchone()
            if found is None:
                return sorted(known)
            known.add(found)

    def _one(self, of: Object, kinds: str, time: float) -> Row | None:
        found = self._newest(of, f"time <= ? AND {kinds}", (_micros(time),), 1)
        return found[0] if found else None

    def _next(self, of: Object, time: float) -> Row | None:
        values = (of.namespace, of.name, of.collection, _micros(time))
        new, old = (
            self.db.execute(
                f"SELECT {ROW} FROM records WHERE filed = {filed} AND {_OF} AND time > ?"  # noqa: S608 - our own names
                f" AND {_DECIDED} ORDER BY time, seq LIMIT 1",
                values,
            ).fetchone()
            for filed in (0, 1)
        )
        return None if new is None and old is None else row_of(old or new)

    def _newest(self, of: Object, where: str, values: Sequence[Any], limit: int) -> list[Row]:
        """Return the newest rows about an object, in order.

        Rows that are not indexed yet are the newest of all, and queried first: meanwhile
        they may be indexed.
        """
        found: list[Row] = []
        for filed in (0, 1):
            below = found[-1].seq if found else _NO_ROW
            asked = (
                f"SELECT {ROW} FROM records WHERE filed = {filed} AND {_OF} AND {where}"  # noqa: S608 - our own names
                " AND seq < ? ORDER BY time DESC, seq DESC LIMIT ?"
            )
            about = (of.namespace, of.name, of.collection, *values, below, limit - len(found))
            found += map(row_of, self.db.execute(asked, about))
        return found[::-1]


@contextmanager
def reading(path: Path) -> Generator[Reading]:
    """Open the ledger at `path` for reading. Raises NotFound, or Terminal if it is none."""
    if not path.is_file():
        msg = f"{path}: there is no ledger"
        raise NotFound(msg)
    try:
        db = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", timeout=BUSY_SECONDS, uri=True, isolation_level=None
        )
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != SCHEMA:
                msg = f"{path}: it is no ledger of version {SCHEMA}"
                raise Terminal(msg)
            yield Reading(db)
        finally:
            db.close()
    except (sqlite3.Error, msgspec.ValidationError) as error:
        msg = f"{path}: it cannot be read: {error} (`kube-sync verify` tells which row)"
        raise Terminal(msg) from error


def is_called(collection: str, kind: str | None) -> bool:
    """Tell whether people mean a collection by `kind`; None is any."""
    return kind is None or kind.lower() in spellings(GroupVersionResource.of(collection))


def _began(gap: Row) -> float:
    try:
        return msgspec.json.decode(gap.entry.note, type=_Begin).begin
    except msgspec.DecodeError:  # the row of a remediator, which does not know the kind
        return gap.seconds


def _micros(seconds: float) -> int:
    return int(seconds * 1e6)
