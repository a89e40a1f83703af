"""The head of the ledger, noted where it takes another right to write: on the replicator's Lease.

Keeps true: a head is replaced on the Lease only by a ledger that has its row, with its hash. So a
chain that was cut off or made anew is found within a minute, or as a replicator starts, by the
replicator itself: it keeps the head that its ledger does not have beside its own, and leaves a gap.
`kube-sync verify` compares with both, and with the heads in the Events about canaries.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import structlog

from kube_sync.errors import NO_JSON, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.events import EVENTS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.ledger.entries import GapNote
from kube_sync.ledger.entry_queue import Said, gap
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.store import Store
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

HALTED: Final = "CanaryHalted"  # the reason of the Events that have a head
_HEAD = "kube-sync.io/ledger-head"
_LOST = "kube-sync.io/lost-ledger-head"
_EVERY_SECONDS = 60.0
_ASK_SECONDS = 5.0
_SHOWN = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


class Head(NamedTuple):
    """The number of a row and its hash, as they were noted somewhere."""

    row: int
    hash: str  # hexadecimal
    where: str = ""  # it was noted, "" by whoever asks

    def __str__(self) -> str:
        """Return it as `verify` prints it."""
        return f"{self.row}:{self.hash}"


class Compared(NamedTuple):
    """The heads that were noted elsewhere, and what could not be asked for them."""

    heads: tuple[Head, ...]
    unknown: tuple[str, ...] = ()


def head_of(text: str, where: str = "") -> Head | None:
    """Return a head as `verify` prints it, None where it is none."""
    found = _SHOWN.fullmatch(text)
    return None if found is None else Head(int(found[1]), found[2], where)


class HeadNotes:
    """The annotations of the Lease that this ledger keeps there."""

    def __init__(
        self, journal: Journal, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`name` tells this ledger from those of other replicators that take the same Lease."""
        self._journal = journal
        self._head, self._lost = _names(name)
        self._clock = clock
        self._due = clock()
        # What was on the Lease when it was compared, and what is to be there since.
        self._noted: tuple[str | None, dict[str, str]] = (None, {})
        self._reported = ""

    @property
    def shown(self) -> str:
        """The last row that is in the file, as an Event has it, "" where it is not known yet."""
        head = self._journal.head
        return "" if head is None else f"{self._head}={Head(*head)}"

    def notes(self, seen: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is to be on the Lease, whose annotations are now `seen`."""
        before, found = seen.get(self._head, ""), self._noted
        if (now := self._clock()) >= self._due:
            self._due = now + _EVERY_SECONDS
            lost = seen.get(self._lost, "")
            self._journal.say_late(partial(self._compare, before, lost))
        # Another one was noted since: it is compared first.
        return found[1] if before in (found[0], found[1].get(self._head)) else {}

    def _compare(self, noted: str, lost: str, store: Store) -> Sequence[Said]:
        """Compare what is on the Lease with the ledger, in the thread that writes it."""
        if store.head is None:
            return ()
        notes = {self._head: str(Head(*store.head))}
        if not noted or store.has(head_of(noted)):
            self._noted = noted, notes
            return ()
        # The first one that was lost is kept until a person takes it away.
        self._noted = noted, {**notes, self._lost: lost or noted}
        reason = f"row {noted}, noted on the Lease, is not in the ledger: it was cut or replaced"
        if self._reported != noted:
            log.error("ledger_head_differs", noted=noted, head=notes[self._head])
            metrics.ledger_gaps.inc()
        self._reported = noted
        return gap(GapNote(0, 0, time.time(), reason))(store)


async def noted_heads(
    kube: KubeClient, lease: tuple[str, str], namespaces: Iterable[str], name: str
) -> Compared:
    """Return the heads on a Lease (namespace, name), and in Events in the namespaces of policies.

    An API server that does not answer is no error: it is in `unknown`.
    """
    heads: list[Head] = []
    unknown: list[str] = []
    asked = [_on_lease(kube, *lease, name), *(_in_events(kube, one, name) for one in namespaces)]
    for asking in asked:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                heads += await asking
        except (SyncError, TimeoutError, _NoHead) as error:
            unknown.append(str(error) or "no answer in time")
    return Compared(tuple(heads), tuple(unknown))


class _NoHead(Exception):
    pass


class _Event(msgspec.Struct):
    metadata: ObjectMeta
    note: str = ""


class _Events(msgspec.Struct):
    items: list[_Event]


async def _on_lease(kube: KubeClient, namespace: str, lease: str, name: str) -> list[Head]:
    where = f"Lease {namespace}/{lease}"
    body = await kube.request("GET", LEASES.path(namespace, lease))
    try:
        annotations = object_meta(body).annotations or {}
    except NO_JSON as error:
        msg = f"{where}: what answers is no Lease: {error}"
        raise _NoHead(msg) from error
    # What is no head there cannot be in the ledger either.
    found = [
        head_of(annotations[key], f"{where}, {key}") or Head(0, "", f"{where}, {key}")
        for key in _names(name)
        if key in annotations
    ]
    if not found:
        msg = f"{where} has no annotation {_names(name)[0]}"
        raise _NoHead(msg)
    return found


async def _in_events(kube: KubeClient, namespace: str, name: str) -> list[Head]:
    body = await kube.request(
        "GET", EVENTS.path(namespace), params={"fieldSelector": f"reason={HALTED}"}
    )
    try:
        events = msgspec.json.decode(body, type=_Events).items
    except NO_JSON as error:
        msg = f"Events in {namespace}: what answers are no Events: {error}"
        raise _NoHead(msg) from error
    noted = re.compile(rf"{re.escape(_names(name)[0])}=({_SHOWN.pattern})")
    return [
        Head(int(row), digest, f"Event {namespace}/{event.metadata.name}")
        for event in events
        for _, row, digest in noted.findall(event.note)
    ]


def _names(name: str) -> tuple[str, str]:
    """Return the annotations of the head, and of one that was lost."""
    suffix = f"-{name}" if name else ""
    return _HEAD + suffix, _LOST + suffix
