"""The HTTP route to which the remediator reports its writes, on the decision stream's port.

Invariant: a report answered with 200 is in the file, or will be in a summary (`shares`).
While the file cannot be written the route accepts nothing: the sender keeps its reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from kube_sync.errors import NO_JSON
from kube_sync.ledger.entries import Entry, Text, text_of
from kube_sync.ledger.entry_queue import EntryWithTexts
from kube_sync.ledger.reports import PATH, Report, Reports, Values
from kube_sync.observability import metrics

if TYPE_CHECKING:  # slow, and not needed where nothing is recorded
    from kube_sync.ledger.journal import Journal

_reports = msgspec.json.Decoder(Reports)


def report_routes(journal: Journal | None) -> list[web.RouteDef]:
    """Return the route; without a journal it answers that there is no ledger."""

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            reports = _reports.decode(body).reports
        except NO_JSON as error:
            raise web.HTTPBadRequest(text=f"no reports: {error}\n") from error
        if journal is None:
            return web.Response(status=204)
        if journal.failing is None and not journal.losing:
            accepted = [journal.enqueue(*_entry_of(report)) for report in reports]
            if all(accepted) and await journal.recorded():
                metrics.ledger_gaps.inc(sum(report.kind == "gap" for report in reports))
                return web.Response()
        raise web.HTTPServiceUnavailable(text="the ledger cannot be written now\n")

    return [web.post(PATH, receive)]


def _entry_of(report: Report) -> EntryWithTexts:
    target, texts = report.object, [_values(report.old), _values(report.new)]
    old, new = ("" if one is None else one.digest for one in texts)
    entry = Entry(
        kind=report.kind,
        collection="" if target is None else str(target.gvr),
        namespace="" if target is None else target.namespace,
        name="" if target is None else target.name,
        uid=report.uid,
        old=old,
        new=new,
        status=report.status,
        approved=report.approved,
        ref=report.id,
        note=report.note,
    )
    return entry, [one for one in texts if one is not None]


def _values(values: Values) -> Text | None:
    return text_of(values) if values else None
