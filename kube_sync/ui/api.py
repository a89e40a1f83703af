"""The JSON API of the web page, beside the decision stream; read only.

`GET /v1/board/fleet`, `/health`, `/held`, `/history?since=<number>` and
`/story?resource=…&namespace=…&name=…`. The server that has these routes checks the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
from aiohttp import web

from kube_sync.decisions.history import History
from kube_sync.decisions.records import Target
from kube_sync.decisions.stream import PATH as DECISIONS
from kube_sync.ui.fleet import Fleet
from kube_sync.ui.page import HEADERS
from kube_sync.ui.remediator_client import RemediatorStatus
from kube_sync.ui.replication import Health
from kube_sync.ui.story import Story

PREFIX: Final = "/v1/board"

_MOST: Final = 1_000  # changes in one answer
_LONGEST: Final = 512  # characters of a name


class StoryReader(Protocol):
    """Reads the stories of objects."""

    async def read(self, target: Target) -> Story | None:
        """Return the story of an object, None if there is none."""


class Overview(msgspec.Struct, frozen=True):
    """The fleet, and the resources with decisions."""

    fleet: Fleet
    stream: str
    placements: dict[str, str]  # placement annotations, and their forms
    v: int = 1


class BoardApi:
    """The handlers."""

    def __init__(
        self,
        *,
        fleet: Callable[[], Awaitable[Fleet]],
        health: Callable[[], Health],
        remediator: Callable[[], Awaitable[RemediatorStatus]],
        history: History,
        stories: StoryReader,
        path: str,
        placements: dict[str, str],
    ) -> None:
        """`path` is that of the decision; `placements` are forms of annotations by key."""
        self._fleet = fleet
        self._health = health
        self._remediator = remediator
        self._history = history
        self._stories = stories
        self._stream = f"{DECISIONS}/{quote(path)}"
        self._placements = placements

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, which need the token."""
        handlers = {
            "fleet": self._get_fleet,
            "health": self._get_health,
            "held": self._get_held,
            "history": self._get_history,
            "story": self._get_story,
        }
        return [
            web.get(f"{PREFIX}/{name}", handler, allow_head=False)
            for name, handler in handlers.items()
        ]

    async def _get_fleet(self, _request: web.Request) -> web.Response:
        found = Overview(await self._fleet(), self._stream, self._placements)
        return await _json(found)

    async def _get_health(self, _request: web.Request) -> web.Response:
        return await _json(self._health())

    async def _get_held(self, _request: web.Request) -> web.Response:
        return await _json(await self._remediator())

    async def _get_history(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) <= 18):  # noqa: PLR2004
            raise web.HTTPBadRequest(text="since: say the number that the last answer ended with\n")
        return await _json(self._history.after(int(since), _MOST))

    async def _get_story(self, request: web.Request) -> web.Response:
        story = await self._stories.read(_target(request))
        if story is None:
            raise web.HTTPNotFound(text="nothing is decided of that\n")
        return await _json(story)


def _target(request: web.Request) -> Target:
    resource, name = request.query.get("resource", ""), request.query.get("name", "")
    parts = resource.split(".", 2)
    if not name or len(parts) < 2 or len(resource + name) > _LONGEST:  # noqa: PLR2004 - and a group
        msg = "say resource (as replicasets.v1.apps), name and, where there is one, namespace\n"
        raise web.HTTPBadRequest(text=msg)
    plural, version, group = (*parts, "")[:3]
    return Target(group, version, plural, name, request.query.get("namespace", ""))


async def _json(document: Any) -> web.Response:  # noqa: ANN401 - any of ours
    # In a thread: to encode a thousand changes would block the event loop noticeably.
    body = await asyncio.to_thread(msgspec.json.encode, document)
    return web.Response(body=body, content_type="application/json", headers=HEADERS)
