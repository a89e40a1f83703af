"""The soak of decisions by class from its set-up to its report."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from benchmarks.load import Target
from benchmarks.wrk import per_second
from tools.servers.console import say
from tools.servers.stack import RunningStack
from tools.soak.classes.churn import Churn
from tools.soak.classes.faults import ON, VERIFY, order
from tools.soak.classes.policies import inputs, reviews
from tools.soak.classes.report import Counts, Report
from tools.soak.classes.servers import prepare, start
from tools.soak.classes.witness import Witness, witness
from tools.soak.run import beside
from tools.soak.scene import Scene, soak_scene

_OBJECTS = 105  # reviewed, each of another class when the policy reads everything
_WITNESSED = 12  # of them
_CONNECTIONS = 16  # of the load on the webhook that verifies
_FEW_CONNECTIONS = 2  # of that on the other, which answers many times faster
_SLICE = 5.0  # seconds of load
_PAUSE = 3.0  # seconds between two slices of a second on the other
_LOOK = 1.0  # seconds between two looks at the counters
_PROGRESS = 10.0  # seconds
_STALLED = 120.0  # seconds in which nothing is verified, or settles in the end
_AT_THE_END = 100  # answers that agree when nothing changes any more
_COUNTED = re.compile(
    r'^kube_sync_admission_class_answers_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE
)


class Stalled(Exception):
    """Nothing more was verified; says since when."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for; times in seconds."""

    reviews: int  # to verify
    seed: int
    fault_every: float = 15.0
    gap: float = 2.0  # mean time between two changes
    code: Path | None = None  # a folder with another `kube_sync` for the replicator


class ClassSoak:
    """One run; whatever it has found until it is stopped is in `report`."""

    def __init__(self, options: Options) -> None:
        self.report = Report(options.reviews, options.seed)
        self._options = options
        self._begun = time.monotonic()

    async def run(self, stack: RunningStack, folder: Path, stop: asyncio.Event) -> Report:
        """Run it until so many reviews are verified, or until `stop` is set. Raises Stalled."""
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        async with soak_scene(stack, folder) as scene:
            await prepare(stack, scene.bare)
            churn = Churn(scene.bare, _seeded(self._options.seed), self._options.gap)
            await churn.set_up()
            webhooks = await start(scene, folder, self._options.code)
            manifests = inputs(_OBJECTS)
            bodies = reviews(manifests)
            targets = {mode: replace(found, bodies=bodies) for mode, found in webhooks.items()}
            seen = manifests[:_WITNESSED]
            async with witness(stack, targets[ON], seen) as found:
                await self._under_load(scene, churn, found, targets, stop)
        return self.report

    async def _under_load(
        self,
        scene: Scene,
        churn: Churn,
        found: Witness,
        targets: dict[str, Target],
        stop: asyncio.Event,
    ) -> None:
        ended = asyncio.Event()
        self._begun = time.monotonic()
        async with asyncio.TaskGroup() as group, beside(found.run()):
            group.create_task(_load(targets[VERIFY], _SLICE, _CONNECTIONS, 0.0, ended))
            group.create_task(_load(targets[ON], 1.0, _FEW_CONNECTIONS, _PAUSE, ended))
            try:
                async with beside(self._look(scene, churn, found)):
                    async with beside(churn.run()), beside(self._faults(scene, churn)):
                        self.report.complete = await self._until(
                            stop, lambda: self.report.verified, self._options.reviews
                        )
                    if self.report.complete:
                        await self._settled(scene, stop)
            finally:
                ended.set()

    async def _settled(self, scene: Scene, stop: asyncio.Event) -> None:
        """Wait until, without changes and faults, answers are reused and agree."""
        for proxy in (scene.ways.kube, scene.ways.opa, scene.ways.stream, scene.ways.watches):
            proxy.calm()
        for name, server in scene.servers.items():
            if not server.alive():  # the last fault was interrupted
                await scene.start(name)
        report = self.report
        reused = report.giving.get("reused", 0) + _AT_THE_END
        agreed = report.witnessed["agreed"] + _AT_THE_END
        await self._until(stop, lambda: report.giving.get("reused", 0), reused)
        await self._until(stop, lambda: report.witnessed["agreed"], agreed)

    async def _until(self, stop: asyncio.Event, count: Callable[[], int], wanted: int) -> bool:
        """Wait until there are so many, false if it was stopped. Raises Stalled."""
        last, since = count(), time.monotonic()
        while not stop.is_set():
            if (now := count()) >= wanted:
                return True
            if now > last:
                last, since = now, time.monotonic()
            if time.monotonic() - since > _STALLED:
                msg = f"{last} of {wanted}, and no more for {_STALLED:.0f} s"
                raise Stalled(msg)
            await asyncio.sleep(_LOOK / 2)
        return False

    async def _faults(self, scene: Scene, churn: Churn) -> None:
        chance = _seeded(self._options.seed + 1)
        for fault in order(chance):
            await asyncio.sleep(self._options.fault_every)
            at = time.monotonic() - self._begun
            say(f"{at:6.0f} s  fault: {fault.name}, after {churn.counts.total()} changes")
            await fault.act(scene, chance)
            self.report.faults[fault.name] += 1

    async def _look(self, scene: Scene, churn: Churn, found: Witness) -> None:
        """Keep the report current, and say where it is, until cancelled."""
        due = 0.0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROGRESS)) as session:
            while True:
                report = self.report
                report.seconds = time.monotonic() - self._begun
                report.verifying = await _counts(session, scene, VERIFY, report.verifying)
                report.giving = await _counts(session, scene, ON, report.giving)
                report.witnessed, report.differences = found.counts, found.differences
                report.unanswered = found.failed
                report.changes, report.failed_changes = churn.counts, churn.failed
                report.restarts = scene.starts
                if report.seconds >= due:
                    due = report.seconds + _PROGRESS
                    say(report.progress())
                await asyncio.sleep(_LOOK)


async def _load(
    target: Target, seconds: float, connections: int, pause: float, ended: asyncio.Event
) -> None:
    """Send reviews for so many seconds, again and again with a pause, until it has ended."""
    while not ended.is_set():
        await per_second(target, seconds, connections)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await ended.wait()


async def _counts(session: aiohttp.ClientSession, scene: Scene, mode: str, last: Counts) -> Counts:
    """Return the answers of a webhook by outcome; the last ones if it stands still."""
    try:
        async with session.get(scene.services[mode].url + "/metrics") as response:
            found = _COUNTED.findall(await response.text())
    except (aiohttp.ClientError, TimeoutError):
        return last
    return {outcome: int(float(count)) for outcome, count in found}


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not a secret
