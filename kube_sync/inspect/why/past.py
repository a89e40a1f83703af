"""Queries the ledger about one object at a time: its decision, its cause, its writes and holds.

Invariant: nothing is guessed. What was not recorded, or was pruned, is reported as unknown, and a
time about which nothing can be known is no answer. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.errors import NO_JSON, NotFound, Terminal
from kube_sync.kube.naming import Reference
from kube_sync.ledger.bases import State, collection_of, state_of
from kube_sync.ledger.entries import Entry, GapNote, Row, standing_since
from kube_sync.ledger.printing import moment
from kube_sync.ledger.reading import DecisionAt, Object, Reading


@dataclass(frozen=True, slots=True)
class Ground:
    """The object as the decision's input, and the document of OPA; None: not recorded.

    The data is complete for the collections that were read, or absent.
    """

    input: bytes | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)
    path: str = ""  # of the decision
    lacks: Mapping[str, str] = field(default_factory=dict)  # why data is missing, by its name


def ground(ledger: Reading, entry: Entry) -> Ground:
    """Return the recorded input of a decision."""
    body = ledger.text(entry.input) if entry.input else None
    stated = ledger.text(entry.data) if entry.data else None
    if stated is None:
        return Ground(body)
    try:
        state = state_of(stated)
        collections = dict(_collections(ledger, state))
    except NO_JSON:
        return Ground(body)
    data = msgspec.json.encode({state.root: collections})
    gone = dict.fromkeys(state.collections.keys() - collections, "its parts are not there")
    return Ground(body, data, state.path, {**state.lacks, **gone})


def _collections(ledger: Reading, state: State) -> Iterator[tuple[str, msgspec.Raw]]:
    for name, digests in state.collections.items():
        parts = [part for digest in digests if (part := ledger.text(digest)) is not None]
        if len(parts) == len(digests):
            yield name, msgspec.Raw(collection_of(parts))


UNKNOWN: Final = "unknown"
WRITES: Final = 20  # reported writes of one decision, the newest

Form = Literal["text", "json"]
Values = Mapping[str, str | None]  # of annotations and labels; None: the key is absent


@dataclass(frozen=True, slots=True)
class PastRequest:
    """Of which object to tell what stood at which time, from which ledger."""

    file: str
    of: Reference
    namespace: str | None  # None: `default`, or none at all
    at: float  # Unix seconds
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class Written:
    """A write or a hold: `status` is the reason of the hold, or the outcome, "" if unknown.

    Times are Unix seconds; `answered` is None if no outcome was recorded by then.
    """

    held: bool
    time: float
    status: str
    answered: float | None = None
    approved: str = ""
    note: str = ""
    before: Values = field(default_factory=dict)
    after: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Past:
    """The state of an object at a time; times are Unix seconds, None if unknown."""

    of: Object
    time: float
    status: str  # decided, refused, failed, undefined, gone, UNKNOWN
    decision: Decision | None = None
    failure: str = ""
    since: float | None = None
    until: float | None = None  # None: to the end of the ledger
    row: int | None = None
    uid: str = ""
    cause: str = ""
    before: Decision | None = None  # the decision until then
    policy: str = ""
    modules: Mapping[str, str] | None = field(default=None, repr=False)
    digest: str = ""  # of the decision as it was recorded
    ground: Ground = field(default_factory=Ground)
    writes: tuple[Written, ...] = ()
    held: Written | None = None  # a hold at that time
    notes: tuple[str, ...] = ()
    trace: str = ""  # the id of the trace of the decision and its write, "" if none was recorded


def read_past(ledger: Reading, request: PastRequest) -> Past:
    """Return the state of the object at that time. Raises NotFound, Terminal."""
    if (bounds := ledger.bounds()) is None:
        msg = f"{request.file}: nothing is recorded yet"
        raise NotFound(msg)
    of = ledger.find(request.of, request.namespace)
    found = ledger.at(of, request.at)
    state = _state_at(ledger, of, request.at, found, bounds[0])
    writes = _writes(ledger, ledger.writes(of, found.row, request.at, 2 * WRITES), request.at)
    held = writes[-1] if writes and writes[-1].held and state.status != "gone" else None
    notes = (*state.notes, *_notes(found, request.at, bounds[1]))
    return replace(state, writes=tuple(writes[-WRITES:]), held=held, notes=notes)


def _state_at(ledger: Reading, of: Object, time: float, found: DecisionAt, begin: float) -> Past:
    if found.row is not None:
        after = ledger.following(of, time)
        return _state_of_row(ledger, of, time, found.row, None if after is None else after.seconds)
    after = found.after
    if after is not None and found.told(time) is after:
        # Pruning repeats a state that holds since before the oldest row.
        until = ledger.following(of, after.seconds)
        return _state_of_row(ledger, of, time, after, None if until is None else until.seconds)
    if time < begin:
        msg = f"{moment(time)}: the ledger begins at {moment(begin)}"
        raise Terminal(msg)
    if after is not None and after.entry.old:
        decision = _decision(ledger, after.entry.old)
        note = "by which policy and why was taken away with the oldest rows"
        status = UNKNOWN if decision is None else _status(decision)
        return Past(of, time, status, decision, until=after.seconds, notes=(note,))
    note = "nothing was recorded of it until then"
    until_first = None if after is None else after.seconds
    return Past(of, time, UNKNOWN, until=until_first, notes=(note,))


def _state_of_row(ledger: Reading, of: Object, time: float, row: Row, until: float | None) -> Past:
    entry, pruned_since = row.entry, standing_since(row.entry)
    is_repeated = pruned_since is not None
    gone = entry.kind == "gone"
    return Past(
        of,
        time,
        "gone" if gone else entry.status,
        None if gone else _decision(ledger, entry.new),
        entry.note if entry.status == "failed" else "",
        pruned_since if pruned_since is not None else row.seconds,
        until,
        row.seq,
        entry.uid,
        "" if is_repeated else entry.cause,
        None if is_repeated else _decision(ledger, entry.old),
        entry.policy,
        ledger.modules(entry.policy) if entry.policy else None,
        entry.new,
        ground(ledger, entry),
        notes=("its cause was taken away with the oldest rows",) if is_repeated else (),
        trace="" if gone or entry.status == "failed" else entry.note,
    )


def _writes(ledger: Reading, rows: Iterable[Row], time: float) -> list[Written]:
    """Return writes with their outcomes, in the order of their intents."""
    found: list[Written] = []
    sent: set[str] = set()
    for row in rows:
        entry = row.entry
        if entry.kind == "outcome":
            if entry.ref not in sent:  # it was sent for the decision before
                found.append(_write(ledger, row, row.seconds, row))
            continue
        sent.add(entry.ref)
        answer = ledger.outcome(entry.ref) if entry.kind == "intent" else None
        known = answer if answer is not None and answer.seconds <= time else None
        found.append(_write(ledger, row, row.seconds, known))
    return found


def _write(ledger: Reading, row: Row, sent: float, answer: Row | None) -> Written:
    entry, held = row.entry, row.entry.kind == "held"
    outcome = entry if answer is None or held else answer.entry
    return Written(
        held,
        sent,
        outcome.status,
        None if answer is None else answer.seconds,
        entry.approved,
        outcome.note,
        _values(ledger, entry.old),
        _values(ledger, entry.new),
    )


def _notes(found: DecisionAt, time: float, end: float) -> Iterator[str]:
    for gap in found.gaps:
        yield f"a gap in the ledger, so it may have been otherwise: {_gap(gap.entry.note)}"
    if time > end:
        yield f"the newest row of the ledger is of {moment(end)}"


def _gap(note: str) -> str:
    try:
        found = msgspec.json.decode(note, type=GapNote)
    except msgspec.DecodeError:  # a remediator's note, as text
        return note
    when = f"{found.entries} entries from {moment(found.begin)} to {moment(found.end)}: "
    return f"{when if found.entries else ''}{found.reason}"


def _decision(ledger: Reading, digest: str) -> Decision | None:
    body = ledger.text(digest) if digest else None
    try:
        return None if body is None else msgspec.json.decode(body, type=Decision)
    except NO_JSON:
        return None


def _status(decision: Decision) -> str:
    return "refused" if decision.errors else "decided"


def _values(ledger: Reading, digest: str) -> Values:
    body = ledger.text(digest) if digest else None
    try:
        return {} if body is None else msgspec.json.decode(body, type=dict[str, str | None])
    except NO_JSON:
        return {}
