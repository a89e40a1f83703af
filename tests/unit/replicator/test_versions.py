from __future__ import annotations

from typing import Any

from aiohttp import ClientSession, web

from kube_sync import __version__
from kube_sync.errors import Retriable
from kube_sync.replicator.versions import PATH, version_route
from kube_sync.runtime.httpserver import serving
from tools.servers.running import free_port


class Opa:
    def __init__(self, found: str | Exception | None) -> None:
        self.found = found

    async def version(self) -> str | None:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def asked(found: str | Exception | None) -> Any:
    app, port = web.Application(), free_port()
    app.router.add_routes([version_route(Opa(found), lambda: "ab12")])
    async with (
        serving(app, ("127.0.0.1", port)),
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{PATH}") as response,
    ):
        return await response.json()


async def test_versions_of_all_parts_are_told() -> None:
    told = {"version": __version__, "policies": "ab12", "opa": "1.22.0", "opa_error": None, "v": 1}
    assert await asked("1.22.0") == told


async def test_an_opa_that_is_away_leaves_the_rest() -> None:
    found = await asked(Retriable("OPA: away"))
    assert (found["opa"], found["opa_error"], found["policies"]) == (None, "OPA: away", "ab12")
