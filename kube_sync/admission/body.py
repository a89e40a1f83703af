"""The body of a request, within its limits of kind, size and time.

Keeps true: no more than the limit of it is ever held, however it is sent; who sends it slowly is
not waited for longer than for an answer; and what is wrong is told by status and text, as a
`web.HTTPException`.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

_KIND = 80  # characters of another content type that are told


async def read_body(request: web.Request, limit: int, seconds: float) -> bytes:
    """Return the JSON of a request, of at most `limit` bytes, arriving within `seconds`.

    `limit` is the application's `client_max_size`. Raises HTTPException, 400, 408, 413 or 415.
    """
    kind = request.headers.get("Content-Type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        said = ascii(kind)[1:-1][:_KIND] or "missing"  # it may be no text
        msg = f"the content type is {said}, not application/json\n"
        raise web.HTTPUnsupportedMediaType(text=msg)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    try:
        if request.content.is_eof():  # all there: a timer would be for nothing
            return await request.read()
        async with asyncio.timeout(seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large(limit) from error
    except TimeoutError as error:
        msg = f"the body did not arrive within {seconds:.1f} s\n"
        raise web.HTTPRequestTimeout(text=msg) from error
    except (web.RequestPayloadError, ConnectionError) as error:
        msg = f"the body cannot be read: {error}\n"
        raise web.HTTPBadRequest(text=msg) from error


def _too_large(limit: int) -> web.HTTPRequestEntityTooLarge:
    msg = f"the body is longer than the {limit} bytes of admission.max_body_bytes\n"
    return web.HTTPRequestEntityTooLarge(limit, text=msg)
