from __future__ import annotations

import asyncio

import pytest

from kube_sync.topology.status.resync import ResyncLoop
from tests.unit.async_tools import running, until


@pytest.mark.parametrize(
    ("again", "due"), [(None, 400.0), (160.0, 160.0), (90.0, 101.0), (1e9, 400.0)]
)
def test_the_next_look_is_when_something_is_to_be_tried_again_but_not_at_once(
    again: float | None, due: float
) -> None:
    looks = ResyncLoop(every=300.0, least=1.0, clock=lambda: 100.0)
    looks.schedule(again)
    assert looks.due == due


async def test_a_look_that_comes_earlier_than_the_one_waited_for_is_made() -> None:
    now, looked = [0.0], list[float]()
    looks = ResyncLoop(every=300.0, least=0.0, clock=lambda: now[0])
    async with running(looks.run(lambda: looked.append(now[0]))):
        for _ in range(5):
            await asyncio.sleep(0)
        assert not looked
        now[0] = 60.0
        looks.schedule(60.0)
        await until(lambda: looked)
    assert looked == [60.0]


async def test_looks_go_on_although_nobody_tells_of_one() -> None:
    """As while another process writes."""
    woken: list[int] = []
    async with running(ResyncLoop(every=0.005, least=0.0).run(lambda: woken.append(1))):
        await until(lambda: len(woken) >= 3)
