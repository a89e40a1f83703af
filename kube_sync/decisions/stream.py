"""The decision stream over HTTP: `GET /v1/decisions/<path>?watch`, one response that stays open.

Newline-delimited JSON, so that `curl -N` is a usable client. Without `watch` the response ends
after the current decisions. `since=<instance>:<seq>`, from a bookmark, skips what was sent before
it; 410 if changes since then are not known any more. With `Prefer: grouped` (RFC 7240), objects in
a row with one decision share a line. With a token file, every request must carry that bearer token.
`GET /v1/decisions` is an older form that always watches. docs/decisions.md is the contract.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Handler

from kube_sync.config import Placement
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.subscription import Subscription
from kube_sync.errors import Expired
from kube_sync.runtime.foreignpages import foreign
from kube_sync.runtime.tokenfile import TokenFile

PATH = "/v1/decisions"
GROUPED = {"Prefer": "grouped"}  # request header: send one record for objects that agree
RESUMED = "Kube-Sync-Resumed"  # response header: the bookmark after which the stream begins
KEEPALIVE_SECONDS = 10.0  # a keep-alive is sent after this long

_CHUNK = 500  # records in one write
_HEADERS = {
    "Content-Type": "application/x-ndjson",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_TRUE, _FALSE = ("", "1", "true"), ("0", "false")
_POSITION = re.compile(r"([^:\s]+):([0-9]{1,18})")
_HUB = web.AppKey("hub", DecisionHub)
# Returns when all decisions so far are recorded, or cannot be.
WaitUntilRecorded = Callable[[], Awaitable[object]]
_WAIT_UNTIL_RECORDED = web.AppKey[WaitUntilRecorded]("recorded")
_TOKEN = web.AppKey("token", TokenFile)
_DECISION_PATH = web.AppKey("known", str)  # the path of the decision
_TOKENLESS = web.AppKey("open", frozenset[str])  # paths that need no token


async def _record_nothing() -> None:
    """Record nothing."""


def stream_app(
    hub: DecisionHub,
    token: TokenFile,
    others: Iterable[web.RouteDef] = (),
    path: str = Placement().path,
    tokenless: Iterable[web.RouteDef] = (),
    wait_until_recorded: WaitUntilRecorded = _record_nothing,
) -> web.Application:
    """Build the application that serves `hub`, and `others` with the same token.

    `path` is that of the hub's decision, as in `placement.path`; `tokenless` routes contain no
    data, and need no token. Nothing is sent before `wait_until_recorded` returns.
    """
    app = protected_app(token, others, tokenless)
    app[_HUB] = hub
    app[_WAIT_UNTIL_RECORDED] = wait_until_recorded
    app[_DECISION_PATH] = path
    app.router.add_get(PATH, _watch_all, allow_head=False)
    app.router.add_get(PATH + "/{path:.*}", _decisions, allow_head=False)
    return app


def protected_app(
    token: TokenFile, routes: Iterable[web.RouteDef], tokenless: Iterable[web.RouteDef] = ()
) -> web.Application:
    """Build an application whose `routes` require the token, and which no foreign page may use."""
    tokenless = tuple(tokenless)
    app = web.Application(middlewares=[_authenticated])
    app[_TOKEN] = token
    app[_TOKENLESS] = frozenset(route.path for route in tokenless)
    app.router.add_routes([*routes, *tokenless])
    return app


@web.middleware
async def _authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    token = request.app[_TOKEN]
    if (reason := foreign(request.headers, open_to_all=not token.required)) is not None:
        raise web.HTTPForbidden(text=f"{reason}\n")
    resource = request.match_info.route.resource
    if resource is not None and resource.canonical in request.app[_TOKENLESS]:
        return await handler(request)
    if not token.accepts(request.headers.get("Authorization", "")):
        raise web.HTTPUnauthorized(
            text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"}
        )
    return await handler(request)


async def _watch_all(request: web.Request) -> web.StreamResponse:
    return await _watch(request)


async def _decisions(request: web.Request) -> web.StreamResponse:
    path = request.app[_DECISION_PATH]
    if request.match_info["path"] != path:
        raise web.HTTPNotFound(text=f"no decisions are made there; known: {PATH}/{path}\n")
    watch = request.query.get("watch", "false")
    if watch in _TRUE:
        return await _watch(request)
    if watch not in _FALSE:
        raise web.HTTPBadRequest(text="watch: say ?watch, or watch=true, or watch=false\n")
    since = _parse_since(request)
    try:
        reader = request.app[_HUB].open_reader(since)
    except Expired as error:
        raise _gone(error) from error
    response = await _start_response(request, since)
    try:
        for lines in reader.snapshot(_CHUNK, grouped=_prefers_groups(request)):
            await request.app[_WAIT_UNTIL_RECORDED]()
            await response.write(lines)
    except ConnectionResetError:
        pass  # the reader closed the connection
    return response


async def _watch(request: web.Request) -> web.StreamResponse:
    since = _parse_since(request)
    try:
        with request.app[_HUB].subscribe(since) as subscription:
            response = await _start_response(request, since)
            grouped, recorded = _prefers_groups(request), request.app[_WAIT_UNTIL_RECORDED]
            return await _follow(subscription, response, recorded, grouped=grouped)
    except Expired as error:
        raise _gone(error) from error


async def _follow(
    subscription: Subscription,
    response: web.StreamResponse,
    wait_until_recorded: WaitUntilRecorded,
    *,
    grouped: bool,
) -> web.StreamResponse:
    while True:
        try:
            lines = await subscription.read_lines(_CHUNK, KEEPALIVE_SECONDS, grouped=grouped)
        except Expired:
            return response  # too far behind: with its bookmark the client gets 410
        try:
            await wait_until_recorded()
            # Waits while the reader is slow; changes meanwhile are coalesced in the hub.
            await response.write(lines)
        except ConnectionResetError:
            return response  # the reader closed the connection


async def _start_response(
    request: web.Request, since: tuple[str, int] | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers=_HEADERS)
    if since is not None:
        response.headers[RESUMED] = f"{since[0]}:{since[1]}"
    await response.prepare(request)
    return response


def _prefers_groups(request: web.Request) -> bool:
    wanted = GROUPED["Prefer"]
    return any(one.strip() == wanted for one in request.headers.get("Prefer", "").split(","))


def _parse_since(request: web.Request) -> tuple[str, int] | None:
    text = request.query.get("since")
    if text is None:
        return None
    if (found := _POSITION.fullmatch(text)) is None:
        raise web.HTTPBadRequest(text="since: say <instance>:<seq>, as the last bookmark has it\n")
    return found[1], int(found[2])


def _gone(error: Expired) -> web.HTTPGone:
    return web.HTTPGone(text=f"{error}\n")
