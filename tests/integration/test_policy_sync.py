"""Policy sync from a real hub to real spokes: what arrives, what returns, what is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.integration.syncing_world import World, eventually, world_of
from tests.integration.test_machinery import ROOT
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack


@pytest.fixture
async def world(
    hub: RunningStack,
    gateway_api: RunningStack,
    spokes: tuple[RunningSpoke, ...],
    namespace: str,
) -> AsyncGenerator[World]:
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    async with world_of(hub, spokes, namespace) as found:
        await found.install()
        yield found


async def test_a_policy_reaches_the_clusters_of_its_gateway(world: World) -> None:
    await world.below_it()
    await world.policy()
    async with world.agents(), world.syncing():
        await eventually(world.works, {"paint": world.names})
        await eventually(world.copies, dict.fromkeys(world.names, "red"))
        await eventually(world.listed, world.names)
        await eventually(world.said, lambda said: said["kube-sync.io/Synced"][0] == "True")
