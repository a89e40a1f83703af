"""Serves what runs here, `GET /v1/version`: this program, its OPA, and the policies in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from aiohttp import web

from kube_sync import __version__
from kube_sync.errors import SyncError

PATH: Final = "/v1/version"


class VersionedOpa(Protocol):
    """An OPA that tells its version."""

    async def version(self) -> str | None:
        """Return it, None if OPA does not say. Raises SyncError."""


class Versions(msgspec.Struct, frozen=True):
    """The answer. `opa` is null where OPA does not say, and `opa_error` may tell why."""

    version: str
    policies: str  # the digest of the modules in force, as decisions have it
    opa: str | None = None
    opa_error: str | None = None
    v: int = 1


def version_route(opa: VersionedOpa, revision: Callable[[], str]) -> web.RouteDef:
    """Return the route, which needs the token of the decision stream."""

    async def get(_request: web.Request) -> web.Response:
        found, reason = None, None
        try:
            found = await opa.version()
        except SyncError as error:
            reason = str(error)
        answer = Versions(__version__, revision(), found, reason)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    return web.get(PATH, get, allow_head=False)
