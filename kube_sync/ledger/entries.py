"""The values of the ledger: entries, their rows in the chain, and texts by their digest.

Invariant: the hash of a row covers all its columns and the hash of the row before it, so that
a change of any column of any row is detected; equal texts are stored once, by digest. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import msgspec

Kind = Literal[
    "start",  # a replicator started to record
    "decision",  # the decision on an object changed
    "gone",  # the object was deleted
    "policy",  # other policies are in force: `policy`, whose modules are listed in the text `new`
    "held",  # the remediator holds a write back
    "intent",  # a write is about to be sent
    "outcome",  # the result of a write
    "gap",  # entries are missing here
    "summary",  # changes of a namespace over its share were summarised, in `note`
    "checkpoint",  # the rows up to one in `note` were pruned, with the hash of that row
]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
HALTED: Final = "CanaryHalted"  # the reason of the Events that carry a head of the ledger
START: Final = bytes(32)  # the hash before the first row

_sorted = msgspec.json.Encoder(order="sorted")


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One recorded event; every field is text, "" if it does not apply.

    `old`, `new`, `data` and `input` are digests of texts: the previous decision (or values), the
    new decision (or values), the replicated data as far as decisions read it (a state of `bases`)
    and the object that was the decision's input.
    `policy` is the digest of the policies as in the decision stream. `status` is `decided`,
    `refused`, `failed` or `undefined` for a decision, the result of a write or why it is held.
    `approved` is who or what approved a write; `ref` joins an outcome to its intent, recorded
    once of each kind; `note` is for people, or JSON for some kinds, or the id of the trace of a
    decision that did not fail, if it is recorded.
    """

    kind: Kind
    collection: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    old: str = ""
    new: str = ""
    policy: str = ""
    data: str = ""
    input: str = ""
    cause: str = ""
    status: str = ""
    approved: str = ""
    ref: str = ""
    note: str = ""


class Row(msgspec.Struct, frozen=True):
    """An entry in the chain: `time` is Unix microseconds and never decreases."""

    seq: int
    time: int
    entry: Entry
    hash: bytes

    @property
    def seconds(self) -> float:
        """The time of recording, in Unix seconds."""
        return self.time / 1e6


class Text(msgspec.Struct, frozen=True, gc=False):
    """A text, identified by its digest, with the texts that it refers to."""

    digest: str
    body: bytes
    parts: tuple[Text, ...] = ()


class GapNote(msgspec.Struct, frozen=True):
    """The note of a gap or a summary: the number of entries, their period (Unix seconds), why."""

    entries: int
    begin: float
    end: float
    reason: str


class Checkpoint(msgspec.Struct, frozen=True):
    """The note of a checkpoint: the chain continues after the row `upto`, which had this hash."""

    upto: int
    hash: str


COLUMNS: Final = Entry.__struct_fields__
ROW: Final = ", ".join(("seq", "time", *COLUMNS, "hash"))  # in the order of `row_of`
STANDING: Final = "standing since "  # and Unix seconds: the cause of entries that pruning repeats


def standing_since(entry: Entry) -> float | None:
    """Return since when (Unix seconds) a repeated entry holds, None: the entry is no repetition."""
    if not entry.cause.startswith(STANDING):
        return None
    try:
        return float(entry.cause.removeprefix(STANDING))
    except ValueError:  # only a forger writes that
        return None


def modules_of(body: bytes) -> list[str]:
    """Return the digests of the modules in the list of a policy, none if it is no such list."""
    try:
        return [*msgspec.json.decode(body, type=dict[str, str]).values()]
    except (msgspec.DecodeError, UnicodeError):
        return []


def link(before: bytes, seq: int, time: int, entry: Entry) -> bytes:
    """Return the hash of a row that follows a row with the hash `before`."""
    content = msgspec.json.encode((seq, time, *msgspec.structs.astuple(entry)))
    return hashlib.sha256(before + content).digest()


def text(body: bytes) -> Text:
    """Return a text with its digest, 64 hexadecimal digits of SHA-256."""
    return Text(hashlib.sha256(body).hexdigest(), body)


def text_of(value: Any) -> Text:  # noqa: ANN401 - any JSON
    """Return a value as JSON text with sorted keys."""
    return text(_sorted.encode(value))


def row_of(values: Sequence[object]) -> Row:
    """Parse a row of the file. Raises msgspec.ValidationError."""
    seq, time, *columns, found = values
    entry = msgspec.convert(dict(zip(COLUMNS, columns, strict=True)), Entry)
    return Row(
        msgspec.convert(seq, int), msgspec.convert(time, int), entry, msgspec.convert(found, bytes)
    )
