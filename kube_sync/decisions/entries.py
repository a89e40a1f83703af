"""One line of the stream, in two parts that are each encoded once, whoever reads it.

Objects that are decided alike change alike: what is said of them is one Verdict, and its part of
the line is shared by all of them; the other part names the object. Both are made when the first
reader wants them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    VERSION,
    DecisionRecord,
    DeletedRecord,
    Source,
    Target,
    encode,
)

_encoder = msgspec.json.Encoder()


class _Head(msgspec.Struct, frozen=True, tag="decision", tag_field="type"):
    object: Target
    uid: str
    seq: int
    v: Literal[1] = VERSION


class Verdict(msgspec.Struct, frozen=True, weakref=False):
    """What a DecisionRecord says beside the name of its object; the fields are the record's."""

    decision: Decision | None
    old: Decision | None
    failure: str | None
    cause: str
    policy: str
    data: int
    source: Source | None
    last_good: bool


class Told:
    """A Verdict, and its part of the line."""

    __slots__ = ("_tail", "verdict")

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self._tail: bytes | None = None

    @property
    def undefined(self) -> bool:
        """Whether nothing is decided (any more)."""
        return self.verdict.decision is None and self.verdict.failure is None

    def tail(self) -> bytes:
        """Return the end of the line."""
        if self._tail is None:
            self._tail = b"," + _encoder.encode(self.verdict)[1:] + b"\n"
        return self._tail


class Entry:
    """What was last said of one object; `told` is None of one that is gone."""

    __slots__ = ("_head", "ended", "seq", "superseded", "target", "told", "uid")

    def __init__(self, target: Target, uid: str, seq: int, told: Told | None) -> None:
        self.target = target
        self.uid = uid
        self.seq = seq
        self.told = told
        self.ended = told is None or told.undefined  # nothing is kept of it but this
        self.superseded = False
        self._head: bytes | None = None

    @property
    def record(self) -> DecisionRecord | DeletedRecord:
        """The record that readers get."""
        if self.told is None:
            return DeletedRecord(self.target, self.seq)
        said = self.told.verdict
        return DecisionRecord(
            self.target,
            self.uid,
            said.decision,
            self.seq,
            said.cause,
            said.policy,
            said.old,
            said.failure,
            said.data,
            said.source,
            said.last_good,
        )

    def supersede(self) -> None:
        """Take note that something newer was said of the object, or that this is forgotten."""
        self.superseded = True
        self._head = None  # made anew for whoever took it before

    def parts(self) -> tuple[bytes, bytes]:
        """Return the line, in the two parts that are kept."""
        if self._head is None:
            if self.told is None:
                self._head = encode(DeletedRecord(self.target, self.seq))
            else:
                self._head = _encoder.encode(_Head(self.target, self.uid, self.seq))[:-1]
        return self._head, b"" if self.told is None else self.told.tail()
