"""The webhook: `POST /admit/placement`, one AdmissionReview in, one out.

Keeps true: every request is answered before the API server stops waiting, with a status and a text
that say what is wrong where it is no review; nothing of an object but its name gets into the log.
Deletions, connections and subresources are admitted as they are, all else is decided on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from aiohttp import web

from kube_sync.admission.answer import allow, deny, trespass
from kube_sync.admission.body import read_body
from kube_sync.admission.callers import is_known
from kube_sync.admission.deadline import seconds_to_answer
from kube_sync.admission.judge import Admitted, Denied, Undecidable, Verdict
from kube_sync.admission.review import Malformed, Review, parse_review
from kube_sync.decisions.decision import Decision
from kube_sync.observability import metrics
from kube_sync.runtime.draining import Drain, undrained
from kube_sync.settings import Admission

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PATH = "/admit/placement"

_NOTHING_TO_PLACE = frozenset(("DELETE", "CONNECT"))
# Looked up once: with labels it costs as much as the observation itself.
_SECONDS = {
    outcome: metrics.admission_seconds.labels(outcome)
    for outcome in ("admitted", "denied", "undecidable")
}
_MOST_TOLD = 300  # characters of what is wrong with a review
_JSON = {"Content-Type": "application/json"}


class Judge(Protocol):
    """Whoever decides on reviews."""

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds; never raises."""
        ...


Told = Callable[[Review, str, str], None]  # a refusal: of what, its outcome, the reason


def nobody(_review: Review, _outcome: str, _reason: str) -> None:
    """Tell nobody."""


def webhook_app(
    judge: Judge,
    settings: Admission | None = None,
    drain: Drain | None = None,
    denied: Told = nobody,
) -> web.Application:
    """Build the application that answers for `judge`; with a `drain`, until that has ended it.

    Each refusal is told to `denied`, which may not wait.
    """
    settings = settings or Admission()
    app = web.Application(client_max_size=settings.max_body_bytes)
    app.router.add_post(PATH, _Webhook(judge, settings, drain or undrained(), denied).answer)
    return app


class _Webhook:
    def __init__(self, judge: Judge, settings: Admission, drain: Drain, denied: Told) -> None:
        self._judge = judge
        self._denied = denied
        self._settings = settings
        self._names = frozenset(settings.client_names)
        self._drain = drain

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request; while the server ends, have its client connect anew."""
        self._drain.began()
        try:
            response = await self._answer(request)
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

    async def _answer(self, request: web.Request) -> web.Response:
        started = time.perf_counter()
        self._check_caller(request)
        seconds = seconds_to_answer(request.rel_url.raw_query_string)
        body = await read_body(request, self._settings.max_body_bytes, seconds)
        try:
            review = parse_review(body)
        except Malformed as error:
            # It may quote what was sent.
            raise web.HTTPBadRequest(text=f"{str(error)[:_MOST_TOLD]}\n") from error
        if review.operation in _NOTHING_TO_PLACE or review.subresource:
            return _json(allow(review, Decision()))
        waited = time.perf_counter() - started
        verdict = await self._judge.verdict(review, max(seconds - waited, 0.0))
        outcome = _outcome(review, verdict, self._settings)
        if outcome.refusal is not None:
            self._denied(review, outcome.name, outcome.refusal)
        _record(review, verdict, outcome, time.perf_counter() - started)
        return _json(outcome.body)

    def _check_caller(self, request: web.Request) -> None:
        if not self._names:
            return
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        if not is_known(certificate, self._names):
            msg = "the client's certificate has none of the names in admission.client_names\n"
            raise web.HTTPForbidden(text=msg)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a review, and the AdmissionReview that says so."""

    name: str
    body: bytes
    refusal: str | None = None  # what whoever is refused reads
    told: Mapping[str, str] = field(default_factory=dict)  # in the log, beside the name


def _outcome(review: Review, verdict: Verdict, settings: Admission) -> _Outcome:
    match verdict:
        case Admitted(decision):
            refusal = trespass(review, decision, settings.remediator)
            if refusal is None or settings.owned == "restore":
                return _Outcome("admitted", allow(review, decision, settings.remediator))
            return _Outcome("denied", deny(review, refusal), refusal, {"reason": refusal})
        case Denied(reasons, warnings=warnings):
            reason = "; ".join(reasons)
            body = deny(review, reason, warnings=warnings)
            return _Outcome("denied", body, reason, {"reason": reason})
        case Undecidable(reason, why):
            told = {"reason": reason, "why": why}
            reason = f"there is a placement policy, but no decision of it: {reason}"
            return _Outcome("undecidable", deny(review, reason, 503), reason, told)


def _record(review: Review, verdict: Verdict, outcome: _Outcome, seconds: float) -> None:
    _SECONDS[outcome.name].observe(seconds)
    tell = log.warning if outcome.name == "undecidable" else log.info
    tell(
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
        **outcome.told,
    )


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers=_JSON)
