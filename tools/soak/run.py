"""A soak from its set-up to its report: load, faults, samples and progress side by side."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from tools.servers.console import say
from tools.servers.stack import RunningStack
from tools.soak.checks import Checks, Diverged
from tools.soak.faults import Fault, order
from tools.soak.load import Load
from tools.soak.memory import Sample
from tools.soak.report import FaultDone, Report
from tools.soak.scene import Scene, soak_scene, start_services
from tools.soak.stream import Told, follow
from tools.soak.tally import Tally
from tools.soak.windows import Window, outside

_PROGRESS = 10.0  # seconds
_SAMPLE = 2.0  # seconds
_LOOKED_AT = 50  # objects after each fault
_LOOKED_INTO = 10  # namespaces after each fault
_CHECKPOINT = 5  # faults
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for; times in seconds, `faults` are the kinds (none: all)."""

    seconds: float
    objects: int
    clusters: int
    policies: int
    rate: float
    seed: int
    fault_every: float = 60.0
    faults: tuple[str, ...] = ()
    patience: float = 120.0


class Soak:
    """One run; whatever it has found until it is stopped is in `report`."""

    def __init__(self, options: Options) -> None:
        self.tally = Tally()
        self.report = Report(asdict(options), self.tally)
        self._options = options
        self._told = Told()
        self._phase = ""

    async def run(self, stack: RunningStack, folder: Path, stop: asyncio.Event) -> Report:
        """Run it to its end, or until `stop` is set."""
        self.report.machine = {"cores": os.cpu_count(), "load_before": os.getloadavg()}
        async with beside(stop.wait()) as stopped:
            task = asyncio.create_task(self._run(stack, folder))
            try:
                await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            finally:
                task.cancel()
                await asyncio.wait([task])
                self.report.machine["load_after"] = os.getloadavg()
        if not task.cancelled():
            task.result()
        return self.report

    async def _run(self, stack: RunningStack, folder: Path) -> None:
        options = self._options
        async with soak_scene(stack, folder) as scene, beside(follow(stack, self._told)):
            chance = _seeded(options.seed)
            load = Load(scene.bare, chance, self.tally, options.objects, options.clusters)
            checks = Checks(scene, self._told, options.clusters, load.spaces, options.patience)
            async with beside(self._progress(scene, load)):
                await self._set_up(scene, load, checks, folder)
                await self._under_load(scene, load, checks)
                await self._at_the_end(load, checks)
        self.report.complete = True

    async def _set_up(self, scene: Scene, load: Load, checks: Checks, folder: Path) -> None:
        options = self._options
        with self._step("policies and clusters"):
            await load.set_up_policies(options.policies)
            await load.set_up_clusters()
        with self._step("objects"):
            await load.set_up_objects(options.objects)
        with self._step("services and first load"):
            await start_services(scene, folder)
            await checks.answering()
            await checks.current([])

    async def _under_load(self, scene: Scene, load: Load, checks: Checks) -> None:
        self._phase = "load"
        self.report.begun = self.tally.now
        try:
            async with (
                beside(self._measure(scene)),
                beside(load.run(self._options.rate)) as changing,
            ):
                await self._faults(scene, load, checks, changing)
        finally:
            self.report.ended = self.tally.now

    async def _faults(
        self, scene: Scene, load: Load, checks: Checks, changing: asyncio.Task[None]
    ) -> None:
        """Do one thing wrong after the other, until the time is over or nothing changes.

        What became of each is looked at beside the next ones.
        """
        end = self.report.begun + self._options.seconds
        due = self.report.begun
        chance = _seeded(self._options.seed + 1)
        due_look = asyncio.Event()
        async with (
            beside(self._checkpoints(load, checks, due_look)),
            asyncio.TaskGroup() as looks,
        ):
            for number, fault in enumerate(order(chance, self._options.faults), 1):
                due = max(due + self._options.fault_every, self.tally.now)
                await asyncio.wait([changing], timeout=max(0.0, min(due, end) - self.tally.now))
                if due >= end or changing.done():
                    return
                done, what = await self._fault(scene, checks, fault, chance)
                keys = chance.sample(load.alive, min(_LOOKED_AT, len(load.alive)))
                spaces = chance.sample(load.spaces, min(_LOOKED_INTO, len(load.spaces)))
                looks.create_task(self._recovery(done, what, checks.current(keys, spaces)))
                if number % _CHECKPOINT == 0:
                    due_look.set()

    async def _checkpoints(self, load: Load, checks: Checks, due: asyncio.Event) -> None:
        """Compare everything when it is due; the next faults do not wait for it."""
        while await due.wait():
            due.clear()
            when = f"checkpoint after fault {len(self.report.faults)}"
            await self._look(when, checks.whole(load.spaces))
            self.report.checkpoints += 1

    async def _fault(
        self, scene: Scene, checks: Checks, fault: Fault, chance: random.Random
    ) -> tuple[FaultDone, str]:
        """Do it, wait until the policies answer again, and return it and what to call it."""
        begun = self.tally.now
        window = Window(fault.name, begun)
        if fault.loses:
            self.tally.windows.append(window)
        say(f"{begun - self.report.begun:6.0f} s  fault: {fault.name}")
        checks.disturb()
        await fault.act(scene, chance)
        checks.disturb()
        done = FaultDone(fault.name, begun, self.tally.now)
        self.report.faults.append(done)
        what = f"after fault {len(self.report.faults)} ({fault.name})"
        if fault.loses and await self._look(what, checks.answering()):
            window.ended = self.tally.now
            done.answering = window.ended - done.ended
        return done, what

    async def _recovery(
        self, done: FaultDone, what: str, look: Coroutine[None, None, None]
    ) -> None:
        if await self._look(what, look):
            done.recovered = self.tally.now - done.ended

    async def _at_the_end(self, load: Load, checks: Checks) -> None:
        self._phase = "last look"
        found = self.report.checked
        await self._look("at the end", checks.current([]))
        looks = {
            "decisions asked afresh": checks.all_decided(load.spaces),
            "placements worked out": checks.placements(load.spaces),
            "objects compared whole": checks.whole(load.spaces),
            "policies compared": checks.editions(),
        }
        for name, look in looks.items():
            found[name] = await self._look("at the end", look)

    async def _look(self, when: str, look: Coroutine[None, None, int | None]) -> int:
        """Return what a look counted (1 where it counts nothing), 0 where it found a divergence."""
        try:
            return await look or 1
        except Diverged as error:
            self.report.divergences.append(f"{when}: {error}")
            say(f"DIVERGED {when}: {error}")
            return 0

    async def _measure(self, scene: Scene) -> None:
        """Take samples of all servers' memory until cancelled."""
        while True:
            for name, server in scene.servers.items():
                if kb := await asyncio.to_thread(server.rss_bytes) / 1024:
                    sample = Sample(self.tally.now, scene.starts[name], kb)
                    self.report.samples.setdefault(name, []).append(sample)
            await asyncio.sleep(_SAMPLE)

    async def _progress(self, scene: Scene, load: Load) -> None:
        """Say where it is, until cancelled."""
        asked = 0
        while True:
            await asyncio.sleep(_PROGRESS)
            tally = self.tally
            rate, asked = max(0, tally.asked - asked) / _PROGRESS, tally.asked
            bad = len(outside(tally.denials, tally.windows)) + len(tally.let_through)
            sizes = [f"{name} {s.rss_bytes() >> 20}" for name, s in scene.services.items()]
            at = tally.now - self.report.begun
            say(
                f"{at:6.0f} s  {self._phase}: {len(load.alive)} objects, {rate:.0f} changes/s, "
                f"{len(self.report.faults)} faults, {len(tally.denials)} denials, {bad} of them "
                f"without a cause, {len(self.report.divergences)} divergences; "
                f"MB: opa {scene.stack.opa.rss_bytes() >> 20}, {', '.join(sizes)}"
            )

    @contextmanager
    def _step(self, name: str) -> Generator[None]:
        self._phase = name
        begun = self.tally.now
        yield
        self.report.setup[name] = round(self.tally.now - begun, 1)
        say(f"{name}: {self.report.setup[name]:.1f} s")


@asynccontextmanager
async def beside(coroutine: Coroutine[None, None, _T]) -> AsyncGenerator[asyncio.Task[_T]]:
    """Run something beside the block, and end it with the block; an error of its own is raised."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not a secret
