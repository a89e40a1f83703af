"""What the ledger says, as values: an entry, its place in the chain, and texts by their digest.

Keeps true: the hash of a row covers every column of it and the hash of the row before it, so that
no column of any row can differ unnoticed; equal texts have one digest and are stored once. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import msgspec

Kind = Literal[
    "start",  # a replicator began to record
    "decision",  # what is decided of an object from here on
    "gone",  # the object is no more
    "policy",  # other policies are in force: `policy`, whose modules are in the text `new`
    "held",  # a write that is wanted and waits
    "intent",  # a write that is about to be sent
    "outcome",  # what became of it
    "gap",  # what happened here was not recorded
    "summary",  # what happened in a namespace that has more than its share, in `note`
    "checkpoint",  # the rows up to one in `note` were taken away, and with which hash
]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
START: Final = bytes(32)  # the hash before the first row

_sorted = msgspec.json.Encoder(order="sorted")


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that happened; every field is text, "" where it has none.

    `old`, `new`, `data` and `input` are digests of texts: what was decided (or had), what is
    decided (or written), the replicated data as far as decisions read it (a state of `bases`) and
    the object that was decided on, as it was asked about.
    `policy` is the digest of the policies as the decision stream has it. `status` is `decided`,
    `refused`, `failed` or `undefined` of a decision, what became of a write or what holds it.
    `approved` says who or what let a write through, `ref` ties an outcome to its intent, and is
    recorded once of each kind; `note` is for people, or JSON where a kind says so.
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
    """An entry in the chain: `time` is Unix microseconds and never less than the row before it."""

    seq: int
    time: int
    entry: Entry
    hash: bytes

    @property
    def seconds(self) -> float:
        """When it was recorded, in Unix seconds."""
        return self.time / 1e6


class Text(msgspec.Struct, frozen=True, gc=False):
    """A text, named by its digest, with the texts that it names."""

    digest: str
    body: bytes
    parts: tuple[Text, ...] = ()


class GapNote(msgspec.Struct, frozen=True):
    """The note of a gap or a summary: how many entries, from when to when (Unix seconds), why."""

    entries: int
    begin: float
    end: float
    reason: str


class Checkpoint(msgspec.Struct, frozen=True):
    """The note of a checkpoint: the chain goes on after the row `upto`, which had this hash."""

    upto: int
    hash: str


COLUMNS: Final = Entry.__struct_fields__
ROW: Final = ", ".join(("seq", "time", *COLUMNS, "hash"))  # in the order of `row_of`
STANDING: Final = "standing since "  # and Unix seconds: the cause of what is said again


def standing_since(entry: Entry) -> float | None:
    """Return since when (Unix seconds) what is said again stands, None: it is said for once."""
    if not entry.cause.startswith(STANDING):
        return None
    try:
        return float(entry.cause.removeprefix(STANDING))
    except ValueError:  # nobody but a forger writes that
        return None


def modules_of(body: bytes) -> list[str]:
    """Return the digests of the modules that the list of a policy names, none where it is none."""
    try:
        return [*msgspec.json.decode(body, type=dict[str, str]).values()]
    except (msgspec.DecodeError, UnicodeError):
        return []


def link(before: bytes, seq: int, time: int, entry: Entry) -> bytes:
    """Return the hash of a row that comes after one with the hash `before`."""
    content = msgspec.json.encode((seq, time, *msgspec.structs.astuple(entry)))
    return hashlib.sha256(before + content).digest()


def text(body: bytes) -> Text:
    """Return a text with its digest, 64 hexadecimal digits of SHA-256."""
    return Text(hashlib.sha256(body).hexdigest(), body)


def text_of(value: Any) -> Text:  # noqa: ANN401 - any JSON
    """Return a value as JSON text with sorted keys."""
    return text(_sorted.encode(value))


def row_of(values: Sequence[object]) -> Row:
    """Return a row as the file has it. Raises msgspec.ValidationError."""
    seq, time, *columns, found = values
    entry = msgspec.convert(dict(zip(COLUMNS, columns, strict=True)), Entry)
    return Row(
        msgspec.convert(seq, int), msgspec.convert(time, int), entry, msgspec.convert(found, bytes)
    )
