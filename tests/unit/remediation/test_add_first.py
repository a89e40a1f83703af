from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import REGISTRY

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.records import DecisionRecord
from kube_sync.guard import ADDITION, Inventory, Limits
from kube_sync.guard.add_first import OnUnhealthy, Terms
from kube_sync.guard.history import read_history
from kube_sync.guard.limits import Rate
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.add_first import AddFirst
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.health.own import OwnHealth, healthy_by
from kube_sync.remediation.modes import Mode
from kube_sync.remediation.plan import Write
from kube_sync.remediation.planner import Moves
from tests.unit.remediation.test_reconciler import (
    BOOKMARK,
    PLACEMENTS,
    UNLIMITED,
    ApiServer,
    World,
    _decision,
    _key,
    _target,
)

HEALTH = "health.example.com"
WITHIN = 300
LATE = WITHIN + 1  # times are rounded up


class Witness(ApiServer):
    """An API server that looks at each write: is a healthy cluster left?"""

    def __init__(self, **annotations: str) -> None:
        super().__init__(**annotations)
        self.left_alone: list[str] = []
        self.texts: list[str] = []

    async def patch(self, gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        before = self.healthy(key.name)
        await super().patch(gvr, key, step)
        self.texts.append(self.objects[key.name]["place"])
        if before and not self.healthy(key.name):
            self.left_alone.append(key.name)

    def healthy(self, name: str) -> set[str]:
        found = self.objects[name]
        return {c for c in found["place"].split(",") if found.get(f"{HEALTH}/{c}") == "healthy"}


class Clusters:
    """The labels of clusters, and whether the health of workloads there is known."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.unmatched: str | None = None
        self.labels: dict[str, Mapping[str, str]] = {}
        self.inventory: Inventory | None = None


class Health(OwnHealth):
    """Health from annotations, as long as it is known."""

    def __init__(self, clusters: Clusters) -> None:
        super().__init__(healthy_by(HEALTH))
        self._clusters = clusters

    def unmatched(self, key: Key) -> str | None:
        del key
        return self._clusters.unmatched

    @property
    def trouble(self) -> str | None:
        return self._clusters.trouble


def world_of(
    server: ApiServer,
    on_unhealthy: OnUnhealthy = "revert",
    clusters: Clusters | None = None,
    limits: Limits = UNLIMITED,
    mode: Mode = "enforce",
    within: float = WITHIN,
) -> World:
    fleet = clusters or Clusters()

    def moves(world: World) -> Moves:
        return AddFirst(
            Terms(within, on_unhealthy),
            PLACEMENTS,
            Health(fleet),
            lambda: world.now,
            inventory=lambda: fleet.inventory,
            labels=fleet.labels.get,
            approved=lambda: world.approved,
        )

    return World(server, mode, limits, moves=moves)


def texts_of(world: World) -> list[str]:
    """Return the placements that were written, one after the other."""
    assert isinstance(world.server, Witness)
    return world.server.texts


def ill(server: ApiServer, name: str, cluster: str) -> None:
    server.objects[name].pop(f"{HEALTH}/{cluster}", None)


def heal(server: ApiServer, name: str, cluster: str) -> None:
    server.objects[name][f"{HEALTH}/{cluster}"] = "healthy"


async def seen(world: World) -> None:
    """Let the watch deliver what is stored, once what is due is written."""
    await world.idle()
    world.relist()
    await world.idle()


async def test_a_move_is_two_writes_and_the_second_waits_for_health() -> None:
    world = world_of(Witness(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.places() == {"a": "us,eu"}
        await seen(world)
        assert world.waits() == {"a": "adding"}
        assert world.told == ["a"]
        heal(world.server, "a", "eu")
        await seen(world)
        assert world.server.places() == {"a": "eu"}
        await seen(world)
    assert world.server.patched == ["a", "a"]
    assert ADDITION not in world.server.objects["a"]
    assert world.waits() == {}


async def test_what_the_owner_asked_for_is_noted_in_both_steps() -> None:
    world = world_of(Witness(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.server.objects["a"][REQUESTED] == '{"place":"us"}'
        heal(world.server, "a", "eu")
        await seen(world)
        assert world.server.objects["a"][REQUESTED] == '{"place":"us"}'


async def test_other_values_of_the_decision_do_not_wait() -> None:
    world = world_of(Witness(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        decision = Decision({"place": "eu", "tier": "gold"})
        world.take(DecisionRecord(_target("a"), "u", decision, 1, "data", ""))
        world.take(BOOKMARK)
        await seen(world)
        assert world.server.objects["a"]["tier"] == "gold"
        assert world.server.places() == {"a": "us,eu"}


async def test_what_is_not_healthy_in_time_is_taken_back_held_and_told_once() -> None:
    world = world_of(Witness(a="us"))
    heal(world.server, "a", "us")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        for _ in range(5):
            world.now += LATE
            await seen(world)
        assert world.server.places() == {"a": "us"}
        assert world.waits() == {"a": "unhealthy"}
        (_, wait), *_ = world.reconciler.waiting
        assert wait.reason.startswith("not healthy in eu within 300 s")
        assert wait.approve is not None
        assert wait.changes["place"] == ("us", "eu")
    assert world.server.patched == ["a", "a"]
    assert world.told == ["a", "a"]  # that it is added to, and that it is not healthy there


async def test_what_is_kept_is_held_without_an_approval() -> None:
    world = world_of(Witness(a="us"), "keep")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        world.now += LATE
        await seen(world)
        await seen(world)
        assert (world.server.places(), world.waits()) == ({"a": "us,eu"}, {"a": "unhealthy"})
        (_, wait), *_ = world.reconciler.waiting
        assert wait.approve is None
        heal(world.server, "a", "eu")
        await seen(world)
        assert world.server.places() == {"a": "eu"}


async def test_an_approval_tries_a_reverted_addition_again_without_any_other_event() -> None:
    world = world_of(Witness(a="us"))
    heal(world.server, "a", "us")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        world.now += LATE
        await seen(world)
        await seen(world)
        (_, wait), *_ = world.reconciler.waiting
        world.now += 10
        world.approved = frozenset([str(wait.approve)])
        world.reconciler.weigh()
        await world.idle()
        assert world.server.places() == {"a": "us,eu"}


async def test_a_label_of_the_cluster_tries_a_reverted_addition_again() -> None:
    clusters = Clusters()
    world = world_of(Witness(a="us"), clusters=clusters)
    heal(world.server, "a", "us")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        world.now += LATE
        await seen(world)
        world.now += LATE
        await seen(world)
        assert world.server.places() == {"a": "us"}
        clusters.labels["eu"] = {"repaired": "yes"}
        world.reconciler.weigh()
        await world.idle()
        assert world.server.places() == {"a": "us,eu"}


async def test_where_all_that_stays_is_ill_nothing_is_taken_away_and_no_approval_helps() -> None:
    world = world_of(Witness(a="us,eu"))
    heal(world.server, "a", "us")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        assert (world.server.places(), world.waits()) == ({"a": "us,eu"}, {"a": "unhealthy"})
        heal(world.server, "a", "eu")
        await seen(world)
        assert world.server.places() == {"a": "eu"}


async def test_a_restart_at_each_step_ends_the_same() -> None:
    server = Witness(a="us")
    heal(server, "a", "us")
    texts = []
    now = 0.0
    for passed in (0, 100, 202, 0, 0):
        world = world_of(server)  # another process: it knows what is stored
        world.now += (now := now + passed)
        async with world.running():
            world.stream(_decision("a", "eu"))
            await world.idle()
        texts.append(server.places()["a"])
    assert texts == ["us,eu", "us,eu", "us", "us", "us"]
    assert server.patched == ["a", "a"]


async def test_the_removal_counts_as_a_move_and_the_addition_does_not() -> None:
    world = world_of(Witness(a="us", b="us", c="us"), limits=Limits(moves=Rate(0.001, 1)))
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in "abc"))
        await world.idle()
        assert set(world.server.places().values()) == {"us,eu"}
        for name in "abc":
            heal(world.server, name, "eu")
        await seen(world)
        await world.steady()
        assert sorted(world.server.places().values()) == ["eu", "us,eu", "us,eu"]
        assert sorted(world.waits().values()) == ["budget", "budget"]


async def test_a_mass_is_held_before_the_first_of_it_is_healthy() -> None:
    names = [f"w{number}" for number in range(5)]
    limits = Limits(mass_share=0.2, mass_floor=1)
    world = world_of(Witness(**dict.fromkeys(names, "us")), limits=limits)
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in names))
        await seen(world)
        heal(world.server, "w0", "eu")
        await seen(world)
        assert world.server.places()["w0"] == "us,eu"
        assert world.waits()["w0"] == "mass"


async def test_a_revert_waits_for_no_budget_and_for_no_mass() -> None:
    names = [f"w{number}" for number in range(5)]
    limits = Limits(moves=Rate(0.001, 1), dwell=10_000, mass_share=0.2, mass_floor=1)
    world = world_of(Witness(**dict.fromkeys(names, "us")), limits=limits)
    async with world.running():
        world.stream(*(_decision(name, "eu") for name in names))
        await seen(world)
        world.now += LATE
        await seen(world)
        assert set(world.server.places().values()) == {"us"}


async def test_a_decision_that_goes_back_and_forth_freezes_before_anything_is_added() -> None:
    world = world_of(Witness(a="us"), limits=Limits(oscillation=3_600))
    for cluster in ("us", "eu"):
        heal(world.server, "a", cluster)
    async with world.running():
        world.stream()
        for place in ("eu", "us", "eu", "us", "eu"):
            world.take(_decision("a", place))
            world.take(BOOKMARK)
            for _ in range(3):
                await seen(world)
            world.now += 100
    assert world.waits() == {"a": "oscillation"}
    assert texts_of(world) == ["us,eu", "eu", "eu,us", "us"]


async def test_the_history_has_the_placements_of_whole_moves_only() -> None:
    world = world_of(Witness(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        partial = read_history(world.server.objects["a"], world.now)
        heal(world.server, "a", "eu")
        await seen(world)
        whole = read_history(world.server.objects["a"], world.now)
    assert [entry.passing for entry in partial] == [False, True]
    assert [(entry.left, entry.passing) for entry in whole] == [((), False), (("us",), False)]


async def test_a_move_to_no_cluster_of_the_fleet_is_held_before_anything_is_added() -> None:
    clusters = Clusters()
    clusters.inventory = Inventory(frozenset(["us"]))
    world = world_of(Witness(a="us"), clusters=clusters)
    world.facts.inventory = clusters.inventory
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        world.now += 10  # a new cluster may be decided on before it is seen here
        await seen(world)
        assert (world.server.patched, world.waits()) == ([], {"a": "nowhere"})


async def test_in_dry_run_the_first_step_is_shown_and_nothing_written() -> None:
    world = world_of(Witness(a="us"), mode="dry-run")
    async with world.running():
        world.stream(_decision("a", "eu"))
    assert (world.server.patched, world.waits()) == ([], {"a": "dry-run"})


async def test_a_person_applies_each_step_by_itself() -> None:
    world = world_of(Witness(a="us"), mode="manual")
    key = (GroupVersionResource("apps", "v1", "replicasets"), _key("a"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await world.idle()
        assert world.waits() == {"a": "manual"}
        world.reconciler.apply([key])
        await world.idle()
        assert world.server.places() == {"a": "us,eu"}
        heal(world.server, "a", "eu")
        await seen(world)
        assert world.waits() == {"a": "manual"}
        world.reconciler.apply([key])
        await world.idle()
    assert world.server.places() == {"a": "eu"}


async def test_what_begins_with_a_new_event_of_health_is_reconciled() -> None:
    world = world_of(Witness(a="us"))
    key = (GroupVersionResource("apps", "v1", "replicasets"), _key("a"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        world.now += LATE
        world.reconciler.replan([key])
        await world.idle()
        assert world.server.places() == {"a": "us"}


async def test_together_removes_the_record_of_an_addition_that_was_left() -> None:
    """The setting was `add-first` before."""
    world = World(ApiServer(a="us,eu"))
    world.server.objects["a"][ADDITION] = '{"to":"x","at":1,"added":["eu"]}'
    world.relist()
    async with world.running():
        world.stream(_decision("a", "eu"))
    assert world.server.places() == {"a": "eu"}
    assert ADDITION not in world.server.objects["a"]


async def test_steps_are_counted() -> None:
    before = {step: _additions(step) for step in ("added", "ended", "reverted", "kept")}
    for on_unhealthy in ("revert", "keep"):
        server = Witness(a="us", b="us")
        for name in "ab":
            heal(server, name, "us")
        world = world_of(server, "revert" if on_unhealthy == "revert" else "keep")
        async with world.running():
            world.stream(*(_decision(name, "eu") for name in "ab"))
            await seen(world)
            heal(server, "a", "eu")
            await seen(world)
            world.now += LATE
            await seen(world)
    found = {step: _additions(step) - count for step, count in before.items()}
    assert found == {"added": 4, "ended": 2, "reverted": 1, "kept": 1}


def _additions(step: str) -> float:
    name = "kube_sync_remediation_additions_total"
    return REGISTRY.get_sample_value(name, {"outcome": step}) or 0


async def test_steps_of_one_move_are_no_fight_with_another_writer() -> None:
    """Three writes of one decision within a minute are one."""
    clusters = Clusters()
    world = world_of(Witness(a="us"), clusters=clusters, within=5)
    heal(world.server, "a", "us")
    async with world.running():
        world.stream(_decision("a", "eu"))
        for number in range(4):
            clusters.labels["eu"] = {"try": str(number)}
            world.reconciler.weigh()
            await seen(world)
            world.now += 6
            await seen(world)
            await seen(world)
        assert world.waits() == {"a": "unhealthy"}
    assert texts_of(world) == ["us,eu", "us"] * 4


async def test_what_somebody_keeps_taking_away_is_left_to_them() -> None:
    world = world_of(Witness(a="us"))
    async with world.running():
        world.stream(_decision("a", "eu"))
        for _ in range(6):
            await seen(world)
            world.server.objects["a"] = {"place": "us"}  # restored as a whole
            world.now += 11  # as long as the watch may lag
        await seen(world)
        assert world.waits() == {"a": "rival"}
    assert texts_of(world) == ["us,eu"] * 3


async def test_a_workload_without_replicas_moves_at_once() -> None:
    """It is nowhere healthy."""
    world = world_of(Witness(a="us"))
    world.server.spec = {"replicas": 0}
    world.relist()
    async with world.running():
        world.stream(_decision("a", "eu"))
    assert texts_of(world) == ["eu"]


async def test_health_that_is_of_no_known_cluster_is_said_on_the_object_once() -> None:
    clusters, why = Clusters(), "Application argocd/web is for no cluster"
    world = world_of(Witness(a="us"), clusters=clusters)
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        clusters.unmatched = why
        await seen(world)
        assert (world.waits(), world.told) == ({"a": "unmatched"}, ["a", "a"])
        (_, wait), *_ = world.reconciler.waiting
        assert wait.reason == f"added to eu, and not healthy there yet; {why}"
        world.now += LATE
        await seen(world)
        await seen(world)
        assert (world.server.places(), world.waits()) == ({"a": "us"}, {"a": "unhealthy"})
        clusters.unmatched = None
        await seen(world)
        (_, wait), *_ = world.reconciler.waiting
        assert why not in wait.reason


async def test_while_health_is_not_known_a_move_waits_and_goes_on_once_it_is() -> None:
    clusters = Clusters()
    clusters.trouble = "the Applications are not listed yet"
    world = world_of(Witness(a="us"), clusters=clusters)
    heal(world.server, "a", "eu")
    async with world.running():
        world.stream(_decision("a", "eu"))
        await seen(world)
        world.now += LATE
        await seen(world)
        assert (world.server.places(), world.waits()) == ({"a": "us,eu"}, {"a": "adding"})
        (_, wait), *_ = world.reconciler.waiting
        assert clusters.trouble in wait.reason
        clusters.trouble = None
        world.reconciler.replan(None)
        await world.idle()
        assert world.server.places() == {"a": "eu"}
