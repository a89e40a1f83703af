"""The bundle that OPA fetches, with a client that asks as OPA does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import aiohttp
import pytest
from aiohttp import web

from kube_sync.errors import EpochLost
from kube_sync.policies.bundle import RESOURCE, Bundle
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.runtime.httpserver import serving
from tests.unit.async_tools import Waits, until

ONE, TWO = Bundle("1", b"one"), Bundle("2", b"two")
TYPE = "application/vnd.openpolicyagent.bundles"
Asked = asyncio.Task[tuple[int, str | None, bytes]]


class Bench:
    """A shelf that is served, and an OPA that asks."""

    def __init__(self, port: int, session: aiohttp.ClientSession, shelf: BundleServer) -> None:
        self.url = f"http://127.0.0.1:{port}/{RESOURCE}"
        self.session = session
        self.shelf = shelf
        self.looks = 0
        self.lost = False
        self.refusals: list[str] = []
        self.woken = 0
        self.now = 0.0
        self.pauses: list[float] = []
        shelf.wake = self._wake

    def _wake(self) -> None:
        self.woken += 1

    async def stands(self) -> None:
        self.looks += 1
        if self.lost:
            msg = "gone"
            raise EpochLost(msg)

    def publish(self, bundle: Bundle) -> bool:
        return self.shelf.publish(bundle, self.stands, self.refusals.append)

    def ask(self, etag: str | None = None, wait: int = 60) -> Asked:
        return asyncio.create_task(self._ask(etag, wait))

    async def _ask(self, etag: str | None, wait: int) -> tuple[int, str | None, bytes]:
        headers = {"Prefer": f"modes=snapshot,delta;wait={wait}"}
        if etag is not None:
            headers["If-None-Match"] = etag
        async with self.session.get(self.url, headers=headers) as response:
            # Anything else makes OPA stop asking by long poll.
            assert response.headers["Content-Type"] == TYPE
            return response.status, response.headers.get("ETag"), await response.read()

    async def settle(self) -> None:
        """Let what was asked arrive: a request of its own makes the same way."""
        for _ in range(5):
            async with self.session.get(self.url.replace("bundles", "nothing")) as response:
                assert response.status == 404


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def bench(waits: Waits) -> AsyncGenerator[Bench]:
    found: list[Bench] = []

    async def pause(seconds: float) -> None:
        found[0].pauses.append(seconds)
        found[0].now += seconds

    shelf = BundleServer(waits.backoff(), clock=lambda: found[0].now, pause=pause)
    app = web.Application()
    app.router.add_routes(shelf.routes())
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.1) as port,
        aiohttp.ClientSession() as session,
    ):
        found.append(Bench(port, session, shelf))
        yield found[0]


async def test_fresh_opa_gets_the_bundle_after_its_data_was_found_there(bench: Bench) -> None:
    assert not bench.publish(ONE)
    assert await bench.ask() == (200, '"1"', b"one")
    assert bench.looks == 1


async def test_nothing_is_given_out_while_the_data_is_loaded(bench: Bench) -> None:
    asked = bench.ask()
    await bench.settle()
    assert not asked.done()
    bench.publish(ONE)
    assert await asked == (200, '"1"', b"one")


async def test_opa_that_holds_an_earlier_set_gets_the_new_one_at_once(bench: Bench) -> None:
    bench.publish(TWO)
    assert await bench.ask('"1"') == (200, '"2"', b"two")
    assert bench.looks == 0  # only one without a set may have just started


async def test_opa_that_holds_the_set_waits_for_the_next(bench: Bench) -> None:
    bench.publish(ONE)
    asked = bench.ask('"1"')
    await until(lambda: bench.woken)
    await bench.settle()
    assert not asked.done()
    bench.publish(TWO)
    assert await asked == (200, '"2"', b"two")


@pytest.mark.parametrize(("took", "paused"), [(5.0, [5.0]), (2.9, []), (60.0, [9.0])])
async def test_edit_waits_in_proportion_to_what_the_last_one_took(
    bench: Bench, took: float, paused: list[float]
) -> None:
    """OPA takes no data meanwhile."""
    bench.publish(ONE)
    await bench.ask('"0"')
    bench.now += took
    asked = bench.ask('"1"')
    await until(lambda: bench.woken)
    bench.now += 1.0
    bench.publish(TWO)
    assert await asked == (200, '"2"', b"two")
    assert bench.pauses == paused


async def test_an_opa_that_has_just_started_waits_for_nothing(bench: Bench) -> None:
    bench.publish(ONE)
    await bench.ask('"0"')
    bench.now += 5.0
    asked = bench.ask('"1"')
    await until(lambda: bench.woken)
    bench.publish(TWO)
    assert await bench.ask() == (200, '"2"', b"two")
    assert await asked == (200, '"2"', b"two")
    assert len(bench.pauses) <= 1  # of the one that has a set


async def test_question_with_the_set_s_name_says_that_it_is_in_force(bench: Bench) -> None:
    bench.publish(ONE)
    await bench.ask()
    assert not bench.publish(ONE)
    asked = bench.ask('"1"')
    await until(lambda: bench.woken)
    assert bench.publish(ONE)
    bench.publish(TWO)
    await asked
    assert not bench.publish(TWO)
    assert bench.woken == 1


async def test_long_poll_without_news_ends_when_it_was_asked_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.policies.bundle_server._SHORTEST_WAIT", 0.05)
    assert await bench.ask(wait=0) == (304, None, b"")
    bench.publish(ONE)
    assert await bench.ask('"1"', wait=0) == (304, '"1"', b"")


async def test_opa_whose_data_is_lost_waits_for_the_next_load(bench: Bench) -> None:
    """It has restarted: what is published belongs to the process before."""
    bench.publish(ONE)
    bench.lost = True
    asked = bench.ask()
    await until(lambda: bench.looks)
    await bench.settle()
    assert not asked.done()
    bench.shelf.withhold()
    await bench.settle()
    assert not asked.done()
    bench.lost = False
    bench.publish(ONE)
    assert await asked == (200, '"1"', b"one")


async def test_set_that_opa_does_not_take_is_sent_more_and_more_slowly(
    bench: Bench, waits: Waits
) -> None:
    """OPA asks again at once and for ever."""
    bench.publish(TWO)
    for _ in range(3):
        assert await bench.ask('"1"') == (200, '"2"', b"two")
    assert waits.seconds == [0.1, 0.2]
    assert len(bench.refusals) == 2
    assert "does not activate" in bench.refusals[0]


async def test_set_that_is_mended_is_sent_at_once(bench: Bench, waits: Waits) -> None:
    bench.publish(TWO)
    await bench.ask('"1"')
    bench.publish(Bundle("3", b"three"))
    assert await bench.ask('"1"') == (200, '"3"', b"three")
    assert waits.seconds == []


async def test_opa_that_went_away_while_it_waited_confirms_nothing(bench: Bench) -> None:
    asked = bench.ask('"1"')
    await bench.settle()
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    await bench.settle()
    assert not bench.publish(ONE)
    await bench.settle()
    assert bench.woken == 0
