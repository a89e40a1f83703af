"""The command `kube-sync decisions`: print the decision stream, once or as a watch.

The first connection must succeed; after that, a watch survives any failure of the replicator, and
reports it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing

from kube_sync.config import Settings
from kube_sync.decisions.printing import DecisionPrinter, Form, Request
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
from kube_sync.observability.printing import as_yaml

PrintLine = Callable[[str], None]


async def run(
    request: Request, settings: Settings, print_line: PrintLine, print_error: PrintLine
) -> None:
    """Print lines by `print_line`, and errors by `print_error`.

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
            print_error(f"{reason}; trying again")

    async with (
        stream_client(settings.decisions, report) as client,
        aclosing(client.records()) as records,
    ):
        await (_print_table if request.form in ("text", "wide") else _print_records)(
            request, records, print_line, print_error
        )


async def _print_records(
    request: Request,
    records: AsyncIterator[Record | None],
    print_line: PrintLine,
    _print_error: PrintLine,
) -> None:
    async for record in records:
        if record is not None and _is_requested(request, record):
            for line in _record_lines(request.form, request.namespace is not None, record):
                print_line(line)
        if isinstance(record, BookmarkRecord) and not request.watch:
            return


async def _print_table(
    request: Request,
    records: AsyncIterator[Record | None],
    print_line: PrintLine,
    print_error: PrintLine,
) -> None:
    printer = DecisionPrinter(request, lambda: time.strftime("%H:%M:%S"))
    async for record in records:
        was_shown = printer.is_shown
        lines = [*printer.handle(record)]
        # Holds are printed apart from the table.
        _print_lines(
            lines, print_line if was_shown or isinstance(record, BookmarkRecord) else print_error
        )
        if printer.is_shown and not was_shown:
            if printer.is_empty:
                _report_nothing(request, print_error)
            if not request.watch:
                return


def _print_lines(lines: Iterable[str], print_line: PrintLine) -> None:
    for line in lines:
        print_line(line)


def _report_nothing(request: Request, print_error: PrintLine) -> None:
    names = request.names or "any resource"
    names += "" if request.labelled is None else " with these labels"
    scope = "" if request.namespace is None else f" in {request.namespace}"
    if request.names is not None and not request.watch:
        msg = f"nothing is decided of {names}{scope}"
        raise NotFound(msg)
    print_error(f"nothing is decided of {names}{scope}")


def _record_lines(form: Form, in_namespace: bool, record: Record) -> Iterator[str]:  # noqa: FBT001 - one caller
    if form == "name":
        if isinstance(record, DecisionRecord) and (record.decision or record.failure):
            target = record.object
            yield spelt(target.gvr, target.key, in_namespace=in_namespace)
    elif form == "yaml":
        yield f"---\n{as_yaml(encode(record).decode())}"
    else:
        yield encode(record).decode().rstrip("\n")


def _is_requested(request: Request, record: Record) -> bool:
    if isinstance(record, DecisionRecord | DeletedRecord):
        return request.matches(record.object)
    return True
