"""HTTP server of the admission webhook: a POST at one of its routes, one AdmissionReview each way.

Invariant: every request is answered before the API server's time-out, with a status and a text if
it is no review; of an object only its name is logged. What a route passes is admitted unchanged,
all else is decided.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from aiohttp import web
from aiohttp.web_request import BaseRequest

from kube_sync.admission.decision_client import Admitted, Decider, Verdict
from kube_sync.admission.outcome import Outcome
from kube_sync.admission.request import is_known, read_body, seconds_to_answer
from kube_sync.admission.response import admit
from kube_sync.admission.review import Malformed, Review, parse_review
from kube_sync.admission.route import PLACEMENT, OnRefusal, Route, nobody, placement_route
from kube_sync.config import Admission
from kube_sync.decisions.sealing import Seals
from kube_sync.observability import tracing
from kube_sync.observability.logoutput import BATCHED
from kube_sync.runtime.connection import DIRECT, Handler
from kube_sync.runtime.draining import Drain, undrained
from kube_sync.runtime.jsonreply import JsonReply

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PATH = PLACEMENT

_MAX_ERROR = 300  # characters of the error of a review


def webhook_app(
    decider: Decider,
    settings: Admission | None = None,
    drain: Drain | None = None,
    denied: OnRefusal = nobody,
    routes: Sequence[Route] = (),
    seals: Seals | None = None,
) -> web.Application:
    """Build the application that decides with `decider`; a `drain` ends its connections.

    It calls `denied`, which may not wait, with each denial, and serves further `routes` too.
    `seals` verify the records of requested values.
    """
    settings = settings or Admission()
    app = web.Application(client_max_size=settings.max_body_bytes)
    direct: dict[str, Handler] = {
        route.path: _Webhook(route, settings, drain or undrained()).answer
        for route in (placement_route(decider, settings, denied, seals), *routes)
    }
    app[DIRECT] = direct
    for path, answer in direct.items():
        app.router.add_post(path, answer)
    return app


class _Webhook:
    def __init__(self, route: Route, settings: Admission, drain: Drain) -> None:
        self._route = route
        self._settings = settings
        self._names = frozenset(settings.client_names)
        self._drain = drain
        # Bound once: what `get_logger` returns binds for each line.
        self._log = structlog.get_logger(BATCHED).bind(**route.log_fields)

    async def answer(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request; while draining, close the client's connection."""
        self._drain.began()
        try:
            if tracing.recorder is None:
                response = await self._answer(request)
            else:
                response = await self._traced(request)
        except web.HTTPException as error:
            log.info("request_refused", status=error.status, reason=(error.text or "").strip())
            self._last(error)
            raise
        finally:
            self._drain.ended()
        self._last(response)
        return response

    def _last(self, response: web.StreamResponse) -> None:
        if self._drain.draining:
            response.force_close()

    async def _traced(self, request: BaseRequest) -> JsonReply:
        """Answer within a span, which joins the API server's trace if it has one."""
        causes = (request.headers.get("traceparent", ""),)
        about = {"url.path": self._route.path}
        with tracing.span("admission review", about, causes=causes, kind="server"):
            return await self._answer(request)

    async def _answer(self, request: BaseRequest) -> JsonReply:
        started = time.perf_counter()
        self._check_caller(request)
        seconds = seconds_to_answer(request.rel_url.raw_query_string)
        body = await read_body(request, self._settings.max_body_bytes, seconds)
        route = self._route
        try:
            review = route.preprocess(parse_review(body))
        except Malformed as error:
            # It may quote what was sent.
            raise web.HTTPBadRequest(text=f"{str(error)[:_MAX_ERROR]}\n") from error
        if route.passes(review):
            return JsonReply(admit(review))
        waited = time.perf_counter() - started
        verdict = await route.decider.verdict(review, max(seconds - waited, 0.0))
        outcome = route.read(review, verdict)
        if outcome.refusal is not None:
            route.denied(review, outcome.name, outcome.refusal)
        seconds_taken = time.perf_counter() - started
        route.seconds[outcome.name].observe(seconds_taken, tracing.exemplar())
        self._record(review, verdict, outcome, seconds_taken)
        return JsonReply(outcome.body)

    def _check_caller(self, request: BaseRequest) -> None:
        if not self._names:
            return
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        if not is_known(certificate, self._names):
            msg = "the client's certificate has none of the names in admission.client_names\n"
            raise web.HTTPForbidden(text=msg)

    def _record(self, review: Review, verdict: Verdict, outcome: Outcome, seconds: float) -> None:
        if tracing.recorder is not None:
            tracing.describe(_described(review, verdict, outcome))
        log = self._log
        write_log = log.warning if outcome.name == "undecidable" else log.info
        write_log(
            "admission",
            uid=review.uid,
            operation=review.operation,
            kind=f"{review.kind.api_version} {review.kind.kind}",
            object=f"{review.namespace}/{review.name}",
            dry_run=review.dry_run,
            outcome=outcome.name,
            decision_id=verdict.asked.decision_id,
            policies=verdict.asked.policies,
            seconds=round(seconds, 6),
            **outcome.log_fields,
        )
        if isinstance(verdict, Admitted) and verdict.reasons:  # for operators; not for authors
            log.debug("admission_reasons", uid=review.uid, reasons=verdict.reasons)


def _described(review: Review, verdict: Verdict, outcome: Outcome) -> tracing.Attributes:
    """Return the attributes of a review's span."""
    return {
        "kube_sync.review.uid": review.uid,
        "kube_sync.operation": review.operation,
        "kube_sync.kind": f"{review.kind.api_version} {review.kind.kind}",
        "kube_sync.object": f"{review.namespace}/{review.name}",
        "kube_sync.outcome": outcome.name,
        "kube_sync.decision_id": verdict.asked.decision_id,
        "kube_sync.policies": verdict.asked.policies,
    }
