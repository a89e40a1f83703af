"""Several processes that serve the webhook on one port: `admission.workers`.

The first process binds the port, and forks the others before it has threads or an event loop. Each
is a whole webhook, as another replica would be: with watches, classes and certificates of its own,
and it fails closed by what it knows itself. The first alone keeps the registrations, and answers
for all on the pages of readiness and metrics: it asks the others over a socket.

Invariant: a signal to the first drains all; a worker that ends by itself drains and ends all, with
a failure, so that the pod starts again. Connections wait in one queue, so that none is lost with
one worker. No worker outlives the first.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import msgspec
import structlog
from aiohttp import web

from kube_sync.config import Settings, parse_listen
from kube_sync.observability import metrics
from kube_sync.observability.logs import add_to_records
from kube_sync.observability.merging import Family, merged_page, snapshot
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.runtime.httpserver import bind
from kube_sync.runtime.imports import without_collections
from kube_sync.runtime.listening import Bound
from kube_sync.runtime.services import Service

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_ASK_SECONDS: Final = 0.5  # between two looks at a worker's readiness
_ANSWER_SECONDS: Final = 2.0
_END_SECONDS: Final = 5.0  # for workers to end after the first has drained
_LONGEST: Final = 1 << 24  # bytes of a state

Drained = Callable[[], Awaitable[None]]


class _Request(msgspec.Struct, frozen=True):
    number: int
    metrics: bool


class _State(msgspec.Struct, frozen=True):
    number: int  # of the request
    reasons: dict[str, str]  # why the worker is not ready
    metrics: list[Family]


_requests, _states = msgspec.json.Decoder(_Request), msgspec.json.Decoder(_State)


class Alone:
    """The only process."""

    first: Final = True
    bound: Final = None

    def page(self, readiness: Readiness) -> web.Application:
        """Return the pages of this process."""
        return observability_app(readiness)

    def services(self, _readiness: Readiness) -> list[Service]:
        """Return nothing: there is nobody to follow."""
        return []

    async def finish(self, drain: Drained) -> None:
        """Drain this process."""
        await drain()

    def check(self) -> None:
        """Do nothing: no worker can have ended."""


class Worker:
    """Another process than the first."""

    first: Final = False

    def __init__(self, bound: Bound, channel: socket.socket) -> None:
        self.bound = bound
        self._channel = channel

    def page(self, _readiness: Readiness) -> None:
        """Return no application: the first process answers for this one."""
        return

    def services(self, readiness: Readiness) -> list[Service]:
        """Return what tells the first process the state of this one."""
        return [partial(self._answer, readiness)]

    async def finish(self, drain: Drained) -> None:
        """Drain this process."""
        await drain()

    def check(self) -> None:
        """Do nothing: the first process reports failures."""

    async def _answer(self, readiness: Readiness) -> NoReturn:
        reader, writer = await asyncio.open_connection(sock=self._channel)
        try:
            while line := await reader.readline():
                asked = _requests.decode(line)
                reasons = readiness.reasons
                metrics.ready.set(not reasons)
                found = snapshot() if asked.metrics else []
                writer.write(msgspec.json.encode(_State(asked.number, reasons, found)) + b"\n")
                await writer.drain()
            await asyncio.Event().wait()  # the first has ended: a signal is on its way
        finally:
            writer.close()
        raise AssertionError  # it waits for ever


class Other:
    """A worker, as the first process sees it."""

    def __init__(self, number: int, process: int, channel: socket.socket) -> None:
        self.name = f"worker {number}"
        self.process = process
        self.channel = channel
        self.ended = asyncio.Event()
        self._turn = asyncio.Lock()
        self._asked = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def state(self, *, with_metrics: bool = False) -> _State:
        """Ask the worker. Raises TimeoutError, and EOFError if it has ended."""
        async with self._turn, asyncio.timeout(_ANSWER_SECONDS):
            if self._streams is None:
                opened = await asyncio.open_connection(sock=self.channel, limit=_LONGEST)
                self._streams = opened
            reader, writer = self._streams
            self._asked += 1
            writer.write(msgspec.json.encode(_Request(self._asked, with_metrics)) + b"\n")
            while line := await reader.readline():
                # An answer that came too late for its own request is skipped.
                if (found := _states.decode(line)).number == self._asked:
                    return found
        raise EOFError

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit status, negative: a signal."""
        _, status = await asyncio.to_thread(os.waitpid, self.process, 0)
        self.ended.set()
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Close the socket."""
        if self._streams is not None:
            self._streams[1].close()


async def _report(other: Other, report: Callable[[str | None], None]) -> None:
    """Report why a worker is not ready, None: it is; return when it ends."""
    while True:
        try:
            reasons = (await other.state()).reasons
        except TimeoutError:
            report("does not answer")
        except (EOFError, OSError):
            return
        else:
            report("; ".join(f"{name}: {why}" for name, why in reasons.items()) or None)
        await asyncio.sleep(_ASK_SECONDS)


class First:
    """The first process."""

    first: Final = True

    def __init__(self, bound: Bound, others: list[Other], held: int) -> None:
        """`held` is the descriptor of a pipe that workers wait for to be closed."""
        self.bound = bound
        self._others = others
        self._held = held
        self._stopping = False
        self._failed: str | None = None

    def page(self, readiness: Readiness) -> web.Application:
        """Return the pages of all processes."""
        for other in self._others:
            readiness.waiting(other.name, "starting")
        return observability_app(readiness, self._metrics)

    def services(self, readiness: Readiness) -> list[Service]:
        """Return what follows the other processes."""
        return [partial(self._follow, other, readiness) for other in self._others]

    async def finish(self, drain: Drained) -> None:
        """Drain all processes, and wait for the others to end."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        await drain()
        try:
            async with asyncio.timeout(_END_SECONDS):
                for other in self._others:
                    await other.ended.wait()
        except TimeoutError:
            log.warning("workers_cut_off", after=_END_SECONDS)
            self._signal(signal.SIGKILL)

    def check(self) -> None:
        """Raise RuntimeError if a worker has ended by itself."""
        if self._failed is not None:
            raise RuntimeError(self._failed)

    def _signal(self, number: signal.Signals) -> None:
        for other in self._others:
            if not other.ended.is_set():
                os.kill(other.process, number)

    async def _metrics(self) -> bytes:
        """Return the metrics of all processes. Raises HTTPServiceUnavailable: never a part."""
        states: list[_State] = []
        for other in self._others:
            try:
                states.append(await other.state(with_metrics=True))
            except (TimeoutError, EOFError, OSError) as error:
                raise web.HTTPServiceUnavailable(text=f"{other.name} does not answer\n") from error
        return merged_page([snapshot(), *(state.metrics for state in states)])

    async def _follow(self, other: Other, readiness: Readiness) -> NoReturn:
        """Report a worker's readiness until it ends, which ends all."""
        try:
            await _report(other, readiness.reporter(other.name))
        finally:
            other.close()
        status = await other.wait()
        if not self._stopping and self._failed is None:
            self._failed = f"{other.name} ended by itself with status {status}"
            log.error("worker_ended", worker=other.name, status=status)
            readiness.waiting(other.name, "ended")
            signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()
        raise AssertionError  # it waits for ever


