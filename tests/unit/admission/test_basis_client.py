from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kube_sync.admission.basis_client import STANDS_SECONDS, BasisFollower, BasisRequest
from kube_sync.config import Decisions
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.basis_server import basis_route
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.stream import PATH, stream_app
from kube_sync.errors import Refused, Retriable
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.fakes.fleet import reads
from tests.unit.async_tools import PATIENCE, Waits, running, until

READS = reads(("a",))


@dataclass
class Replicator:
    """Answers when it is told to, with what it is told."""

    now: float = 0.0
    asked: list[Basis] = field(default_factory=list)
    answers: asyncio.Queue[Basis | Exception] = field(default_factory=asyncio.Queue)

    async def ask(self, known: Basis) -> Basis:
        self.asked.append(known)
        found = await self.answers.get()
        if isinstance(found, Exception):
            raise found
        return found

    def follower(self, waits: Waits | None = None) -> BasisFollower:
        backoff = (waits or Waits()).backoff(0.1, 1.0)
        return BasisFollower(self.ask, clock=lambda: self.now, backoff=backoff)


@asynccontextmanager
async def following(
    replicator: Replicator, waits: Waits | None = None
) -> AsyncGenerator[BasisFollower]:
    follower = replicator.follower(waits)
    async with asyncio.timeout(PATIENCE), running(follower.run()):
        await until(lambda: replicator.asked)
        yield follower


async def deliver(replicator: Replicator, found: Basis | Exception) -> None:
    count = len(replicator.asked)
    await replicator.answers.put(found)
    await until(lambda: len(replicator.asked) > count)


FIRST = Basis("me", 1, "p", (("a",),))


async def test_nothing_is_confirmed_before_the_first_report() -> None:
    async with following(Replicator()) as follower:
        assert follower.confirmed is None
        assert follower.classify is None


async def test_report_confirms_the_basis_and_brings_its_classifier() -> None:
    replicator = Replicator()
    async with following(replicator) as follower:
        await deliver(replicator, FIRST)
        assert follower.confirmed == FIRST
        assert follower.classify is not None
        assert follower.classify(b'{"a":1,"b":1}') == follower.classify(b'{"a":1,"b":2}')
        assert replicator.asked[-1] == FIRST


async def test_time_of_a_report_counts_from_when_it_was_asked_for() -> None:
    replicator = Replicator()
    async with following(replicator) as follower:
        replicator.now = STANDS_SECONDS + 0.01  # it was on its way for so long
        await deliver(replicator, FIRST)
        assert follower.confirmed is None
        await deliver(replicator, FIRST)
        assert follower.confirmed == FIRST


async def test_basis_that_is_not_current_is_not_confirmed() -> None:
    replicator = Replicator()
    async with following(replicator) as follower:
        await deliver(replicator, Basis("me", 1, "p", (("a",),), current=False))
        assert follower.confirmed is None


async def test_basis_that_must_not_be_shared_has_no_classifier() -> None:
    replicator = Replicator()
    async with following(replicator) as follower:
        await deliver(replicator, FIRST)
        assert follower.is_shared
        await deliver(replicator, Basis("me", 2, "p", None, "policies are changing"))
        assert follower.classify is None
        assert not follower.is_shared


async def test_failures_wait_longer_each_time_and_confirm_nothing() -> None:
    replicator, waits = Replicator(), Waits()
    async with following(replicator, waits) as follower:
        await deliver(replicator, FIRST)
        replicator.now = 10.0
        for _ in range(3):
            await deliver(replicator, Retriable("away"))
        assert follower.confirmed is None
        await deliver(replicator, FIRST)
        assert follower.confirmed == FIRST


# Over HTTP


@asynccontextmanager
async def _served(
    token: Path | None = None, hub: DecisionHub | None = None
) -> AsyncGenerator[Callable[[str | None], BasisRequest]]:
    hub = hub or DecisionHub("me")
    app = stream_app(
        hub, TokenFile(None if token is None else str(token)), [basis_route(hub.basis)]
    )
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
    ):
        yield lambda token_file: BasisRequest(
            Decisions(url=f"http://127.0.0.1:{port}{PATH}", token_file=token_file), session
        )


async def test_basis_of_the_replicator_arrives_whole() -> None:
    hub = DecisionHub("me")
    hub.basis.share("p", READS)
    hub.basis.follow(lambda: True, "e")
    async with _served(hub=hub) as made:
        assert await made(None)(Basis("", -1)) == Basis("me", 1, "p", (("a",),), epoch="e")


async def test_known_basis_is_answered_with_the_next_one() -> None:
    hub = DecisionHub("me")
    async with _served(hub=hub) as made:
        waiting = asyncio.ensure_future(made(None)(hub.basis.present))
        await asyncio.sleep(0)
        hub.basis.share("p", READS)
        assert (await waiting).revision == 1


async def test_wrong_token_is_said(tmp_path: Path) -> None:
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text("right\n", encoding="utf-8")
    other.write_text("wrong\n", encoding="utf-8")
    async with _served(token) as made:
        assert (await made(str(token))(Basis("", -1))).instance == "me"
        with pytest.raises(Refused, match="token_file"):
            await made(str(other))(Basis("", -1))


async def test_position_that_is_none_is_refused() -> None:
    async with _served() as made:
        with pytest.raises(Retriable, match="400"):
            await made(None)(Basis("a b", 1))


async def test_answer_of_another_server_is_said() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    app = web.Application()
    app.router.add_get("/v1/basis", elsewhere)
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
    ):
        request = BasisRequest(Decisions(url=f"http://127.0.0.1:{port}/x"), session)
        with pytest.raises(Retriable, match="not a basis"):
            await request(Basis("", -1))
