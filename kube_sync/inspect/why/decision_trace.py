"""Finds the trace in which a decision was made and carried out, in the decision stream.

Invariant: a trace is told only of the decision that the answer is about; while the replicator has
decided otherwise, there is none. A stream that cannot be read takes nothing else from the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import aclosing
from typing import Final

from kube_sync.config import Decisions
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.records import BookmarkRecord, DecisionRecord
from kube_sync.decisions.streamclient import stream_client
from kube_sync.errors import Retriable
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.tracing import trace_id

_SECONDS: Final = 10.0  # for the whole stream

Name = tuple[GroupVersionResource, ObjectKey]


async def read_records(stream: Decisions, names: Collection[Name]) -> Mapping[Name, DecisionRecord]:
    """Return the records of these objects, without those that have none. Raises SyncError."""

    def ended(reason: str | None) -> None:
        if reason is not None:
            raise Retriable(reason)

    found: dict[Name, DecisionRecord] = {}
    try:
        async with (
            asyncio.timeout(_SECONDS),
            stream_client(stream, ended) as client,
            aclosing(client.records()) as records,
        ):
            async for record in records:
                if isinstance(record, DecisionRecord):
                    name = record.object.gvr, record.object.key
                    found |= {name: record} if name in names else {}
                elif isinstance(record, BookmarkRecord):
                    break
    except TimeoutError as error:
        msg = f"decision stream: not read within {_SECONDS:.0f} s"
        raise Retriable(msg) from error
    return found


def trace_of(record: DecisionRecord, outcome: Outcome) -> str:
    """Return the id of the trace of this outcome, "" if it has none or is not the recorded one."""
    if (record.uid, _said(record)) != (outcome.uid, _said(outcome)):
        return ""
    return trace_id(record.trace or "")


def _said(of: DecisionRecord | Outcome) -> tuple[object, ...]:
    """Return what is carried out."""
    if of.failure is not None or of.decision is None:
        return (of.failure,)
    return of.decision.annotations, of.decision.labels, of.decision.errors