Crew = Alone | First | Worker  # what a process is


def fork(settings: Settings) -> Crew:
    """Start the other processes; return what this one is, and in each of these what it is.

    Called before any thread and event loop. Raises Misconfigured if the address is not available.
    """
    # Imported before: processes share the memory of what is there at the fork, and is not written.
    with without_collections():
        from kube_sync.processes import admitting  # noqa: F401, PLC0415

    bound = asyncio.run(bind(parse_listen("admission.listen", settings.admission.listen)))
    ends, held = os.pipe()
    others: list[Other] = []
    gc.freeze()
    for number in range(1, settings.admission.workers):
        mine, theirs = socket.socketpair()
        process = os.fork()
        if not process:
            for other in others:
                other.channel.close()
            mine.close()
            os.close(held)
            return _forked(number, bound, theirs, ends)
        theirs.close()
        others.append(Other(number, process, mine))
    os.close(ends)
    return First(bound, others, held)


def _forked(number: int, bound: Bound, channel: socket.socket, ends: int) -> Worker:
    """Return a new process; it gets SIGTERM when the first has ended, however that comes."""
    os.setsid()  # a terminal's Ctrl-C is for the first

    def wait() -> None:
        os.read(ends, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
    add_to_records(worker=number)
    return Worker(bound, channel)
