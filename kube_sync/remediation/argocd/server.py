"""HTTP endpoint of Argo CD's plugin generator: `POST /api/v1/getparams.execute`.

The request is `{"applicationSetName": …, "input": {"parameters": {…}}}` with a bearer token, the
answer `{"output": {"parameters": [{…}, …]}}` (Argo CD, "Plugin Generator"). Every other answer has
an error status and `{"message": …}`, which the controller shows in the status of the
ApplicationSet: it never has an empty list instead of an error.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog
from aiohttp import web

from kube_sync.errors import NO_JSON, Misconfigured
from kube_sync.observability import metrics
from kube_sync.remediation.argocd.generator import Generator, Parameters
from kube_sync.remediation.argocd.let_through import Refusal
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PATH: Final = "/api/v1/getparams.execute"
# The controller itself waits 30 s, and asks for each ApplicationSet again and again.
_SECONDS = 10.0
_JSON: Final = "application/json"

_GENERATOR = web.AppKey("generator", Generator)
_TOKEN = web.AppKey("token", TokenFile)


class _Input(msgspec.Struct, frozen=True):
    parameters: Parameters


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    application_set_name: str
    input: _Input


_requests = msgspec.json.Decoder(_Request)


def generator_app(generator: Generator, token: TokenFile) -> web.Application:
    """Build the application."""
    app = web.Application()
    app[_GENERATOR] = generator
    app[_TOKEN] = token
    app.router.add_post(PATH, _execute)
    return app


async def _execute(request: web.Request) -> web.Response:
    try:
        _authenticate(request)
        async with asyncio.timeout(_SECONDS):
            asked = _decode(await request.read())
            found = await request.app[_GENERATOR].answer(
                asked.application_set_name, asked.input.parameters
            )
    except Refusal as refusal:
        return _refused(refusal.status, str(refusal))
    except TimeoutError:
        return _refused(503, f"no answer of the API server within {_SECONDS:.0f} s")
    log.debug("generator_answered", application_set=asked.application_set_name, clusters=len(found))
    return _json(200, {"output": {"parameters": found}})


def _authenticate(request: web.Request) -> None:
    token = request.app[_TOKEN]
    try:
        accepted = token.accepts(request.headers.get("Authorization", ""))
    except Misconfigured as error:
        raise Refusal(503, str(error)) from error
    if not accepted:
        raise Refusal(401, "the bearer token is not that of remediate.argocd.token_file")


def _decode(body: bytes) -> _Request:
    try:
        return _requests.decode(body)
    except NO_JSON as error:
        raise Refusal(400, f"the request cannot be read: {error}") from error


def _refused(status: int, why: str) -> web.Response:
    log.info("generator_refused", status=status, reason=why)
    return _json(status, {"message": why})


def _json(status: int, document: object) -> web.Response:
    metrics.generator_answers.labels(str(status)).inc()
    return web.Response(status=status, body=msgspec.json.encode(document), content_type=_JSON)
