"""Serves the page itself: one file, without authentication, since it holds no data.

Invariant: a browser runs and shows only the bytes of this package (a
Content-Security-Policy with hashes), it connects only to this server, and no other page can frame
it. All data that it shows needs the token.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import Final

from aiohttp import web

PATH: Final = "/ui"

# Of all responses, data too (OWASP, HTTP Security Response Headers).
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def page_routes() -> list[web.RouteDef]:
    """Return the routes that need no token."""
    text = files("kube_sync.ui").joinpath("page.html").read_text(encoding="utf-8")
    headers = HEADERS | {"Content-Security-Policy": policy(text), "X-Frame-Options": "DENY"}

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def onwards(_request: web.Request) -> web.Response:
        return web.Response(status=308, headers=HEADERS | {"Location": PATH})

    return [web.get(PATH, page), web.get("/", onwards), web.get(PATH + "/", onwards)]


def policy(text: str) -> str:
    """Return the Content-Security-Policy that allows only the content of the page."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for kind, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(hashes['script'])}",
            f"style-src {' '.join(hashes['style'])}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
