"""`kube-sync history` and `kube-sync verify`: print the ledger, and check its integrity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from kube_sync.errors import Terminal
from kube_sync.kube.naming import Reference
from kube_sync.ledger.entries import Entry, Row
from kube_sync.ledger.heads import Compared
from kube_sync.ledger.printing import document, line, moment, object_of, state_lines, wide_line
from kube_sync.ledger.reading import Object, Reading, is_called, reading
from kube_sync.ledger.verifying import Verified, verify, verify_ahead
from kube_sync.observability.printing import as_yaml

Say = Callable[[str], None]
Form = Literal["text", "wide", "json", "yaml", "name"]


@dataclass(frozen=True, slots=True)
class Request:
    """What of a ledger to print; times are Unix seconds."""

    file: str
    of: tuple[Reference, ...] = ()  # none: of all objects
    namespace: str | None = None
    since: float = 0.0
    at: float | None = None
    limit: int = 1_000
    form: Form = "text"


def history(request: Request, say: Say, complain: Say) -> None:
    """Print the requested rows by `say`. Raises NotFound, Terminal."""
    with reading(Path(request.file)) as ledger:
        if request.at is not None:
            for of in request.of:
                _at(ledger, ledger.find(of, request.namespace), request, request.at, say)
            return
        rows = _rows(ledger, request)
        for shown in _shown(rows, request, ledger):
            say(shown)
        if len(rows) == request.limit:
            complain(f"the newest {request.limit} only: --limit for more")


def check(file: str, noted: Compared, say: Say, complain: Say, *, required: bool = False) -> bool:
    """Verify a ledger, print the result and return whether it is intact. Raises NotFound, Terminal.

    If `required`, a ledger without a head to compare with fails.
    """
    with reading(Path(file)) as ledger:
        found = verify(ledger.db, noted.heads)
        verify_ahead(ledger.db, Path(f"{file}.ahead"), found)
    for fault in found.faults:
        complain(fault)
    for reason in noted.unknown:
        complain(f"not compared with what may be noted elsewhere: {reason}")
    lacking = required and not noted.heads
    if lacking:
        complain("--require-head: there was no head to compare with")
    if found.faults or lacking:
        return False
    gaps = f", {found.gaps} gaps" if found.gaps else ""
    gaps += _summaries(found) if found.summaries else ""
    say(f"{found.rows} rows, {found.first} to {found.last}{gaps}: each is what was written")
    for head in noted.heads:
        say(f"row {head.row} is the one that was noted{f' ({head.where})' if head.where else ''}")
    if found.ahead:
        say(f"{found.ahead} entries are written ahead of it and in no row yet")
    say(f"head {found.head}")
    return True


def _summaries(found: Verified) -> str:
    return f", {found.summaries} summaries ({found.summarised} records are in no row of their own)"


def _rows(ledger: Reading, request: Request) -> list[Row]:
    kinds = [of[0].kind for of in request.of if of[0].name is None]
    if not request.of or kinds:

        def wanted(entry: Entry) -> bool:
            return request.namespace in (None, entry.namespace) and (
                not kinds or any(is_called(entry.collection, kind) for kind in kinds)
            )

        return ledger.history(None, request.since, request.limit, wanted)
    rows = {
        row.seq: row
        for of in request.of
        for row in ledger.history(ledger.find(of, request.namespace), request.since, request.limit)
    }
    return [rows[number] for number in sorted(rows)[-request.limit :]]


def _shown(rows: Sequence[Row], request: Request, ledger: Reading) -> Iterator[str]:
    if request.form == "name":
        entries = [row.entry for row in rows if row.entry.name]
        yield from dict.fromkeys(_name(object_of(entry), request) for entry in entries)
        return
    for row in rows:
        match request.form:
            case "text":
                yield line(row, ledger.text)
            case "wide":
                yield wide_line(row, ledger.text)
            case _:
                yield _document(document(row, ledger.text), request)


def _name(of: Object, request: Request) -> str:
    return str(of) if request.namespace is None else f"{of.collection}/{of.name}"


def _at(ledger: Reading, of: Object, request: Request, time: float, say: Say) -> None:
    found = ledger.at(of, time)
    row, bounds = found.told(time), ledger.bounds()
    if row is None and bounds is not None and time < bounds[0]:
        msg = f"{moment(time)}: the ledger begins at {moment(bounds[0])}"
        raise Terminal(msg)
    if request.form == "name":
        if row is not None:
            say(_name(of, request))
        return
    if request.form in ("text", "wide"):
        for shown in state_lines(of, time, found, ledger.text):
            say(shown)
        return
    after = None if row is found.after else found.after
    rows = {"row": row, "after": after, "written": found.written}
    said = {name: row and document(row, ledger.text) for name, row in rows.items()}
    gaps = [document(row, ledger.text) for row in found.gaps]
    policy = None if row is None else ledger.modules(row.entry.policy)
    say(_document({"v": 1, **said, "gaps": gaps, "modules": policy}, request))


def _document(value: object, request: Request) -> str:
    found = msgspec.json.encode(value).decode()
    return found if request.form == "json" else f"---\n{as_yaml(found)}"
