from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.admission.denials import CONTROLLER, Denials
from kube_sync.admission.review import Kind, Review
from kube_sync.kube import eventrecorder
from kube_sync.kube.client import KubeClient
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import EVENTS, Reporter
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, status
from tests.fakes.clients import kube_of
from tests.fakes.http import Handler, Proceed, answer, hang, lose_answer
from tests.memory import remembered
from tests.unit.async_tools import LoopTime, running, until

MOMENT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def review(name: str = "web", namespace: str = "shop", *, dry_run: bool = False) -> Review:
    """Return a review of an UPDATE."""
    raw: Any = b"null"
    return Review(
        "r1",
        "UPDATE",
        raw,
        None,
        kind=Kind("apps", "v1", "ReplicaSet"),
        name=name,
        namespace=namespace,
        dry_run=dry_run,
    )


class World:
    """A recorder, its API server, and time in the hands of the test."""

    def __init__(self, api: FakeApiServer, client: KubeClient, time: LoopTime) -> None:
        self.api = api
        self.client = client
        self.time = time  # of what is to be written later
        self.seconds = 1000.0  # of what may be written at all
        self.number = 0
        self.recorder = self.new_recorder()
        self._before = _outcomes()

    def new_recorder(self) -> EventRecorder:
        return EventRecorder(
            self.client,
            Reporter(CONTROLLER, "host-1"),
            metrics.admission_events,
            clock=lambda: self.seconds,
            now=lambda: MOMENT,
            nanoseconds=self._next,
        )

    def _next(self) -> int:
        self.number += 1
        return self.number

    def deny(
        self, name: str = "web", namespace: str = "shop", reason: str = "no", **more: Any
    ) -> None:
        Denials(self.recorder).denied(review(name, namespace, **more), "denied", reason)

    @property
    def events(self) -> dict[ObjectKey, int]:
        """How often each Event says that it happened."""
        found = self.api.objects(EVENTS)
        return {key: event.get("series", {}).get("count", 1) for key, event in found.items()}

    @property
    def names(self) -> list[str]:
        return [key.name for key in self.events]

    @property
    def outcomes(self) -> dict[str, float]:
        """What has been counted since the beginning."""
        now = {name: n - self._before.get(name, 0) for name, n in _outcomes().items()}
        return {name: n for name, n in now.items() if n}

    def fail(self, handler: Handler, method: str = "POST", times: int = 1) -> None:
        self.api.http.fault(lambda r: r.method == method, handler, times)


def _outcomes() -> dict[str, float]:
    samples = (s for m in REGISTRY.collect() for s in m.samples)
    name = "kube_sync_admission_events_total"
    return {s.labels["outcome"]: s.value for s in samples if s.name == name}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(EVENTS, "Event")
        yield World(api, client, LoopTime(monkeypatch))


