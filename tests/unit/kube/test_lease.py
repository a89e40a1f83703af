from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import LEASES, Lease
from kube_sync.observability.readiness import Readiness
from kube_sync.processes.context import report_lease
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, status
from tests.fakes.clients import key, kube_of
from tests.fakes.http import Proceed, answer, hang, lose_answer
from tests.unit.async_tools import PATIENCE, Waits, running, until

WHERE = key("leader", "system")


class Clock:
    """Everybody's monotonic clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Candidate:
    """One process that wants the Lease, turned by the test."""

    def __init__(
        self, client: KubeClient, clock: Clock, name: str, *, needed: bool = False
    ) -> None:
        self.skew = timedelta()
        self.news = 0
        self.notes: dict[str, str] = {}
        self.inherited: dict[str, str] = {}
        self.name = name
        self.waits = Waits()
        self.lease = Lease(
            client,
            "system",
            "leader",
            name,
            on_acquired=self._heard,
            notes=lambda: dict(self.notes),
            needed=needed,
            backoff=Backoff(5.0, 5.0, sleep=self._sleep, jitter=lambda: 1.0),
            clock=clock,
            now=lambda: datetime.now(UTC) + self.skew,
        )
        self._turning: asyncio.Task[object] | None = None
        self._asleep, self._awake = asyncio.Event(), asyncio.Event()

    def _heard(self) -> None:
        self.news += 1
        self.inherited = dict(self.lease.annotations)

    async def _sleep(self, seconds: float) -> None:
        await self.waits.sleep(seconds)
        if self._turning is not None:
            self._awake.clear()
            self._asleep.set()
            await self._awake.wait()

    async def turn(self) -> bool:
        """Let it run until it sleeps, from where it slept before."""
        self._asleep.clear()
        self._awake.set()
        if self._turning is None:
            self._turning = asyncio.create_task(self.lease.run())
        async with asyncio.timeout(PATIENCE):
            await self._asleep.wait()
        return self.lease.held

    async def end(self) -> None:
        if self._turning is not None:
            self._turning.cancel()
            await asyncio.wait([self._turning])


class World:
    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.clock = Clock()
        self.a, self.b = (Candidate(client, self.clock, name) for name in "ab")

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api.get(LEASES, WHERE)["spec"]
        return spec

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.api.get(LEASES, WHERE)["metadata"].get("annotations", {}))

    @property
    def holders(self) -> list[str]:
        return [c.name for c in (self.a, self.b) if c.lease.held]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(LEASES, "Lease")
        world = World(api, client)
        yield world
        for candidate in (world.a, world.b):
            await candidate.end()


async def test_first_candidate_holds_and_the_second_does_not(world: World) -> None:
    assert await world.a.turn()
    assert not await world.b.turn()
    assert world.holders == ["a"]
    assert world.spec["holderIdentity"] == "a"
    assert world.spec["leaseDurationSeconds"] == 15
    assert world.spec["leaseTransitions"] == 0
    assert (world.a.news, world.b.news) == (1, 0)


async def test_holder_that_renews_is_never_replaced(world: World) -> None:
    await world.a.turn()
    acquired = world.spec["acquireTime"]
    for _ in range(20):
        world.clock.seconds += 4
        assert await world.a.turn()
        assert not await world.b.turn()
    assert world.spec["acquireTime"] == acquired
    assert world.spec["renewTime"] > acquired
    assert world.a.news == 1


async def test_holder_that_is_gone_is_replaced_after_the_duration(world: World) -> None:
    await world.a.turn()
    await world.b.turn()
    world.clock.seconds += 14.9
    assert not await world.b.turn()
    world.clock.seconds += 0.2
    assert await world.b.turn()
    assert world.spec["leaseTransitions"] == 1
    assert world.holders == ["b"]


async def test_candidate_looks_often_and_at_the_moment_when_the_record_expires(
    world: World,
) -> None:
    await world.a.turn()
    await world.b.turn()
    world.clock.seconds += 14.5
    await world.b.turn()
    world.clock.seconds += 0.5
    assert await world.b.turn()
    assert world.b.waits.seconds == [2.0, 0.5, 5.0], "the holder renews at its usual interval"


async def test_candidate_that_cannot_take_an_expired_lease_does_not_spin(world: World) -> None:
    await world.a.turn()
    await world.b.turn()
    world.clock.seconds += 15
    world.api.http.fault(lambda request: request.method == "PUT", answer(500))
    assert not await world.b.turn()
    assert world.b.waits.seconds == [2.0, 5.0]


async def test_duration_begins_when_the_record_was_last_seen_to_change(world: World) -> None:
    """However old the Lease is: a new process has no way to know on its own clock."""
    await world.a.turn()
    world.clock.seconds += 1000
    assert not await world.b.turn()
    world.clock.seconds += 15
    assert await world.b.turn()


async def test_holder_stops_before_anybody_may_take_over(world: World) -> None:
    await world.a.turn()
    await world.b.turn()
    world.clock.seconds += 10
    assert world.holders == []
    world.clock.seconds += 5
    await world.b.turn()
    assert world.holders == ["b"]
    await world.a.turn()
    assert world.holders == ["b"]


@pytest.mark.parametrize("skew", [timedelta(days=-400), timedelta(days=400)])
async def test_clock_jump_of_the_other_has_no_effect(world: World, skew: timedelta) -> None:
    await world.a.turn()
    world.a.skew = skew
    await world.a.turn()
    assert not await world.b.turn()
    world.clock.seconds += 14.9
    assert not await world.b.turn()
    world.clock.seconds += 0.2
    assert await world.b.turn()


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_both_that_write_at_once_do_not_both_hold(world: World, method: str) -> None:
    """The second one's write is refused: the Lease exists, or is another version by now."""
    if method == "PUT":
        await world.a.turn()
        await world.b.turn()
        world.clock.seconds += 16
    met = asyncio.Barrier(2)

    async def together(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        await met.wait()
        return await proceed()

    world.api.http.fault(lambda r: r.method == method, together, times=2)
    held = await asyncio.gather(world.a.turn(), world.b.turn())
    assert sorted(held) == [False, True]
    assert world.holders == [world.spec["holderIdentity"]]


async def test_unreachable_api_server_changes_nothing_until_expiry(world: World) -> None:
    await world.a.turn()
    world.api.http.fault(lambda _r: True, answer(503), times=99)
    assert await world.a.turn()
    assert not await world.b.turn()
    world.clock.seconds += 10
    with capture_logs() as logs:
        assert not await world.a.turn()
    assert "lease_lost" in {line["event"] for line in logs}
    world.api.http.faults.clear()
    assert await world.a.turn()
    assert world.a.news == 2


async def test_lease_that_ran_out_between_two_turns_and_is_renewed_is_news(world: World) -> None:
    """Who was turned away in between waits for nothing else."""
    await world.a.turn()
    world.clock.seconds += 10
    assert not world.a.lease.held
    with capture_logs() as logs:
        assert await world.a.turn()
    assert world.a.news == 2
    assert [line["event"] for line in logs] == ["lease_lost", "lease_held"]


async def test_lease_that_runs_out_while_it_is_renewed_is_news(world: World) -> None:
    await world.a.turn()
    world.clock.seconds += 9

    async def late(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
        world.clock.seconds += 1
        assert not world.a.lease.held
        return await proceed()

    world.api.http.fault(lambda r: r.method == "PUT", late)
    assert await world.a.turn()
    assert world.a.news == 2


async def test_api_server_that_does_not_answer_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.kube.lease._TURN", 0.01)
    world.api.http.fault(lambda _r: True, hang())
    assert not await world.a.turn()
    monkeypatch.undo()
    world.api.http.faults.clear()  # where the request was given up before it arrived
    assert await world.a.turn()


async def test_answer_that_is_no_lease_changes_nothing(world: World) -> None:
    await world.a.turn()
    world.api.http.fault(lambda _r: True, answer(200, b"<html>"))
    assert await world.a.turn()


@pytest.mark.parametrize(
    ("method", "code", "reason"), [("POST", 404, "NotFound"), ("GET", 403, "Forbidden")]
)
async def test_lease_that_cannot_be_had_counts_as_held_and_says_so_once(
    world: World, method: str, code: int, reason: str
) -> None:
    async def refuse(_request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return status(code, reason, 'namespaces "system" not found')

    world.api.http.fault(lambda r: r.method == method, refuse, times=4)
    with capture_logs() as logs:
        assert await world.a.turn()
        assert await world.a.turn()
        assert await world.b.turn()
        world.clock.seconds += 100
        assert await world.a.turn()
    warnings = [line for line in logs if line["event"] == "no_lease_counts_as_held"]
    assert len(warnings) == 2  # one for each
    assert 'namespaces "system" not found' in warnings[0]["reason"]
    # Somebody installs what was missing.
    assert await world.a.turn()
    assert not await world.b.turn()
    assert world.holders == ["a"]


async def test_refused_candidate_waits_for_the_holder_that_it_has_seen(world: World) -> None:
    """A token that is being replaced must not make two of them speak."""
    await world.a.turn()
    await world.b.turn()
    world.api.http.fault(lambda _r: True, answer(401, b"Unauthorized"), times=2)
    assert not await world.b.turn()
    world.clock.seconds += 15
    assert await world.b.turn()


async def test_cancelled_holder_hands_over_at_once(world: World) -> None:
    async with running(world.a.lease.run()):
        await until(lambda: world.a.lease.held and world.a.waits.seconds)
        assert not await world.b.turn()
    assert not world.a.lease.held
    assert world.spec["holderIdentity"] == ""
    assert await world.b.turn()
    assert world.spec["leaseTransitions"] == 1
    assert world.a.waits.seconds[0] == 5.0


async def test_cancelled_candidate_leaves_the_holder_alone(world: World) -> None:
    await world.a.turn()
    async with running(world.b.lease.run()):
        await until(lambda: world.b.waits.seconds)
    assert world.spec["holderIdentity"] == "a"


async def test_shutdown_does_not_depend_on_the_api_server(world: World) -> None:
    async with running(world.a.lease.run()):
        await until(lambda: world.a.lease.held)
        world.api.http.fault(lambda _r: True, answer(503), times=99)
    assert not world.a.lease.held


async def test_process_without_a_lease_releases_none(world: World) -> None:
    world.api.undefine(LEASES)
    async with running(world.a.lease.run()):
        await until(lambda: world.a.lease.held)
        seen = len(world.api.http.requests)
        world.a.waits.seconds.clear()
    assert all(r.method != "PUT" for r in world.api.http.requests[seen:])


async def test_lease_that_is_needed_and_cannot_be_had_is_not_held(world: World) -> None:
    world.a = Candidate(world.client, world.clock, "a", needed=True)
    needed = world.a.lease
    world.api.http.fault(lambda r: r.method == "POST", answer(404, b"no namespace"))
    with capture_logs() as logs:
        assert not await world.a.turn()
    assert not needed.held
    helps = "kubectl create namespace system, or set coordination.namespace (system)"
    assert needed.lacking == f"404 no namespace; {helps}"
    assert [line["event"] for line in logs] == ["no_lease_counts_as_not_held"]
    assert await world.a.turn()
    assert needed.held
    assert needed.lacking is None


async def test_process_without_its_lease_is_unready_where_that_is_needed_and_says_so_elsewhere(
    world: World,
) -> None:
    readiness, lease = Readiness(), world.a.lease
    world.api.http.fault(lambda r: r.method == "POST", answer(404, b"no namespace"))
    readiness.waiting("needed", "not asked for yet")
    await world.a.turn()
    async with running(
        report_lease(lease, "leader", readiness, "needed"),
        report_lease(lease, "leader", readiness, "shown", needed=False),
    ):
        await until(lambda: "shown" in readiness.conditions)
        assert "kubectl create namespace system" in readiness.reasons["needed"]
        assert readiness.conditions["shown"] == readiness.reasons["needed"]
        assert list(readiness.reasons) == ["needed"]


@pytest.mark.parametrize("holder", ["a", "b"])
async def test_process_is_ready_whoever_holds_its_lease(world: World, holder: str) -> None:
    readiness, candidate = Readiness(), world.a if holder == "a" else world.b
    await candidate.turn()
    await world.a.turn()
    readiness.waiting("lease", "not asked for yet")
    async with running(report_lease(world.a.lease, "leader", readiness)):
        await until(lambda: not readiness.reasons)
        who = "this process" if holder == "a" else "b"
        assert readiness.conditions == {"lease": f"{who} writes"}


async def test_process_that_never_heard_of_its_lease_is_not_ready(world: World) -> None:
    readiness, told = Readiness(), Readiness()
    readiness.waiting("lease", "not asked for yet")
    lease = world.a.lease
    async with running(
        report_lease(lease, "leader", readiness), report_lease(lease, "leader", told, "lease")
    ):
        await until(lambda: told.conditions == {"lease": "nobody writes"})
        assert readiness.reasons == {"lease": "not asked for yet"}


async def test_time_that_remains_ends_before_anybody_may_take_over(world: World) -> None:
    assert world.a.lease.remaining == 0
    await world.a.turn()
    assert world.a.lease.remaining == 10
    world.clock.seconds += 4
    assert world.a.lease.remaining == 6
    world.clock.seconds += 20
    assert (world.a.lease.remaining, world.a.lease.held) == (0, False)


async def test_holder_is_named(world: World) -> None:
    assert world.b.lease.holder is None
    await world.a.turn()
    await world.b.turn()
    assert world.b.lease.holder == "a"


async def test_what_the_holder_keeps_on_it_is_written_with_it_and_handed_over(
    world: World,
) -> None:
    await world.a.turn()
    world.a.notes = {"went": "1"}
    await world.a.turn()
    assert world.annotations == {"went": "1"}
    await world.b.turn()
    world.b.notes = {"went": "never told"}
    world.clock.seconds += 15
    assert await world.b.turn()
    assert world.b.inherited == {"went": "1"}
    assert world.annotations == {"went": "1"}
    world.b.notes = {"went": "2"}
    await world.b.turn()
    assert world.annotations == {"went": "2"}


async def test_who_ends_leaves_what_it_kept_last(world: World) -> None:
    async with running(world.a.lease.run()):
        await until(lambda: world.a.lease.held and world.a.waits.seconds)
        world.a.notes = {"went": "3"}
    assert world.annotations == {"went": "3"}
    assert await world.b.turn()
    assert world.b.inherited == {"went": "3"}


async def test_an_answer_that_was_lost_at_the_take_over_loses_nothing_that_was_kept(
    world: World,
) -> None:
    """The Lease is ours by then, although nobody was told: what is on it is of the one before."""
    await world.a.turn()
    world.a.notes = {"went": "1"}
    await world.a.turn()
    await world.b.turn()
    world.clock.seconds += 15
    world.api.http.fault(lambda r: r.method == "PUT", lose_answer())
    assert not await world.b.turn()
    assert world.spec["holderIdentity"] == "b"
    assert await world.b.turn()
    assert world.b.inherited == {"went": "1"}
    assert world.annotations == {"went": "1"}


async def test_what_is_kept_no_more_is_taken_off_and_what_others_wrote_stays(world: World) -> None:
    await world.a.turn()
    world.a.notes = {"went": "1"}
    await world.a.turn()
    found = world.api.get(LEASES, WHERE)
    metadata = {"annotations": {**world.annotations, "example.com/by": "hand"}}
    world.api.put(LEASES, WHERE, metadata=metadata, spec=found["spec"])
    world.a.notes = {"went": ""}
    await world.a.turn()
    assert world.annotations == {"example.com/by": "hand"}
