"""Objects that a policy takes long for, sent all the time: they alone are refused for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes import reviews
from tests.integration.webhook_world import World, webhook_world, workload
from tools.servers.http import request
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

SENDERS = 6  # more than it takes without any answer until an engine counts as down
POLICY = """
package io.k8s.federation.admission

errors contains "it took long" if {
	input.metadata.labels.slow == "yes"
	count([1 | some i in many; some j in many; some k in many]) > 0
}

many := numbers.range(1, 3000)

annotations := {}
"""


@pytest.fixture
def world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The webhook, which is asked directly, and a policy."""
    with webhook_world(launcher, stack, tmp_path_factory.mktemp("slow")) as world:
        world.policy()
        asyncio.run(eventually(lambda: answer(world, "no", certified="no")["allowed"], False))  # noqa: FBT003
        world.opa("PUT", POLICY)
        yield world


def answer(world: World, slow: str, **labels: str) -> Any:
    """Return what the webhook answers about one object."""
    found = workload("web", "shop")
    found["metadata"]["labels"] = {"slow": slow, **labels}
    body = reviews.body(found).decode()
    where = f"{world.url}?timeout=4s"
    said = request("POST", where, ca_file=world.ca_file, body=body).body
    return json.loads(said)["response"]


def timeouts(world: World) -> int:
    name = 'kube_sync_admission_engine_attempts_total{outcome="timeout"}'
    lines = (line for line in world.metrics().splitlines() if line.startswith(name))
    return sum(int(float(line.split()[-1])) for line in lines)


def more(world: World, enough: int) -> bool:
    return timeouts(world) >= enough


@pytest.mark.slow
async def test_reviews_that_a_policy_takes_long_for_are_refused_and_no_others(
    world: World,
) -> None:
    done = False

    async def send() -> None:
        while not done:
            said = await asyncio.to_thread(answer, world, "yes")
            assert not said["allowed"]

    async with asyncio.TaskGroup() as group:
        for _ in range(SENDERS):
            group.create_task(send())
        for _ in range(3):
            enough = await asyncio.to_thread(timeouts, world) + SENDERS + 1
            await eventually(partial(more, world, enough), True)  # noqa: FBT003
            said = await asyncio.to_thread(answer, world, "no")
            assert said["allowed"], said
        done = True
