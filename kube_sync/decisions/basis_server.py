"""Serves the basis of decisions over HTTP: `GET /v1/basis?after=<instance>:<revision>`.

The answer is the present basis as JSON, at once if it is another one than the caller knows, else
when it changes or after a moment. The moment is short, so that the next answer confirms it: what a
caller may rely on begins with the time at which it asked (docs/decisions.md).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from kube_sync.decisions.basis import DecisionBasis

PATH: Final = "/v1/basis"
WAIT_SECONDS: Final = 0.25

_KNOWN = re.compile(r"([^:\s]+):([0-9]{1,18})")
_HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


def basis_route(basis: DecisionBasis) -> web.RouteDef:
    """Return the route that serves the basis of a replicator."""
    return web.get(PATH, partial(_answer, basis), allow_head=False)


async def _answer(basis: DecisionBasis, request: web.Request) -> web.Response:
    instance, revision = _after(request)
    found = await basis.after(instance, revision, WAIT_SECONDS)
    return web.Response(body=msgspec.json.encode(found), headers=_HEADERS)


def _after(request: web.Request) -> tuple[str, int]:
    if (text := request.query.get("after")) is None:
        return "", -1
    if (found := _KNOWN.fullmatch(text)) is None:
        raise web.HTTPBadRequest(text="after: expected <instance>:<revision> of the last answer\n")
    return found[1], int(found[2])
