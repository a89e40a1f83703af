"""Format decisions for people: a table of the current ones, then one line for each change. Pure.

Decisions that a stream repeats after starting over are no changes. Text of policies is printed
without control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.decisions.subscription import SENDING
from kube_sync.errors import NO_JSON
from kube_sync.kube.naming import Reference
from kube_sync.objects import ObjectKey
from kube_sync.observability.printing import cut, plain, table

Form = Literal["text", "wide", "json", "yaml", "name"]

_SHORT = 6  # characters of a policy digest
_LONGEST = 60  # characters of an annotation's value
_TITLES = ("OBJECT", "DECISION", "CAUSE", "POLICY")
_WIDE = ("TYPE", *_TITLES, "UID", "DATA")


@dataclass(frozen=True, slots=True)
class Request:
    """Whose decisions to print, and how."""

    watch: bool = False
    form: Form = "text"
    namespace: str | None = None  # None: all
    of: tuple[Reference, ...] = ()  # none: all
    labelled: frozenset[tuple[str, str, ObjectKey]] | None = None  # group, resource; None: all

    @property
    def names(self) -> str | None:
        """What single objects are asked for, None where no name was given."""
        return ", ".join(of[0].text for of in self.of if of[0].name is not None) or None

    def matches(self, target: Target) -> bool:
        """Tell whether an object is asked about."""
        gvr, key = target.gvr, target.key
        labelled = self.labelled
        return (
            self.namespace in (None, target.namespace)
            and (not self.of or any(one.means(gvr, key) for of in self.of for one in of))
            and (labelled is None or (gvr.group, gvr.resource, key) in labelled)
        )


class DecisionPrinter:
    """The decisions that a reader knows, and whether they were printed."""

    def __init__(self, request: Request, clock: Callable[[], str]) -> None:
        """`clock` returns the time of day."""
        self._request = request
        self._clock = clock
        self._known: dict[Target, DecisionRecord] = {}
        self._unconfirmed: set[Target] = set()
        self._status: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._stale: set[str] = set()
        self.is_shown = False  # the table was printed

    @property
    def is_empty(self) -> bool:
        """Whether no decision is known for the request."""
        return not self._known

    def handle(self, record: Record | None) -> Iterator[str]:
        """Handle one record, None if a stream starts over; yield lines to print."""
        match record:
            case None:
                self._unconfirmed = set(self._known)
            case DecisionRecord() if self._request.matches(record.object):
                yield from self._decision_lines(record)
            case DeletedRecord() if self._request.matches(record.object):
                yield from self._deleted_lines(record.object)
            case StatusRecord():
                yield from self._status_lines(record)
                yield from self._stale_lines(record)
            case BookmarkRecord():
                yield from self._complete_lines()

    def _decision_lines(self, record: DecisionRecord) -> Iterator[str]:
        target = record.object
        self._unconfirmed.discard(target)
        old = self._known.get(target)
        if record.decision is None and record.failure is None:
            self._known.pop(target, None)
        else:
            self._known[target] = record
        before, after = _decision(old), _decision(record)
        if self.is_shown and before != after:
            yield self._line(
                f"{self._name(target)}  {before} -> {after}  ({_cause_and_policy(record)})"
            )

    def _deleted_lines(self, target: Target) -> Iterator[str]:
        self._unconfirmed.discard(target)
        if self._known.pop(target, None) is not None and self.is_shown:
            yield self._line(f"{self._name(target)}  gone")

    def _complete_lines(self) -> Iterator[str]:
        for target in sorted(self._unconfirmed, key=_sort_key):
            yield from self._deleted_lines(target)
        if not self.is_shown:
            self.is_shown = True
            if self._known:
                yield from self._table_lines()

    def _status_lines(self, record: StatusRecord) -> Iterator[str]:
        held, notes = record.held, record.notes
        if held == (SENDING,):  # at the beginning of every stream: no news
            held = self._status[0]
        if (held, notes) == self._status:
            return
        before, self._status = self._status, (held, notes)
        for note in notes:
            if note not in before[1]:
                yield self._line(f"-- {plain(note)}")
        if held != before[0]:
            reasons = "; ".join(map(plain, held))
            yield self._line(f"-- held: {reasons}" if held else "-- no longer held")
        elif before[1] and not notes:
            yield self._line("-- nothing is wrong any more")

    def _stale_lines(self, record: StatusRecord) -> Iterator[str]:
        before, self._stale = self._stale, {one.source for one in record.stale}
        for one in record.stale:
            if one.source not in before:
                yield self._line(f"-- not current: {plain(one.source)}: {plain(one.reason)}")
        for source in sorted(before - self._stale):
            yield self._line(f"-- current again: {plain(source)}")

    def _table_lines(self) -> Iterator[str]:
        wide = self._request.form == "wide"
        rows: list[tuple[str, ...]] = [_WIDE if wide else _TITLES]
        for target in sorted(self._known, key=_sort_key):
            record = self._known[target]
            cells = _decision(record), _cause(record)
            if wide:
                key, kind = str(target.key), str(target.gvr)
                rows.append((kind, key, *cells, record.policy, record.uid, str(record.data)))
            else:
                rows.append((self._name(target), *cells, record.policy[:_SHORT]))
        yield from table(rows)

    def _name(self, target: Target) -> str:
        several = len({known.gvr for known in self._known} | {target.gvr}) > 1
        return plain(f"{target.gvr} {target.key}" if several else str(target.key))

    def _line(self, text: str) -> str:
        return f"{self._clock()} {text}"


def _sort_key(target: Target) -> tuple[object, ...]:
    return (target.gvr, target.key)


def _decision(record: DecisionRecord | None) -> str:
    if record is None:
        return "-"
    current = "-" if record.decision is None else decision_text(record.decision)
    if record.failure is not None:
        return f"failed: {plain(record.failure)} (stands: {current})"
    return current


def decision_text(decision: Decision) -> str:
    """Return the content of a decision in one line."""
    if decision.errors:
        return "refused: " + "; ".join(map(plain, decision.errors))
    annotations = dict(decision.annotations)
    clusters = _clusters(annotations.pop(PLACEMENT, None))
    pairs = [*annotations.items(), *decision.labels.items()]
    parts = [] if clusters is None else [clusters]
    parts += [f"{key.rpartition('/')[2]}={cut(plain(value), _LONGEST)}" for key, value in pairs]
    return " ".join(parts) or "nothing"


def _clusters(preferences: str | None) -> str | None:
    """Return the clusters of a placement, with weights if they differ."""
    if preferences is None:
        return None
    try:
        clusters = msgspec.json.decode(preferences)["clusters"]
        weights = {name: entry.get("weight", 1) for name, entry in clusters.items()}
    except (*NO_JSON, KeyError, TypeError, AttributeError):
        return cut(plain(preferences), _LONGEST)
    alike = len(set(map(str, weights.values()))) <= 1
    names = [name if alike else f"{name}={weight}" for name, weight in sorted(weights.items())]
    return plain(",".join(names)) or "no cluster"


def _cause_and_policy(record: DecisionRecord) -> str:
    return f"{_cause(record)}; policy {record.policy[:_SHORT] or 'none'}"


def _cause(record: DecisionRecord) -> str:
    if (source := record.source) is None:
        return plain(record.cause)
    more = f" and {source.count - 1} more" if source.count > 1 else ""
    return plain(f"{record.cause}: {source.collection} {source.object}") + more
