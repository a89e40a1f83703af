"""The decision stream over HTTP: `GET /v1/decisions`, one response that stays open.

Newline-delimited JSON, so that `curl -N` is a usable client. With a token file set, every
request must carry that bearer token.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Handler

from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import encode
from kube_sync.runtime.tokenfile import TokenFile

PATH = "/v1/decisions"
SILENCE_SECONDS = 10.0  # at the latest after this long there is a sign of life

_CHUNK = 200  # records in one write
_HUB = web.AppKey("hub", DecisionHub)
_TOKEN = web.AppKey("token", TokenFile)


def stream_app(
    hub: DecisionHub, token: TokenFile, others: Iterable[web.RouteDef] = ()
) -> web.Application:
    """Build the application that serves `hub`, and `others` to who has the same token."""
    app = web.Application(middlewares=[_authenticated])
    app[_HUB] = hub
    app[_TOKEN] = token
    app.router.add_get(PATH, _decisions, allow_head=False)
    app.router.add_routes(others)
    return app


@web.middleware
async def _authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    wanted = request.app[_TOKEN].headers().get("Authorization")
    given = request.headers.get("Authorization", "")
    # As sent: aiohttp decodes bytes that are no text to surrogates.
    sent = given.encode("utf-8", "surrogateescape")
    # Constant time: how much of a guess was right must not show.
    if wanted is not None and not hmac.compare_digest(sent, wanted.encode()):
        raise web.HTTPUnauthorized(
            text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"}
        )
    return await handler(request)


async def _decisions(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    with request.app[_HUB].subscribe() as subscription:
        while True:
            records = await subscription.read(_CHUNK, SILENCE_SECONDS)
            try:
                # Waits while the reader is slow; what comes meanwhile is coalesced in the hub.
                await response.write(b"".join(encode(record) for record in records))
            except ConnectionResetError:
                return response  # the reader is gone