def refuse(code: int, reason: str, message: str) -> Handler:
    async def handle(_request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return status(code, reason, message)

    return handle


async def test_a_denial_becomes_an_event(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
    assert world.events == {ObjectKey("shop", "web.1"): 1}
    event = world.api.get(EVENTS, ObjectKey("shop", "web.1"))
    assert (event["reportingController"], event["reportingInstance"]) == (
        "kube-sync.io/admission",
        "host-1",
    )
    assert event["eventTime"] == "2026-11-21T12:00:00.000000Z"
    assert world.outcomes == {"created": 1}


async def test_a_dry_run_leaves_no_trace(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny("dry", dry_run=True)
        world.deny("wet")
        await until(lambda: world.outcomes)
    assert world.names == ["wet.1"]


async def test_telling_takes_no_time_while_the_api_server_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_ALL", (1e6, 1e6))
    world.fail(hang(), times=99)
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.api.http.requests)
        world.deny("another")  # would raise if it waited: it is no coroutine
        assert len(world.api.http.requests) == 1
        world.api.http.faults.clear()
        world.time.forward(5.0)  # the first is given up for a while
        await until(lambda: world.names == ["another.2"])


async def test_what_happens_before_the_first_write_is_in_it(world: World) -> None:
    for _ in range(3):
        world.deny()
    async with running(world.recorder.run()):
        await until(lambda: world.outcomes)
    assert world.events == {ObjectKey("shop", "web.1"): 3}


async def test_the_same_again_is_counted_a_while_later_in_one_write(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
        for _ in range(50):
            world.deny()
        (seconds,) = world.time.timers
        assert 4 < seconds <= 5
        _fire(world)
        await until(lambda: world.outcomes.get("counted"))
        assert world.events == {ObjectKey("shop", "web.1"): 51}
        assert len(world.api.http.requests) == 2


def _fire(world: World) -> None:
    """Let it be later for whatever is to be written then."""
    world.time.forward(max(world.time.timers))


async def test_another_reason_is_another_event(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny()
        Denials(world.recorder).denied(review(), "denied", "another")
        Denials(world.recorder).denied(review(), "undecidable", "no")
        await until(lambda: world.outcomes == {"created": 3})
    assert len(world.events) == 3


async def test_after_a_silence_a_new_series_begins(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
        world.seconds += 361
        world.deny()
        await until(lambda: world.outcomes == {"created": 2})
    assert world.names == ["web.1", "web.2"]


async def test_an_event_that_has_expired_is_made_again(world: World) -> None:
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
        world.api.delete(EVENTS, ObjectKey("shop", "web.1"))
        world.deny()
        _fire(world)
        await until(lambda: world.outcomes == {"created": 2})
    assert world.events == {ObjectKey("shop", "web.2"): 2}


async def test_a_namespace_has_its_burst_and_leaves_the_others_theirs(world: World) -> None:
    for number in range(30):
        world.deny(f"web-{number}")
    world.deny("web", "another")
    assert world.outcomes == {"dropped_rate": 5}
    world.seconds += 2
    for number in range(30, 33):
        world.deny(f"web-{number}")
    assert world.outcomes == {"dropped_rate": 6}
    async with running(world.recorder.run()):
        await until(lambda: world.outcomes.get("created") == 25 + 1 + 2)


async def test_an_object_has_its_burst_and_leaves_others_of_its_namespace_theirs(
    world: World,
) -> None:
    for number in range(30):
        world.deny(reason=f"no {number}")
    assert world.outcomes == {"dropped_rate": 20}
    for number in range(15):
        world.deny(f"web-{number}")
    assert world.outcomes == {"dropped_rate": 20}


async def test_series_of_one_namespace_that_never_end_take_no_event_of_another(
    world: World,
) -> None:
    async with running(world.recorder.run()):
        for number in range(100):
            world.deny(f"web-{number}")
            world.seconds += 1
        await until(lambda: world.outcomes.get("created") == 100)
        for number in range(100):
            world.deny(f"web-{number}")
        _fire(world)
        # The others wait for a token; one that looks again has no timer at that moment.
        await until(lambda: len(world.time.timers) > 80 and world.outcomes.get("counted") == 5)
        world.deny("web", "another")
        await until(lambda: world.outcomes == {"created": 101, "counted": 5})


async def test_all_namespaces_together_have_a_burst(world: World) -> None:
    for number in range(110):
        world.deny("web", f"shop-{number}")
    assert world.outcomes == {"dropped_rate": 10}


async def test_a_queue_that_is_full_drops_what_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_WAITING", 2)
    for number in range(5):
        world.deny(f"web-{number}")
    assert world.outcomes == {"dropped_queue": 3}


async def test_only_the_latest_series_and_namespaces_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_KNOWN", 3)
    async with running(world.recorder.run()):
        for number in range(5):
            world.deny("web", f"shop-{number}")
        await until(lambda: world.outcomes == {"created": 3})
    assert [key.namespace for key in world.events] == ["shop-2", "shop-3", "shop-4"]
    spaces = {one for one in remembered(world.recorder, str) if one.startswith("shop-")}
    assert spaces == {"shop-2", "shop-3", "shop-4"}


async def test_counting_waits_for_a_token_and_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_ALL", (1.0, 1.0))
    world.recorder = world.new_recorder()
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
        world.deny()
        _fire(world)
        await until(lambda: world.time.timers)  # it is put off
        assert list(world.events.values()) == [1]
        world.seconds += 1
        _fire(world)
        await until(lambda: world.outcomes.get("counted"))
    assert list(world.events.values()) == [2]


async def test_an_answer_that_is_lost_makes_no_second_event(world: World) -> None:
    world.fail(lose_answer())
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.time.timers)
        assert world.outcomes == {}
        _fire(world)
        await until(lambda: world.outcomes == {"created": 1})
    assert world.names == ["web.1"]


async def test_an_api_server_that_stays_away_is_given_up_and_told_once(world: World) -> None:
    world.fail(answer(503), times=99)
    with capture_logs() as logs:
        async with running(world.recorder.run()):
            for given_up, name in enumerate("ab", 1):
                world.deny(name)
                for tries in range(1, 4):
                    await until(lambda: world.time.timers)
                    assert len(world.api.http.requests) % 4 == tries
                    _fire(world)
                await until(lambda: world.outcomes == {"unavailable": given_up})  # noqa: B023 - now
            world.api.http.faults.clear()
            world.deny("a")  # as if nothing had been
            await until(lambda: world.outcomes.get("created"))
    assert world.outcomes == {"unavailable": 2, "created": 1}
    told = [line["event"] for line in logs if line["log_level"] != "debug"]
    assert told == ["event_not_written"]


async def test_an_api_server_that_hangs_is_left_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_WRITE_SECONDS", 0.01)
    monkeypatch.setattr(eventrecorder, "_TRIES", 1)
    world.fail(hang())
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
    assert world.outcomes == {"unavailable": 1}


@pytest.mark.parametrize(
    ("handler", "word"),
    [
        (refuse(403, "Forbidden", "cannot create resource events"), "refused"),
        (refuse(403, "Forbidden", "namespace shop is being terminated"), "terminating"),
        (refuse(404, "NotFound", 'namespaces "shop" not found'), "no_namespace"),
        (refuse(422, "Invalid", "regarding: Invalid"), "invalid"),
    ],
)
async def test_a_write_that_is_refused_is_counted_told_once_and_delays_no_other(
    world: World, handler: Handler, word: str
) -> None:
    world.fail(handler, times=2)
    with capture_logs() as logs:
        async with running(world.recorder.run()):
            for name in "abc":
                world.deny(name)
            await until(lambda: world.outcomes == {word: 2, "created": 1})
    assert [line["event"] for line in logs] == ["event_not_written"]
    assert world.names == ["c.3"]


async def test_what_was_forgotten_meanwhile_is_not_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventrecorder, "_KNOWN", 1)
    async with running(world.recorder.run()):
        world.deny()
        await until(lambda: world.outcomes)
        world.deny()
        world.deny("another")
        await until(lambda: world.outcomes == {"created": 2})
        _fire(world)
        for _ in range(3):
            await asyncio.sleep(0)  # its turn is before that of the last one
        world.deny("last")
        await until(lambda: world.outcomes == {"created": 3})
    assert len(world.api.http.requests) == 3
