"""Anchors the ledger's head where another right is needed to write: on the replicator's Lease.

Invariant: a head on the Lease is replaced only by a ledger that has its row, with its hash. So the
replicator itself detects a truncated or recreated chain, within a minute or at its start: it keeps
the missing head on the Lease beside its own, and records a gap.
`kube-sync verify` compares with both, and with the heads in the Events about canaries.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from kube_sync.errors import SyncError, json_errors_as
from kube_sync.kube.client import KubeClient
from kube_sync.kube.events import EVENTS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.ledger.entries import HALTED, GapNote
from kube_sync.ledger.entry_queue import EntryWithTexts, gap
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.store import Store
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_HEAD = "kube-sync.io/ledger-head"
_LOST = "kube-sync.io/lost-ledger-head"
_EVERY_SECONDS = 60.0
_QUERY_SECONDS = 5.0
_SHOWN = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


class Head(NamedTuple):
    """The number of a row and its hash, as noted outside of the ledger."""

    row: int
    hash: str  # hexadecimal
    where: str = ""  # the place of the note, "" for a head from the command line

    def __str__(self) -> str:
        """Format as `verify` prints it."""
        return f"{self.row}:{self.hash}"


class Compared(NamedTuple):
    """The heads that were noted elsewhere, and the places that could not be read."""

    heads: tuple[Head, ...]
    unknown: tuple[str, ...] = ()


def head_of(text: str, where: str = "") -> Head | None:
    """Parse a head as `verify` prints it, None if it is none."""
    found = _SHOWN.fullmatch(text)
    return None if found is None else Head(int(found[1]), found[2], where)


class HeadNotes:
    """The annotations of the Lease with this ledger's heads."""

    def __init__(
        self, journal: Journal, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use `name` to distinguish this ledger from those of other replicators with this Lease."""
        self._journal = journal
        self._head, self._lost = _names(name)
        self._clock = clock
        self._due = clock()
        # The head on the Lease when it was compared, and the annotations to write since.
        self._noted: tuple[str | None, dict[str, str]] = (None, {})
        self._reported = ""

    @property
    def shown(self) -> str:
        """The last row in the file, as written to an Event, "" while unknown."""
        head = self._journal.head
        return "" if head is None else f"{self._head}={Head(*head)}"

    def notes(self, seen: Mapping[str, str]) -> Mapping[str, str]:
        """Return the annotations to write to the Lease, whose annotations are now `seen`."""
        before, found = seen.get(self._head, ""), self._noted
        if (now := self._clock()) >= self._due:
            self._due = now + _EVERY_SECONDS
            lost = seen.get(self._lost, "")
            self._journal.enqueue_source(partial(self._compare, before, lost))
        # The Lease has another head since: it is compared first.
        return found[1] if before in (found[0], found[1].get(self._head)) else {}

    def _compare(self, noted: str, lost: str, store: Store) -> Sequence[EntryWithTexts]:
        """Compare the head on the Lease with the ledger, in the thread of the file."""
        if store.head is None:
            return ()
        notes = {self._head: str(Head(*store.head))}
        if not noted or store.has(head_of(noted)):
            self._noted = noted, notes
            return ()
        # The first lost head stays until a person removes it.
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

    An API server that does not answer is no error: it is listed in `unknown`.
    """
    heads: list[Head] = []
    unknown: list[str] = []
    queries = [_on_lease(kube, *lease, name), *(_in_events(kube, one, name) for one in namespaces)]
    for query in queries:
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                heads += await query
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
    with json_errors_as(_NoHead, f"{where}: what answers is no Lease"):
        annotations = object_meta(body).annotations or {}
    # A note that is no head cannot be in the ledger either.
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
    with json_errors_as(_NoHead, f"Events in {namespace}: what answers are no Events"):
        events = msgspec.json.decode(body, type=_Events).items
    noted = re.compile(rf"{re.escape(_names(name)[0])}=({_SHOWN.pattern})")
    return [
        Head(int(row), digest, f"Event {namespace}/{event.metadata.name}")
        for event in events
        for _, row, digest in noted.findall(event.note)
    ]


def _names(name: str) -> tuple[str, str]:
    """Return the annotation keys of the head, and of a lost head."""
    suffix = f"-{name}" if name else ""
    return _HEAD + suffix, _LOST + suffix
