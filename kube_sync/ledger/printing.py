"""Formats rows of the ledger for people and programs. Pure, but for the texts of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.printing import decision_text
from kube_sync.errors import NO_JSON
from kube_sync.ledger.entries import Entry, Row, standing_since
from kube_sync.ledger.reading import DecisionAt, Object
from kube_sync.observability.printing import plain

Texts = Callable[[str], bytes | None]  # by their digests
_SHORT = 12  # characters of a digest


def line(row: Row, texts: Texts) -> str:
    """Return one row as a line of text."""
    return f"{moment(row.seconds)}  {row.entry.kind:10} {_described(row.entry, texts)}".rstrip()


def wide_line(row: Row, texts: Texts) -> str:
    """Return one row as a line of text, with its number, kind, uid and whole policy digest."""
    entry = row.entry
    known = {"uid": entry.uid, "policy": entry.policy}
    more = [f"row {row.seq}", entry.collection, *(f"{k} {v}" for k, v in known.items() if v)]
    return f"{line(row, texts)}  [{'; '.join(plain(part) for part in more if part)}]"


def object_of(entry: Entry) -> Object:
    """Return the object that an entry is about."""
    return Object(entry.collection, entry.namespace, entry.name)


def document(row: Row, texts: Texts) -> dict[str, Any]:
    """Return one row as JSON values, with the decisions in place of their digests."""
    found = {name: value for name, value in msgspec.structs.asdict(row.entry).items() if value}
    for name in ("old", "new"):
        body = texts(found[name]) if name in found else None
        if body is not None:
            found[name] = msgspec.json.decode(body)
    return {"seq": row.seq, "time": row.seconds, **found, "hash": row.hash.hex()}


def state_lines(of: Object, time: float, found: DecisionAt, texts: Texts) -> Iterator[str]:
    """Yield the state of an object at a time, line by line."""
    where = f"{of.namespace}/{of.name}" if of.namespace else of.name
    yield f"{of.collection} {plain(where)} at {moment(time)}"
    pairs = list(_stood(found, found.told(time), texts))
    pairs += [("unknown", f"a gap before that time: {plain(g.entry.note)}") for g in found.gaps]
    for name, value in pairs:
        yield f"  {name:9} {value}"


def moment(seconds: float) -> str:
    """Format a time, in UTC."""
    found = datetime.fromtimestamp(seconds, UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03}Z"


def _stood(found: DecisionAt, row: Row | None, texts: Texts) -> Iterator[tuple[str, str]]:
    if row is None:
        after = found.after
        # A repeated entry has its own decision as `old`, which was not the one before.
        if after is not None and after.entry.old and standing_since(after.entry) is None:
            until = f"until {moment(after.seconds)}"
            yield "decided", f"{_decision(after.entry.old, texts)} ({until}; by what is not known)"
        else:
            yield "decided", "nothing that the ledger knows of"
    elif row.entry.kind == "gone":
        yield "gone", f"since {moment(row.seconds)}"
    else:
        entry = row.entry
        since = _since(row)
        yield entry.status, f"{_outcome(entry, texts)}, since {since} (row {row.seq})"
        yield "policy", entry.policy or "none"
        yield "because", plain(entry.cause)
        if entry.old and standing_since(entry) is None:
            yield "before", _decision(entry.old, texts)
        yield "uid", entry.uid or "not known"
    if found.written is not None:
        yield (
            "written",
            f"{_described(found.written.entry, texts)} at {moment(found.written.seconds)}",
        )


def _since(row: Row) -> str:
    since = standing_since(row.entry)
    return moment(row.seconds if since is None else since)


def _described(entry: Entry, texts: Texts) -> str:
    where = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
    match entry.kind:
        case "decision":
            why = f"({plain(entry.cause)}; policy {entry.policy[:_SHORT] or 'none'})"
            before = _decision(entry.old, texts) if entry.old else "-"
            return f"{plain(where)}  {before} -> {_outcome(entry, texts)}  {why}"
        case "gone":
            before = f"  {_decision(entry.old, texts)} -> gone" if entry.old else ""
            return plain(where) + before
        case "policy":
            since = standing_since(entry)
            more = "" if since is None else f" (said again; since {moment(since)})"
            return f"{entry.policy}  {entry.note}{more}"
        case "intent" | "outcome" | "held":
            parts = [entry.status, plain(entry.note), _approved(entry)]
            return f"{plain(where)}  " + "; ".join(part for part in parts if part)
        case "summary":
            return f"{plain(entry.namespace)}  {plain(entry.note)}"
        case _:
            return plain(entry.note)


def _approved(entry: Entry) -> str:
    return f"approved: {plain(entry.approved)}" if entry.approved else ""


def _outcome(entry: Entry, texts: Texts) -> str:
    if entry.status == "failed":
        current = _decision(entry.new, texts) if entry.new else "-"
        return f"failed: {plain(entry.note)} (stands: {current})"
    return _decision(entry.new, texts) if entry.new else "-"


def _decision(digest: str, texts: Texts) -> str:
    body = texts(digest)
    if body is None:
        return f"({digest[:_SHORT]}, whose text is not there)"
    try:
        return decision_text(msgspec.json.decode(body, type=Decision))
    except NO_JSON:
        return plain(body[:200].decode("utf-8", "replace"))
