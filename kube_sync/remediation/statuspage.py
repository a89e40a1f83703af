"""HTTP endpoints of the remediator: its status as JSON, and approval of manual steps.

`GET /v1/remediation/status`, and `POST /v1/remediation/apply` with `{"namespace": …, "name": …}` or
`{"all": true}` (`namespace`: only that one). Both need the token if one is configured, since they
show what runs where, and move it. Requests from foreign web pages are refused as at the decision
stream's port, and `apply` takes only `application/json`, which a page cannot send to another origin
without a CORS preflight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from kube_sync.errors import NO_JSON
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import Wait
from kube_sync.remediation.policy_limits import LimitSource
from kube_sync.remediation.reconciler import Reconciler
from kube_sync.runtime.foreignpages import foreign
from kube_sync.runtime.tokenfile import TokenFile

STATUS: Final = "/v1/remediation/status"
APPLY: Final = "/v1/remediation/apply"
JSON: Final = "application/json"
BODY_SECONDS = 10.0  # until the few bytes of a request are there

_RECONCILER = web.AppKey("reconciler", Reconciler)
_TOKEN = web.AppKey("token", TokenFile)


class Applying(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the objects that wait for approval are meant."""

    name: str | None = None
    namespace: str | None = None
    all: bool = False
    resource: str | None = None  # as the status has it

    def names(self, key: Key) -> bool:
        """Return whether an object is meant."""
        where = self.namespace is None or self.namespace == key[1].namespace
        kind = self.resource in (None, str(key[0]))
        return where and kind and (self.all or key[1].name == self.name)


def status_app(reconciler: Reconciler, token: TokenFile) -> web.Application:
    """Build the application."""
    app = web.Application(middlewares=[_authenticated])
    app[_RECONCILER] = reconciler
    app[_TOKEN] = token
    app.router.add_get(STATUS, _status, allow_head=False)
    app.router.add_post(APPLY, _apply)
    return app


@web.middleware
async def _authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    token, headers = request.app[_TOKEN], request.headers
    open_to_all = not token.asked_for
    reason = foreign(headers, open_to_all=open_to_all, setting="remediate.token_file")
    if reason is not None:
        raise web.HTTPForbidden(text=f"{reason}\n")
    if not token.accepts(headers.get("Authorization", "")):
        raise web.HTTPUnauthorized(
            text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"}
        )
    return await handler(request)


async def _status(request: web.Request) -> web.Response:
    reconciler = request.app[_RECONCILER]
    document = {
        "v": 1,
        "active": reconciler.active,
        "held": list(reconciler.holds),
        "limits": _limits(reconciler.tightened),
        "waiting": [_shown(key, wait) for key, wait in reconciler.waiting],
    }
    return _json(document)


async def _apply(request: web.Request) -> web.Response:
    asked = await _asked(request)
    reconciler = request.app[_RECONCILER]
    if not reconciler.active:
        raise web.HTTPConflict(text="; ".join(reconciler.holds) + "\n")
    keys = reconciler.apply(key for key, _ in reconciler.waiting if asked.names(key))
    return _json({"v": 1, "applied": [str(key[1]) for key in keys]})


async def _asked(request: web.Request) -> Applying:
    if request.content_type != JSON:
        raise web.HTTPUnsupportedMediaType(text=f"the body has to be {JSON}\n")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return msgspec.json.decode(await request.read(), type=Applying)
    except TimeoutError as error:
        msg = f"the body did not arrive within {BODY_SECONDS:.0f} s\n"
        raise web.HTTPRequestTimeout(text=msg) from error
    except NO_JSON as error:
        raise web.HTTPBadRequest(text="the body is not what apply takes\n") from error


def _json(document: Mapping[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), content_type=JSON)


def _limits(tightened: LimitSource) -> dict[str, Any]:
    by = tightened.by
    return {
        "known": by is not None,
        "tightened": by.named() if by else {},
        "not_before": dict(by.not_before) if by else {},
        "trouble": tightened.trouble,
    }


def _shown(key: Key, wait: Wait) -> dict[str, Any]:
    gvr, name = key
    return {
        "resource": str(gvr),
        "namespace": name.namespace,
        "name": name.name,
        "uid": wait.uid,
        "kind": wait.kind,
        "reason": wait.reason,
        "release": wait.release,
        "approve": wait.approve,
        "since": wait.since,
        "until": wait.until,
        "changes": {k: {"is": old, "wanted": new} for k, (old, new) in wait.changes.items()},
    }
