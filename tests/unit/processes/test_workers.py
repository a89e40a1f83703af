"""What the first of several processes says of all; tests/integration runs them as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness
from kube_sync.processes import workers
from kube_sync.processes.workers import First, Other, Worker
from kube_sync.runtime.httpserver import bind, serving
from kube_sync.runtime.services import Service
from tests.eventually import eventually
from tests.unit.async_tools import running


async def _run(service: Service) -> None:
    await service()


class Crew:
    """A first process, and a worker in the same process; a program stands for the worker's end."""

    def __init__(self, program: subprocess.Popen[bytes], first: First, worker: Worker) -> None:
        self.program, self.first, self.worker = program, first, worker
        self.readiness, self.other_readiness = Readiness(), Readiness()
        self.page = first.page(self.readiness)

    @asynccontextmanager
    async def followed(self) -> AsyncGenerator[str]:
        """Follow the worker, and yield the URL of the pages."""
        async with serving(self.page, ("127.0.0.1", 0), grace=0.05) as port:
            (follow,) = self.first.services(self.readiness)
            async with running(_run(follow)):
                yield f"http://127.0.0.1:{port}"

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Let the worker answer the first."""
        (answer,) = self.worker.services(self.other_readiness)
        async with running(_run(answer)):
            yield


_ORDINARY = "print(); input()"
_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); input()"


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until it is killed."""
    text = getattr(request, "param", _ORDINARY)
    pipe = subprocess.PIPE
    found = subprocess.Popen([sys.executable, "-c", text], stdin=pipe, stdout=pipe)
    assert found.stdout is not None
    found.stdout.readline()
    yield found
    found.kill()
    found.communicate()


@pytest.fixture
async def crew(program: subprocess.Popen[bytes]) -> AsyncGenerator[Crew]:
    mine, theirs = socket.socketpair()
    bound = await bind(("127.0.0.1", 0))
    other = Other(1, program.pid, mine)
    yield Crew(program, First(bound, [other], -1), Worker(bound, theirs))
    for one in (mine, theirs, *bound.sockets):
        one.close()


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Return the signals that this process sends itself."""
    found: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


async def _get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_all_are_ready_when_each_is(crew: Crew) -> None:
    crew.readiness.met("opa")
    crew.other_readiness.waiting("opa", "away")
    async with crew.followed() as url:
        assert await _get(f"{url}/readyz") == (503, "opa: ok\nworker 1: starting\nnot ready\n")
        async with crew.answering():
            text = "opa: ok\nworker 1: opa: away\nnot ready\n"
            await eventually(lambda: _get(f"{url}/readyz"), (503, text))
            crew.other_readiness.met("opa")
            await eventually(lambda: _get(f"{url}/readyz"), (200, "opa: ok\nworker 1: ok\nready\n"))


async def test_the_metrics_are_those_of_all(crew: Crew) -> None:
    """Here both are the same process, whose counters count twice."""
    metrics.admission_events.labels("of two workers").inc(3)
    async with crew.followed() as url, crew.answering():
        status, text = await _get(f"{url}/metrics")
    assert status == 200
    assert 'kube_sync_admission_events_total{outcome="of two workers"} 6.0\n' in text


async def test_metrics_are_never_those_of_some(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that falls would count as one that began again."""
    monkeypatch.setattr(workers, "_ANSWER_SECONDS", 0.05)
    async with crew.followed() as url:
        assert await _get(f"{url}/metrics") == (503, "worker 1 does not answer\n")
        await eventually(lambda: crew.readiness.reasons, {"worker 1": "does not answer"})
        async with crew.answering():  # to requests that nobody waits for any more, first
            await eventually(lambda: _get(f"{url}/readyz"), lambda seen: seen[0] == 200)
            await eventually(lambda: _get(f"{url}/metrics"), lambda seen: seen[0] == 200)


async def test_a_worker_that_ends_ends_all_with_a_failure(crew: Crew, signals: list[int]) -> None:
    async with crew.followed() as url:
        async with crew.answering():
            await eventually(lambda: _get(f"{url}/readyz"), lambda seen: seen[0] == 200)
        crew.program.kill()
        await eventually(lambda: signals, [signal.SIGTERM])
        assert await _get(f"{url}/readyz") == (503, "worker 1: ended\nnot ready\n")
    with pytest.raises(RuntimeError, match="worker 1 ended by itself with status -9"):
        crew.first.check()


async def test_a_signal_drains_all_and_waits_for_them(crew: Crew, signals: list[int]) -> None:
    drained = asyncio.Event()

    async def drain() -> None:
        drained.set()

    async with crew.followed() as url:
        async with crew.answering():
            await eventually(lambda: _get(f"{url}/readyz"), lambda seen: seen[0] == 200)
        await crew.first.finish(drain)
    assert drained.is_set()
    with pytest.raises(ProcessLookupError):
        os.kill(crew.program.pid, 0)
    crew.first.check()
    assert signals == []


@pytest.mark.parametrize("program", [_DEAF], indirect=True)
async def test_a_worker_that_does_not_end_is_killed(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_END_SECONDS", 0.05)

    async def drain() -> None:
        return

    await crew.first.finish(drain)
    assert await asyncio.to_thread(crew.program.wait, 60) == -signal.SIGKILL
