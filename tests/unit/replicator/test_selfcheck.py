from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kube_sync.decisions.canary import Canary
from kube_sync.errors import Retriable, Undecided
from kube_sync.kube.client import KubeClient
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.analyzer import analyze
from kube_sync.opa.sides import Side
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.selfcheck import SelfCheck
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import REPLICASETS, key, kube_of
from tests.unit.async_tools import running, until

KEPT = Form((("spec", "a"),), namespaced=True)
A = key("a", "n1")


class World:
    """An OPA that says what it is told to, and data that is a part of what there is."""

    def __init__(self, kube: KubeClient) -> None:
        self.asked: list[Any] = []
        self.paths: list[str] = []
        self.distrusted: list[str] = []
        self.form: Form | None = KEPT
        self.say: Callable[[Any], Any] = lambda found: found["spec"].get("a")
        self.chances: list[float] = []
        self.reached_last = asyncio.Event()
        self.check = SelfCheck(
            self,
            kube,
            "p",
            lambda: {"replicasets": REPLICASETS, "last": REPLICASETS},
            cast("Any", self),
            0.5,
            chance=lambda: self.chances.pop() if self.chances else 0.0,
        )
        self.check.policies_changed("digest", pure=True)

    async def query(self, path: str, body: bytes) -> bytes | None:
        self.paths.append(path)
        self.asked.append(json.loads(body)["input"])
        said = self.say(self.asked[-1])
        return None if said is None else json.dumps(said).encode()

    def narrowed_to(self, name: str) -> Form | None:
        if name == "last":
            self.reached_last.set()
            return None
        return self.form

    def distrust(self, name: str) -> None:
        self.distrusted.append(name)

    async def checked(self, found: ObjectKey = A) -> bool:
        """Check one; returns whether anything was found."""
        for name in ("replicasets", "last"):  # one after the other
            self.check.written(name, [found])
        async with running(self.check.run()):
            await self.reached_last.wait()
        self.reached_last.clear()
        return bool(self.distrusted)


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as kube:
        _furnish(api)
        yield World(kube)


def _furnish(api: FakeApiServer) -> None:
    api.define(REPLICASETS, "ReplicaSet")
    api.put(REPLICASETS, A, spec={"a": 1, "b": 2})


async def test_decision_that_needs_no_more_than_what_is_kept_is_no_news(world: World) -> None:
    assert not await world.checked()
    assert [found["spec"] for found in world.asked] == [{"a": 1}, {"a": 1, "b": 2}, {"a": 1}]


async def test_decision_that_needs_more_is_found_after_several_looks(world: World) -> None:
    world.say = lambda found: found["spec"].get("b")
    assert await world.checked()
    assert len(world.asked) == 9


async def test_failure_over_the_whole_alone_is_a_difference(world: World) -> None:
    def say(found: Any) -> Any:
        if "b" in found["spec"]:
            msg = "conflict"
            raise Undecided(msg)
        return True

    world.say = say
    assert await world.checked()


async def test_difference_that_is_not_found_again_accuses_nobody(world: World) -> None:
    world.say = lambda found: found["spec"].get("b") if len(world.asked) < 6 else 0
    assert not await world.checked()


async def test_answer_that_changes_by_itself_accuses_nobody(world: World) -> None:
    world.say = lambda _found: len(world.asked)
    assert not await world.checked()


@pytest.mark.parametrize("what", ["form", "policies"])
async def test_what_changes_meanwhile_accuses_nobody(world: World, what: str) -> None:
    def say(found: Any) -> Any:
        if what == "form":
            world.form = Form((("spec",),), namespaced=True)
        else:
            world.check.policies_changed("other", pure=True)
        return found["spec"].get("b")

    world.say = say
    assert not await world.checked()


async def test_what_cannot_be_compared_is_not_asked_for(world: World) -> None:
    assert not await world.checked(key("gone", "n1"))
    assert not await world.checked(ObjectKey("", "a"))
    world.form = None
    assert not await world.checked()
    world.form = KEPT
    world.check.policies_changed("digest", pure=False)
    assert not await world.checked()
    assert not world.asked


async def test_object_is_asked_about_where_its_side_is_decided(world: World) -> None:
    reads = analyze([], "p", {})
    here, elsewhere = Side("p/q", "0", frozenset({"n1"})), Side("p/q", "0", frozenset({"n2"}))
    await world.checked()
    assert set(world.paths) == {"p"}
    for side, path in ((here, "kube_sync_stage/canary/p"), (elsewhere, "p")):
        world.paths.clear()
        world.check.canary_changed(Canary(side, "d", reads, {}))
        world.say = lambda found: found["spec"].get("a")
        assert not await world.checked()
        assert set(world.paths) == {path}
    world.paths.clear()
    world.check.canary_changed(Canary(here, "d", replace(reads, impure={"time.now_ns": ()}), {}))
    assert not await world.checked()
    assert world.paths == []


async def test_share_of_what_is_written_is_checked_and_failures_end_nothing(world: World) -> None:
    def say(_found: Any) -> Any:
        msg = "busy"
        raise Retriable(msg)

    world.chances = [0.6, 0.4]
    world.check.written("replicasets", [A, key("b", "n1")])
    world.check.written("others", [A])
    world.say = say
    async with running(world.check.run()):
        await until(lambda: world.asked)
        world.say = lambda _found: True
        world.check.written("replicasets", [A])
        await until(lambda: len(world.asked) == 4)


async def test_both_questions_are_asked_as_decisions_are_about_what_was_asked_for(
    tmp_path: Path,
) -> None:
    note = '{"mine":"asked"}'
    annotations = {"mine": "decided", "other": "1", "kube-sync.io/requested": note}
    paths = [("metadata", "annotations", name) for name in ("kube-sync.io/requested", "mine")]
    async with fake_apiserver() as api, kube_of(api, tmp_path) as kube:
        _furnish(api)
        api.put(REPLICASETS, A, metadata={"annotations": annotations})
        world = World(kube)
        world.form = Form(tuple(paths), namespaced=True)
        world.say = lambda found: found["metadata"]["annotations"]["mine"]
        assert not await world.checked()
    seen = [found["metadata"]["annotations"] for found in world.asked]
    assert seen == [{"mine": "asked"}, {"mine": "asked", "other": "1"}, {"mine": "asked"}]
