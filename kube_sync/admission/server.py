"""The webhook: `POST /admit/placement`, one AdmissionReview in, one out.

Answers before the API server stops waiting (it says how long in `?timeout=5s`), since a time-out
of its own reads as a broken webhook while a denial names the reason.
"""

from __future__ import annotations

import re
import time

import structlog
from aiohttp import web

from kube_sync.admission.answer import allow, deny, trespass
from kube_sync.admission.asking import view
from kube_sync.admission.judge import Admitted, Denied, Judge, Undecidable, Verdict
from kube_sync.admission.review import Malformed, Review, parse_review
from kube_sync.decisions.decision import Decision
from kube_sync.observability import metrics
from kube_sync.settings import Admission

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PATH = "/admit/placement"

_MAX_BODY = 8 << 20  # bytes; etcd's own limit for an object is 1.5 MiB, a review holds it twice
_DEFAULT_SECONDS = 10.0  # the API server's own default
_MARGIN = 0.8  # of the time that the API server gives
_JUDGE = web.AppKey("judge", Judge)
_SETTINGS = web.AppKey("settings", Admission)


def webhook_app(judge: Judge, settings: Admission | None = None) -> web.Application:
    """Build the application that answers for `judge`."""
    app = web.Application(client_max_size=_MAX_BODY)
    app[_JUDGE] = judge
    app[_SETTINGS] = settings or Admission()
    app.router.add_post(PATH, _admit)
    return app


async def _admit(request: web.Request) -> web.Response:
    started = time.perf_counter()
    try:
        review = parse_review(await request.read())
    except Malformed as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    if bytes(review.object) == b"null":  # a DELETE: there is nothing to place
        return _json(allow(review, Decision()))
    seconds = _seconds(request.query.get("timeout", "")) * _MARGIN
    settings = request.app[_SETTINGS]
    seen = view(review, settings.remediator)
    verdict = await request.app[_JUDGE].verdict(seen, seconds)
    outcome, body = _answer(review, verdict, settings)
    took = time.perf_counter() - started
    metrics.admission_seconds.labels(outcome).observe(took)
    log.info("admission", uid=review.uid, operation=review.operation, outcome=outcome, took=took)
    return _json(body)


def _answer(review: Review, verdict: Verdict, settings: Admission) -> tuple[str, bytes]:
    match verdict:
        case Admitted(decision):
            refusal = trespass(review, decision, settings.remediator)
            if refusal is not None and settings.owned == "deny":
                return "denied", deny(review, refusal)
            return "admitted", allow(review, decision, settings.remediator)
        case Denied(reasons):
            return "denied", deny(review, "; ".join(reasons))
        case Undecidable(reason):
            log.warning("undecidable", uid=review.uid, reason=reason)
            reason = f"there is a placement policy, but no decision of it: {reason}"
            return "undecidable", deny(review, reason, 503)


def _seconds(text: str) -> float:
    """Read the API server's `timeout` parameter (`5s`, `1m30s`, `500ms`)."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m)", text)
    total = sum(float(number) * units[unit] for number, unit in parts)
    return total or _DEFAULT_SECONDS


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
