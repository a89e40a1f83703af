"""Count the Applications that are deleted under each fault, for each way to choose clusters.

An Application counts as deleted if its uid is gone, so one that was made again counts too. All
ways have all their Applications before a fault, and have them again before the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from tools.servers.console import say, step
from tools.soak.argocd.faults import FAULTS, Estate, Fault
from tools.soak.argocd.fleet import WAYS, application_set, known_cluster, policy, profile
from tools.soak.argocd.scene import REMEDIATOR, REPLICATOR, Scene, until

_MANY = 100  # Applications


@dataclass(frozen=True, slots=True)
class Row:
    """How many Applications were deleted under one fault, by way."""

    fault: str
    deleted: dict[str, int]


def estate_of(sets: int, clusters: int) -> Estate:
    """Return an estate of so many ApplicationSets of each way, and so many clusters."""
    # Of many, a controller that looks every few seconds would do nothing else.
    every = 5 if sets * clusters < _MANY else 600
    return Estate(sets, [f"c{number:03}" for number in range(clusters)], every)


async def furnish(scene: Scene, estate: Estate) -> None:
    """Create fleet, policy and ApplicationSets, start everything, await all Applications."""

    def create() -> None:
        for name in estate.clusters:
            scene.api.create(profile(name))
            scene.api.create(known_cluster(name))
        scene.api.apply(policy())
        for way in WAYS:
            for number in range(estate.sets):
                scene.api.apply(application_set(way, number, every=estate.every))
        for command in (REPLICATOR, REMEDIATOR):
            scene.start(command)
        scene.start_controller()

    await asyncio.to_thread(create)
    await complete(scene, estate)


async def complete(scene: Scene, estate: Estate) -> None:
    """Wait until each way has all its Applications."""
    await scene.reconciled(_names(estate))
    each = estate.sets * len(estate.clusters)
    await until(
        f"each way has {each} Applications",
        lambda: _by_way(scene.applications()) == dict.fromkeys(WAYS, each),
        seconds=300,
    )


async def rows(
    scene: Scene, estate: Estate, faults: Sequence[Fault] = FAULTS
) -> AsyncGenerator[Row]:
    """Yield a row for each fault, one after the other."""
    for fault in faults:
        with step(fault.name):
            before = await asyncio.to_thread(scene.applications)
            await fault.strike(scene, estate)
            await scene.reconciled(_names(estate))
            after = await asyncio.to_thread(scene.applications)
            await fault.heal(scene, estate)
            await complete(scene, estate)
        gone = {name: uid for name, uid in before.items() if after.get(name) != uid}
        yield Row(fault.name, {way: _by_way(gone).get(way, 0) for way in WAYS})


def heading(estate: Estate) -> str:
    """Return the heading of the table."""
    each = estate.sets * len(estate.clusters)
    return (
        f"Applications deleted, of {each} each\n"
        f"{'fault':28}{'cluster generator':>19}{'PlacementDecision':>19}{'plugin generator':>18}"
    )


def line(row: Row) -> str:
    """Return one line of the table."""
    return f"{row.fault:28}" + "".join(
        f"{row.deleted[way]:>{width}}" for way, width in zip(WAYS, (19, 19, 18), strict=True)
    )


def told(row: Row) -> None:
    """Say how a fault went."""
    say(line(row))


def _names(estate: Estate) -> list[str]:
    return [f"{way}-{number}" for way in WAYS for number in range(estate.sets)]


def _by_way(applications: dict[str, str]) -> dict[str, int]:
    return dict(Counter(name.partition("-")[0] for name in applications))
