"""The result of a replay, as a value and in print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.printing import decision_text
from kube_sync.inspect.replay.recorded import Case
from kube_sync.ledger.entries import Row
from kube_sync.ledger.printing import moment, object_of
from kube_sync.ledger.recording import status_of
from kube_sync.observability.printing import indented, plain

_NAMED = 3  # rows for one reason


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded decision, and what is decided now."""

    case: Case
    now: Outcome


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The counts of equal decisions and of failed replays by reason, and the differences."""

    same: int
    different: Sequence[Difference]
    unknown: Sequence[tuple[Row, str]]

    @property
    def status(self) -> int:
        """The exit status."""
        if self.different:
            return 2
        return 3 if self.unknown or not self.same else 0


def is_same(case: Case, now: Outcome) -> bool:
    """Return whether the outcome equals the recorded one."""
    entry = case.row.entry
    if entry.status != status_of(now):
        return False
    if now.failure is not None:  # the decision is an earlier one, which stayed in force
        return entry.note == now.failure
    return case.decision == now.decision


def as_text(result: ReplayResult) -> str:
    """Format the result for people."""
    return "\n".join(_lines(result))


def as_json(result: ReplayResult) -> str:
    """Format the result for programs."""
    whole = {
        "v": 1,
        "same": result.same,
        "different": [_document(one) for one in result.different],
        "not_replayed": [{**_row_document(row), "reason": why} for row, why in result.unknown],
    }
    return indented(whole)


def as_names(result: ReplayResult) -> str:
    """Return the names of objects of which another decision is made, a line each."""
    return "\n".join(dict.fromkeys(str(object_of(one.case.row.entry)) for one in result.different))


def _lines(result: ReplayResult) -> Iterator[str]:
    for one in result.different:
        row, before, after = one.case.row, _recorded_text(one.case), _current_text(one.now)
        yield f"{moment(row.seconds)}  {_name(row)}  {before} -> {after}  (row {row.seq})"
    made = result.same + len(result.different)
    yield f"{_decisions(made)} made again: {result.same} the same, {len(result.different)} differ"
    reasons = Counter(why for _, why in result.unknown)
    for why, count in reasons.most_common():
        rows = [str(row.seq) for row, reason in result.unknown if reason == why]
        more = ", …" if count > _NAMED else ""
        which = f"row{'s' if count > 1 else ''} {', '.join(rows[:_NAMED])}{more}"
        yield f"{_decisions(count)} not made again ({which}): {plain(why)}"


def _decisions(count: int) -> str:
    return f"{count} decision{'' if count == 1 else 's'}"


def _name(row: Row) -> str:
    entry = row.entry
    where = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
    return f"{entry.collection} {plain(where)}"


def _recorded_text(case: Case) -> str:
    entry = case.row.entry
    return _text(entry.status, entry.note, case.decision)


def _current_text(now: Outcome) -> str:
    return _text(status_of(now), now.failure or "", now.decision)


def _text(recorded_status: str, note: str, decision: Decision | None) -> str:
    if recorded_status == "failed":
        return f"failed: {plain(note)}"
    return "undefined" if decision is None else decision_text(decision)


def _document(one: Difference) -> dict[str, Any]:
    entry = one.case.row.entry
    failed = entry.status == "failed"
    return {
        **_row_document(one.case.row),
        "policy": entry.policy,
        "recorded": {
            "status": entry.status,
            "decision": None if failed else one.case.decision,
            "failure": entry.note if failed else None,
        },
        "now": {
            "status": status_of(one.now),
            "decision": one.now.decision,
            "failure": one.now.failure,
        },
    }


def _row_document(row: Row) -> dict[str, Any]:
    entry = row.entry
    return {
        "seq": row.seq,
        "time": row.seconds,
        "collection": entry.collection,
        "namespace": entry.namespace,
        "name": entry.name,
    }
