"""What goes wrong: one thing at a time, each undone after some seconds, in the order of a seed.

A fault that loses OPA or the webhook opens a window: until the policies answer again, what cannot
be decided is denied, as it should be. Every other fault explains no denial.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from tools.soak.scene import ADMIT, REMEDIATE, REPLICATE, Scene

_EXPIRED = json.dumps(
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
)
_WATCHES = (b"/replicasets?watch=1", b"/clusterprofiles?watch=1", b"/configmaps?watch=1")
_DOWN = 3.0  # seconds at most that what was killed stays away
_STILL = (2.0, 6.0)  # seconds
_SLOW = (0.02, 0.1)  # seconds for each piece of what OPA is sent and answers
_SLOW_FOR = 5.0  # seconds
_COLLECTIONS = ("clusters", "replicasets")

Act = Callable[[Scene, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind: what it does (and undoes), and whether OPA or the webhook is lost by it."""

    name: str
    act: Act
    loses: bool = False


def _killed(name: str) -> Act:
    async def act(scene: Scene, chance: random.Random) -> None:
        away = chance.uniform(0, _DOWN)
        await scene.kill(name)
        await asyncio.sleep(away)
        await scene.start(name)

    return act


def _still(name: str) -> Act:
    async def act(scene: Scene, chance: random.Random) -> None:
        seconds = chance.uniform(*_STILL)
        scene.freeze(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            scene.thaw(name)

    return act


async def _wiped(scene: Scene, _: random.Random) -> None:
    for name in _COLLECTIONS:
        await scene.bare.put(f"kubernetes/{name}", b"{}")
    await scene.bare.put("kube_sync/epoch", b"{}")


async def _slow(scene: Scene, chance: random.Random) -> None:
    scene.ways.opa.delay = chance.uniform(*_SLOW)
    try:
        await asyncio.sleep(_SLOW_FOR)
    finally:
        scene.ways.opa.delay = 0.0


async def _cut(scene: Scene, _: random.Random) -> None:
    scene.ways.cut()


async def _expired(scene: Scene, _: random.Random) -> None:
    for wanted in _WATCHES:
        scene.ways.watches.inject(wanted, _EXPIRED.encode() + b"\n")


FAULTS = (
    Fault("OPA killed", _killed("opa"), loses=True),
    Fault("OPA wiped", _wiped, loses=True),
    Fault("OPA stopped", _still("opa"), loses=True),
    Fault("OPA slow", _slow),
    Fault("replicator killed", _killed(REPLICATE)),
    Fault("replicator stopped", _still(REPLICATE)),
    Fault("remediator killed", _killed(REMEDIATE)),
    Fault("remediator stopped", _still(REMEDIATE)),
    Fault("webhook killed", _killed(ADMIT), loses=True),
    Fault("webhook stopped", _still(ADMIT), loses=True),
    Fault("API server killed", _killed("kube-apiserver")),
    Fault("connections cut", _cut),
    Fault("watches expired", _expired),
)


def order(chance: random.Random, names: Sequence[str] = ()) -> Iterator[Fault]:
    """Yield faults for ever, of these names or of all: each once before any comes again."""
    kinds = [fault for fault in FAULTS if not names or fault.name in names]
    while True:
        yield from chance.sample(kinds, len(kinds))
