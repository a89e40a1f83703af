"""What goes wrong between OPA, the replicator and the webhooks: one thing at a time.

A wiped OPA is not among it: who changes OPA's data by hand changes its answers, and the replicator
knows of it with its next audit only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

from tools.soak.faults import FAULTS, Act, Fault
from tools.soak.scene import REPLICATE, Scene

VERIFY, ON = "verify", "on"  # the webhooks, by their mode

_SHARED = (
    "OPA killed",
    "OPA stopped",
    "OPA slow",
    "replicator killed",
    "replicator stopped",
    "API server killed",
    "connections cut",
    "watches expired",
)
_AWAY = (0.0, 3.0)  # seconds that what was ended stays away
_STILL = (0.5, 4.0)  # seconds
_LATE = (0.1, 1.2)  # seconds for each piece of a report: on both sides of what it holds for
_LATE_ACKNOWLEDGED = (0.1, 0.5)  # seconds for each piece of what OPA is sent and answers
_LATE_FOR = 5.0  # seconds
_CUTS = 8


def _restarted(name: str) -> Act:
    async def act(scene: Scene, chance: random.Random) -> None:
        away = chance.uniform(*_AWAY)
        await scene.stop(name)
        await asyncio.sleep(away)
        await scene.start(name)

    return act


async def _stream_cut(scene: Scene, chance: random.Random) -> None:
    for _ in range(_CUTS):
        scene.ways.stream.cut()
        await asyncio.sleep(chance.uniform(0.0, 0.5))


async def _stream_refused(scene: Scene, chance: random.Random) -> None:
    scene.ways.stream.refusing = True
    scene.ways.stream.cut()
    await _calm_after(chance.uniform(*_STILL), scene.ways.stream.calm)


async def _stream_stalled(scene: Scene, chance: random.Random) -> None:
    scene.ways.stream.stall()
    await _calm_after(chance.uniform(*_STILL), scene.ways.stream.calm)


async def _stream_late(scene: Scene, chance: random.Random) -> None:
    scene.ways.stream.delay = chance.uniform(*_LATE)
    await _calm_after(_LATE_FOR, scene.ways.stream.calm)


async def _acknowledged_late(scene: Scene, chance: random.Random) -> None:
    scene.ways.opa.delay = chance.uniform(*_LATE_ACKNOWLEDGED)
    await _calm_after(_LATE_FOR, scene.ways.opa.calm)


async def _watches_late(scene: Scene, chance: random.Random) -> None:
    scene.ways.watches.stall()
    await _calm_after(chance.uniform(*_STILL), scene.ways.watches.calm)


async def _webhook_still(scene: Scene, chance: random.Random) -> None:
    scene.freeze(ON)
    await _calm_after(chance.uniform(*_STILL), lambda: scene.thaw(ON))


async def _calm_after(seconds: float, calm: Callable[[], None]) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        calm()


CLASS_FAULTS = (
    *(fault for fault in FAULTS if fault.name in _SHARED),
    Fault("OPA restarted", _restarted("opa")),
    Fault("replicator restarted", _restarted(REPLICATE)),
    Fault("stream cut", _stream_cut),
    Fault("stream refused", _stream_refused),
    Fault("stream stalled", _stream_stalled),
    Fault("stream late", _stream_late),
    Fault("writes acknowledged late", _acknowledged_late),
    Fault("watches stalled", _watches_late),
    Fault("webhook stopped", _webhook_still),
)


def order(chance: random.Random) -> Iterator[Fault]:
    """Yield faults for ever: each once before any comes again."""
    while True:
        yield from chance.sample(CLASS_FAULTS, len(CLASS_FAULTS))
