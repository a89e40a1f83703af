"""Ten thousand events within a second: how many reconciles they lead to, and how late each is told.

They come through Reflectors, in process, at an even rate of the clock on the wall. Each reconcile
computes every effective policy; what that takes is its own, so it is left out of the time in which
nobody else could run. That is CPU time: what other processes do is left out too.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress

from kube_sync.kube.collection import Event, Page, ResourceVersion
from kube_sync.kube.reflector import Reflector
from kube_sync.topology.controller.controller import Controller
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.workflow import Reconciliation
from kube_sync.topology.controller.world import World
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import Kind, kind_of
from tests.fakes.topologies import API, Object, route
from tests.fakes.worlds import KINDS, Kinds, item_of

_EVENTS, _SECONDS = 10_000, 1.0
_TICK = 0.001  # seconds
_PATIENCE = 60.0  # seconds


def measure_burst(objects: list[Object], routes: int, runs: int) -> dict[str, float]:
    """Change `routes` of a world over and over; events are numbered by their resourceVersion."""
    bursts = [asyncio.run(_Burst(objects, routes).run()) for _ in range(runs)]
    delays = sorted(itertools.chain.from_iterable(burst.delays for burst in bursts))
    return {
        f"topology, {_EVENTS} events in a second, reconciles": statistics.median(
            burst.reconciles for burst in bursts
        ),
        "topology, an event until it is reconciled, 99th percentile (ms)": 1e3
        * delays[int(len(delays) * 0.99)],
        "topology, the last event until it is reconciled (ms)": 1e3
        * statistics.median(burst.delays[-1] for burst in bursts),
        "topology, burst, longest time nobody else could run (ms)": 1e3
        * statistics.median(burst.blocked for burst in bursts),
    }


class _Source:
    """One collection, listed once, and then watched."""

    def __init__(self, kind: Kind, objects: list[Object]) -> None:
        self._items = [item_of(body) for body in objects if kind_of(body) == kind.id]
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    async def list(self) -> AsyncGenerator[Page]:
        """Yield pages as an API server does."""
        for start in range(0, len(self._items), 500):
            yield Page(self._items[start : start + 500], ResourceVersion("0"))

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield what happens."""
        yield Event("CONNECTED", since)
        while True:
            yield await self.events.get()


class _Burst:
    """One run: a world of its own, and what came of it."""

    held = True  # the Lease

    def __init__(self, objects: list[Object], routes: int) -> None:
        self.delays: list[float] = []
        self.reconciles = 0
        self.blocked = 0.0
        self._own = 0.0  # seconds that reconciles took since somebody else ran
        self._sent: deque[tuple[int, float]] = deque()
        self._events = [_change(number, routes) for number in range(1, _EVENTS + 1)]
        news = asyncio.Event()
        world = World(news.set)
        self._live = LiveTopology(world, Kinds(), API.kinds, API.links)
        controller = Controller(self._live, news, self._reconcile, self, lambda _: None)
        self._loops: list[Awaitable[None]] = [controller.run(), self._watch_others()]
        for kind in KINDS.values():
            source = _Source(kind, objects)
            store = world.store(kind)
            self._loops.append(Reflector(str(kind.id), source, store, lambda _: None).run())
            if kind.id == kind_of(route()):
                self._queue = source.events
        self._loaded = asyncio.Event()
        self._told = asyncio.Event()

    async def run(self) -> _Burst:
        """Load the world, then send all events; returns when the last one was reconciled."""
        tasks = [asyncio.ensure_future(loop) for loop in self._loops]
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._loaded.wait()
                self.reconciles, self.blocked = 0, 0.0
                await self._send()
                await self._told.wait()
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
        return self

    async def _send(self) -> None:
        begun, waiting = time.perf_counter(), deque(self._events)
        while waiting:
            due = int((time.perf_counter() - begun) / _SECONDS * _EVENTS)
            while waiting and _EVENTS - len(waiting) <= due:
                event = waiting.popleft()
                self._sent.append((int(event.version), time.perf_counter()))
                self._queue.put_nowait(event)
            await asyncio.sleep(_TICK)

    async def _reconcile(self, reconciliation: Reconciliation) -> None:
        begun = time.process_time()
        newest = max(
            int(node.body["metadata"].get("resourceVersion", 0))
            for node in reconciliation.topology.nodes()
            if node.owner is None
        )
        for _ in reconciliation.topology.effective(COLOR_POLICY.id):
            pass
        self.reconciles += 1
        ended = time.perf_counter()
        while self._sent and self._sent[0][0] <= newest:
            self.delays.append(ended - self._sent.popleft()[1])
        (self._told if newest == _EVENTS else self._loaded).set()
        self._own += time.process_time() - begun

    async def _watch_others(self) -> None:
        while True:
            self._own, begun = 0.0, time.process_time()
            await asyncio.sleep(_TICK)
            self.blocked = max(self.blocked, time.process_time() - begun - self._own)


def _change(number: int, routes: int) -> Event:
    """Return a change of a route: another hostname, and of one in ten another gateway."""
    name, turn = f"route-{number % routes}", number // routes
    parent = "none" if (number + turn) % 10 == 0 else "my-gateway"
    version = ResourceVersion(str(number))
    body = route(
        name,
        parentRefs=[{"name": parent}],
        hostnames=[f"v{turn}.{name}.example.com"],
    )
    body["metadata"]["resourceVersion"] = version
    return Event("MODIFIED", version, item_of(body))
