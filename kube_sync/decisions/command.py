"""The command `kube-sync decisions`: print the decision stream, once or as a watch.

The first connection must succeed; after that, a watch survives any failure of the replicator, and
reports it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing

import msgspec
import yaml

from kube_sync.config import Settings
from kube_sync.decisions.printing import Board, Form, Request
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    encode,
)
from kube_sync.decisions.streamclient import stream_client
from kube_sync.errors import NotFound, Retriable
from kube_sync.kube.naming import spelt

Say = Callable[[str], None]


async def run(request: Request, settings: Settings, say: Say, complain: Say) -> None:
    """Print lines by `say`, and errors by `complain`.

    Raises SyncError if the replicator does not answer, NotFound if it has no decision on the named
    object.
    """
    connected = False

    def report(reason: str | None) -> None:
        nonlocal connected
        if reason is None:
            connected = True
        elif not (request.watch and connected):
            raise Retriable(reason)
        else:
            complain(f"{reason}; trying again")

    async with (
        stream_client(settings.decisions, report) as client,
        aclosing(client.records()) as records,
    ):
        await (_table if request.form in ("text", "wide") else _lines)(
            request, records, say, complain
        )


async def _lines(
    request: Request, records: AsyncIterator[Record | None], say: Say, _complain: Say
) -> None:
    async for record in records:
        if record is not None and _concerns(request, record):
            for line in _printed(request.form, request.namespace is not None, record):
                say(line)
        if isinstance(record, BookmarkRecord) and not request.watch:
            return


async def _table(
    request: Request, records: AsyncIterator[Record | None], say: Say, complain: Say
) -> None:
    board = Board(request, lambda: time.strftime("%H:%M:%S"))
    async for record in records:
        was_shown = board.shown
        lines = [*board.take(record)]
        # Holds are printed apart from the table.
        _print(lines, say if was_shown or isinstance(record, BookmarkRecord) else complain)
        if board.shown and not was_shown:
            if board.empty:
                _nothing(request, complain)
            if not request.watch:
                return


def _print(lines: Iterable[str], say: Say) -> None:
    for line in lines:
        say(line)


def _nothing(request: Request, complain: Say) -> None:
    what = request.names or "any resource"
    what += "" if request.labelled is None else " with these labels"
    where = "" if request.namespace is None else f" in {request.namespace}"
    if request.names is not None and not request.watch:
        msg = f"nothing is decided of {what}{where}"
        raise NotFound(msg)
    complain(f"nothing is decided of {what}{where}")


def _printed(form: Form, in_namespace: bool, record: Record) -> Iterator[str]:  # noqa: FBT001 - one caller
    if form == "name":
        if isinstance(record, DecisionRecord) and (record.decision or record.failure):
            target = record.object
            yield spelt(target.gvr, target.key, in_namespace=in_namespace)
    elif form == "yaml":
        yield "---\n" + yaml.safe_dump(msgspec.json.decode(encode(record)), sort_keys=False).rstrip(
            "\n"
        )
    else:
        yield encode(record).decode().rstrip("\n")


def _concerns(request: Request, record: Record) -> bool:
    if isinstance(record, DecisionRecord | DeletedRecord):
        return request.wants(record.object)
    return True
