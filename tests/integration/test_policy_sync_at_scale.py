"""50 policies on 100 clusters: as many writes as there are changes, by the API server's audit log.

The hub is a real API server; what the agents of the spokes would say is written by the test.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.bare import bare_client
from benchmarks.fleet import Fleet, create_fleet
from tools.servers.running import Launcher, RunningServer
from tools.servers.stack import furnished_stack

pytestmark = pytest.mark.slow

_CLUSTERS = int(os.environ.get("KUBE_SYNC_CLUSTERS", "100"))
_POLICIES = int(os.environ.get("KUBE_SYNC_POLICIES", "50"))
_SETTLED = 2.0  # seconds without a write
_TOLD = 5.0  # seconds between two statuses of a policy on 100 clusters
_WORK = ("patch", "manifestworks")
_GONE = ("delete", "manifestworks")
_STATUS = ("patch", "colorpolicies/status")
_NOTE = ("patch", "colorpolicies")
_CLASS = ("patch", "gatewayclasses/status")
_SYNCED = "kube-sync.io/Synced"


@dataclass
class World:
    """A fleet, and the process that syncs its policies."""

    fleet: Fleet
    server: RunningServer


@asynccontextmanager
async def _world(launcher: Launcher, folder: Path) -> AsyncGenerator[World]:
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        async with bare_client(stack) as bare:
            fleet = await create_fleet(stack, bare, _CLUSTERS, _POLICIES)
            await fleet.place(fleet.clusters)
            server = await asyncio.to_thread(fleet.start, folder / "policy-sync")
            try:
                yield World(fleet, server)
            finally:
                server.stop()


Story = Callable[[World], Awaitable[None]]


async def _it_starts(world: World) -> None:
    """A work for each policy on each cluster; of each policy, where it is and how it stands."""
    fleet = world.fleet
    await fleet.until(lambda writes: writes[_WORK] >= _CLUSTERS * _POLICIES)
    await fleet.quiet(_SETTLED)
    each = {_NOTE: _POLICIES, _STATUS: _POLICIES, _CLASS: 1}
    assert fleet.writes == {_WORK: _CLUSTERS * _POLICIES, **each}
    assert len(await fleet.works()) == _CLUSTERS * _POLICIES


async def _all_clusters_answer(world: World) -> None:
    """What is told of a policy goes to the policy, and to nothing else."""
    fleet = world.fleet
    works = await fleet.works()
    fleet.forget()
    begun = time.time()
    await fleet.answer(works)
    await fleet.quiet(_SETTLED + _TOLD)
    assert fleet.writes.keys() <= {_STATUS, _NOTE}
    # Every policy is told at once, then now and then, and in the end the last answer.
    most = 2 + (fleet.last - begun) / (_TOLD * _CLUSTERS / 100)
    assert _POLICIES <= fleet.writes[_STATUS] <= _POLICIES * most
    status = await fleet.status(fleet.policies[-1])
    assert status == {_SYNCED: "Synced", "Accepted": "Accepted", "Programmed": "Programmed"}


async def _one_policy_is_edited(world: World) -> None:
    """One update a cluster, and one note and status on that policy: no cluster has said more."""
    fleet = world.fleet
    fleet.forget()
    await fleet.paint(fleet.policies[0], "grey")
    await fleet.until(lambda writes: writes[_WORK] >= _CLUSTERS)
    await fleet.quiet(_SETTLED)
    assert fleet.writes == {_WORK: _CLUSTERS, _NOTE: 1, _STATUS: 1}


async def _a_cluster_leaves(world: World) -> None:
    """A mark and, after the grace, a delete for each of its works; each policy says so."""
    fleet = world.fleet
    fleet.forget()
    await fleet.place(fleet.clusters[:-1])
    await fleet.until(lambda writes: writes[_GONE] >= _POLICIES)
    await fleet.quiet(_SETTLED)
    assert fleet.writes[_GONE] == _POLICIES
    # One whose turn comes when its grace is over, on a busy machine, needs no mark any more.
    assert 0 < fleet.writes[_WORK] <= _POLICIES
    assert max(fleet.writes[_NOTE], fleet.writes[_STATUS]) <= 2 * _POLICIES
    assert await fleet.works(fleet.clusters[-1]) == []
    assert len(await fleet.works()) == (_CLUSTERS - 1) * _POLICIES


async def _it_is_killed_and_starts_again(world: World) -> None:
    """All is as it should be, so nothing is written."""
    fleet = world.fleet
    fleet.forget()
    await asyncio.to_thread(world.server.kill)
    await asyncio.to_thread(world.server.start)
    await asyncio.sleep(5 * _SETTLED)
    assert fleet.count() == {}


_STORIES: tuple[Story, ...] = (
    _it_starts,
    _all_clusters_answer,
    _one_policy_is_edited,
    _a_cluster_leaves,
    _it_is_killed_and_starts_again,
)


@pytest.mark.timeout(590)
async def test_as_many_works_are_written_as_change(launcher: Launcher, tmp_path: Path) -> None:
    """One story after the other on one fleet, as on a real one."""
    async with _world(launcher, tmp_path) as world:
        for story in _STORIES:
            try:
                await story(world)
            except (AssertionError, TimeoutError) as error:
                error.add_note(f"in the story {story.__name__.strip('_')}: {world.fleet.writes}")
                raise
