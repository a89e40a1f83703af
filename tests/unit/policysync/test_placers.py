from __future__ import annotations

import asyncio

import pytest

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import Copy, CopyKey, Placed
from kube_sync.policysync.placers import PlacerRoute, Placers, subject_of
from kube_sync.policysync.plan import Apply, MarkForRemoval, Remove
from tests.fakes.copies import AUTH, copy, policy
from tests.fakes.placing import MemoryPlacer
from tests.unit.async_tools import running, until

LOGIN = subject_of(policy())
OLDER = GroupVersionResource(AUTH.group, "v1beta1", AUTH.resource)


class Two:
    """Two placers, and what each reaches."""

    def __init__(self) -> None:
        self.now = 0.0
        self.left = 10.0
        self.placers = Placers(FencedWriter(lambda: self.left), lambda: self.now)
        self.first, self.second = (
            MemoryPlacer(self.placers.record_version),
            MemoryPlacer(self.placers.record_version),
        )
        self.reached: dict[str, bool | None] = {}
        self.placers.add(PlacerRoute(self.first, lambda cluster: self.reached.get(cluster, False)))
        self.placers.add(PlacerRoute(self.second, lambda cluster: cluster == "west"))


@pytest.fixture
def two() -> Two:
    return Two()


async def test_a_new_copy_goes_by_the_first_that_reaches_the_cluster(two: Two) -> None:
    two.reached = {"east": True, "west": None}
    await two.placers.run(Apply(copy("east")))
    await two.placers.run(Apply(copy("west")))  # one that is sure goes before one that may try
    assert two.first.steps == ["apply login east"]
    assert two.second.steps == ["apply login west"]
    assert list(two.placers.placed(LOGIN)) == ["east", "west"]
    with pytest.raises(Retriable, match="cluster north: no placer reaches it"):
        await two.placers.run(Apply(copy("north")))


async def test_a_copy_stays_with_the_placer_that_has_it(two: Two) -> None:
    await two.placers.run(Apply(copy("west")))
    two.reached = {"west": True}
    await two.placers.run(Apply(copy("west", extra=1)))
    await two.placers.run(MarkForRemoval(copy("west").key, 5.0))
    await two.placers.run(Remove(copy("west").key))
    steps = [step.split()[0] for step in two.second.steps]
    assert steps == ["apply", "apply", "leave", "remove"]
    assert two.first.steps == []
    assert two.placers.placed(LOGIN) == {}
    assert list(two.placers.subjects()) == []


async def test_all_versions_of_a_policy_are_one_subject(two: Two) -> None:
    older = policy(gvr=OLDER)
    two.first.hold(Placed(CopyKey(older, "east"), "d", None, None))
    assert two.placers.record_version(older) == LOGIN
    assert two.placers.ids(LOGIN) == {older}
    assert two.placers.placed(LOGIN)["east"].key.policy == older
    await two.placers.run(Apply(copy("east")))
    assert two.first.steps == ["apply login east"]  # by who has it in the older version
    assert two.placers.ids(LOGIN) == {policy()}


def test_all_have_to_know_what_is_placed(two: Two) -> None:
    assert two.placers.ready
    two.second.ready = False
    assert not two.placers.ready


async def test_without_the_lease_nothing_is_done(two: Two) -> None:
    two.left = 0.0
    with pytest.raises(Fenced):
        await two.placers.run(Apply(copy("west")))
    assert two.second.steps == []


async def test_a_spoke_that_hangs_is_left_alone_for_a_moment(two: Two) -> None:
    def hang() -> None:
        two.now += 15.0

    two.second.during, two.second.failing = hang, {"west": Retriable("no answer in 15 s")}
    with pytest.raises(Retriable, match="no answer"):
        await two.placers.run(Apply(copy("west")))
    two.second.during, two.second.failing = (lambda: None), {}
    with pytest.raises(Retriable, match="left alone"):
        await two.placers.run(Apply(copy("west")))
    two.now += 31.0
    await two.placers.run(Apply(copy("west")))
    assert two.second.steps == ["apply login west"]


async def test_a_lease_that_runs_out_amid_a_step_leaves_no_spoke_alone(two: Two) -> None:
    """It is the hub that was slow."""

    def hang() -> None:
        two.now += 15.0

    two.second.during, two.second.failing = hang, {"west": Fenced("no answer")}
    with pytest.raises(Fenced):
        await two.placers.run(Apply(copy("west")))
    two.second.during, two.second.failing = (lambda: None), {}
    await two.placers.run(Apply(copy("west")))
    assert two.second.steps == ["apply login west"]


@pytest.mark.parametrize("error", [Retriable("at once"), Conflict("not ours")])
async def test_a_spoke_that_answers_at_once_is_asked_again(two: Two, error: Exception) -> None:
    two.second.failing = {"west": error}  # type: ignore[dict-item]
    with pytest.raises(type(error)):
        await two.placers.run(Apply(copy("west")))
    two.second.failing = {}
    await two.placers.run(Apply(copy("west")))


async def test_after_its_rest_a_spoke_is_asked_by_one_and_nobody_waits_for_it(two: Two) -> None:
    two.second.during = lambda: setattr(two, "now", two.now + 15.0)
    two.second.failing = {"west": Retriable("no answer in 15 s")}
    with pytest.raises(Retriable, match="no answer"):
        await two.placers.run(Apply(copy("west")))
    two.now += 31.0
    asked: list[str] = []

    async def hang(copy: Copy) -> None:
        asked.append(copy.key.cluster)
        await asyncio.Event().wait()

    two.second.apply = hang  # type: ignore[method-assign]
    async with running(two.placers.run(Apply(copy("west")))):
        await until(lambda: asked == ["west"])
        with pytest.raises(Retriable, match="left alone"):
            await two.placers.run(Apply(copy("west", "another")))
    assert asked == ["west"]


async def asks_one_at_a_time(two: Two) -> bool:
    """Tell whether a second step at once is left for later, as where a cluster hung."""
    two.second.slow = {"one": asyncio.Event(), "two": asyncio.Event()}
    two.second.under_way = 0
    steps = [two.placers.run(Apply(copy("west", name=name))) for name in two.second.slow]
    tasks = [asyncio.create_task(step) for step in steps]
    for _ in range(5):
        await asyncio.sleep(0)
    found = two.second.under_way
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return found == 1


async def test_a_spoke_that_refuses_after_it_hung_has_answered(two: Two) -> None:
    two.second.during = lambda: setattr(two, "now", two.now + 15.0)
    for error in (Retriable("no answer"), Conflict("not ours")):
        two.second.failing = {"west": error}
        with pytest.raises(type(error)):
            await two.placers.run(Apply(copy("west")))
        two.now += 31.0
        assert await asks_one_at_a_time(two) is isinstance(error, Retriable)
