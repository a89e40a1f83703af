from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict, Refused, Retriable
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import MANAGER, PolicyId
from kube_sync.policysync.downstream import Downstream, copied
from kube_sync.policysync.manifestworks import LEAVING, SELECTOR, WORKS, work_key, work_of
from kube_sync.policysync.ocm_placer import OcmPlacer
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import kube_of
from tests.fakes.copies import copy, policy, source
from tests.fakes.http import failing
from tests.unit.async_tools import running, until


class World:
    """A hub, its placer, and what the placer tells."""

    def __init__(self, api: FakeApiServer, folder: Path) -> None:
        self.api = api
        self.news: list[PolicyId] = []
        self._folder = folder

    async def connect(self) -> AsyncGenerator[OcmPlacer]:
        async with kube_of(self.api, self._folder) as client:
            placer = OcmPlacer(client, self.news.append)
            source = KubeCollection(client, WORKS, label_selector=SELECTOR)
            reflector = Reflector("works", source, placer.store, lambda _reason: None)
            async with running(reflector.run()):
                await self.api.watched(WORKS)
                await until(lambda: placer.ready)
                yield placer

    @property
    def writes(self) -> list[str]:
        return [one.method for one in self.api.http.requests if one.method != "GET"]

    def change(self, key: ObjectKey, **metadata: Any) -> None:
        """Change an object's metadata as somebody else does."""
        found = self.api.get(WORKS, key)
        content = {n: v for n, v in found.items() if n not in ("apiVersion", "kind", "metadata")}
        kept = {n: v for n, v in found["metadata"].items() if n != "resourceVersion"}
        self.api.put(WORKS, key, metadata={**kept, **metadata}, **content)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        api.define(WORKS, "ManifestWork", builtin=False)
        yield World(api, tmp_path)


@pytest.fixture
async def placer(world: World) -> AsyncGenerator[OcmPlacer]:
    async for one in world.connect():
        yield one


WHERE = work_key(copy())


async def test_a_copy_becomes_a_work_in_the_namespace_of_its_cluster(
    world: World, placer: OcmPlacer
) -> None:
    await placer.apply(copy())
    found = world.api.get(WORKS, WHERE)
    assert WHERE.namespace == "east"
    assert found["spec"] == work_of(copy())["spec"]
    assert world.api.http.requests[-1].query["fieldManager"] == MANAGER
    assert placer.placed(policy())["east"].digest == copy().digest
    assert placer.policies() == [policy()]


async def test_a_work_that_is_as_it_should_be_is_not_written(
    world: World, placer: OcmPlacer
) -> None:
    await placer.apply(copy())
    await placer.apply(copy())
    assert world.writes == ["PATCH"]


async def test_a_write_of_ours_is_no_news(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    await placer.apply(copy("west"))
    world.change(WHERE, labels={"other": "1"})  # a sign that the echoes came before it
    await until(lambda: world.news)
    assert world.news == [policy()]
    assert list(placer.placed(policy())) == ["west"]


async def test_a_changed_copy_is_one_write(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    await placer.apply(copy(rules=["a"]))
    assert world.writes == ["PATCH", "PATCH"]
    assert world.api.http.requests[-1].query["force"] == "true"
    (manifest,) = world.api.get(WORKS, WHERE)["spec"]["workload"]["manifests"]
    assert manifest["spec"]["rules"] == ["a"]


async def test_works_are_found_again_after_a_restart(world: World) -> None:
    async for placer in world.connect():
        await placer.apply(copy())
    async for placer in world.connect():
        assert placer.placed(policy())["east"].digest == copy().digest
        await placer.apply(copy())
    assert world.writes == ["PATCH"]


async def test_nothing_is_known_before_works_are_listed(world: World, tmp_path: Path) -> None:
    async with kube_of(world.api, tmp_path) as client:
        placer = OcmPlacer(client, world.news.append)
        assert not placer.ready
        placer.store.finish(known=False)
        assert not placer.ready


async def test_works_stay_known_while_their_kind_is_said_to_be_unknown(
    world: World, placer: OcmPlacer
) -> None:
    """API servers say so for a moment after a start."""
    await placer.apply(copy())
    placer.store.finish(known=False)
    assert not placer.ready
    assert list(placer.placed(policy())) == ["east"]
    assert world.news == []


async def test_a_work_of_somebody_else_is_not_taken_over(world: World, placer: OcmPlacer) -> None:
    world.api.http.fault(patches(WORKS), failing(409, "conflict with x"))
    with pytest.raises(Conflict):
        await placer.apply(copy())
    assert world.api.http.requests[-1].query["force"] == "false"
    assert placer.placed(policy()) == {}


async def test_a_cluster_without_a_namespace_is_tried_again(
    world: World, placer: OcmPlacer
) -> None:
    world.api.http.fault(patches(WORKS), failing(404, 'namespaces "east" not found'))
    with pytest.raises(Retriable, match="east"):
        await placer.apply(copy())


async def test_a_refusal_is_raised_as_one(world: World, placer: OcmPlacer) -> None:
    world.api.http.fault(patches(WORKS), failing(403, "no"))
    with pytest.raises(Refused):
        await placer.apply(copy())


async def test_a_work_that_leaves_says_from_when_on(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    await placer.mark_for_removal(copy().key, 1000.4)
    assert world.api.get(WORKS, WHERE)["metadata"]["annotations"][LEAVING] == "1001"
    assert placer.placed(policy())["east"].remove_after == 1001.0


async def test_a_work_that_comes_back_in_time_stays_with_one_write(
    world: World, placer: OcmPlacer
) -> None:
    await placer.apply(copy())
    await placer.mark_for_removal(copy().key, 1000)
    await placer.apply(copy())
    assert world.writes == ["PATCH"] * 3
    assert LEAVING not in world.api.get(WORKS, WHERE)["metadata"]["annotations"]
    assert placer.placed(policy())["east"].remove_after is None


async def test_a_work_that_comes_back_changed_stays_too(placer: OcmPlacer) -> None:
    await placer.apply(copy())
    await placer.mark_for_removal(copy().key, 1000)
    await placer.apply(copy(rules=["a"]))
    found = placer.placed(policy())["east"]
    assert (found.remove_after, found.digest) == (None, copy(rules=["a"]).digest)


async def test_to_mark_a_work_that_is_gone_is_fine(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    world.api.http.fault(patches(WORKS), failing(404, "gone"))
    await placer.mark_for_removal(copy().key, 1000)
    assert placer.placed(policy())["east"].remove_after is None


async def test_a_removed_work_is_deleted_by_its_uid(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    uid = world.api.get(WORKS, WHERE)["metadata"]["uid"]
    await placer.remove(copy().key)
    assert world.api.objects(WORKS) == {}
    assert world.api.http.requests[-1].json()["preconditions"] == {"uid": uid}
    assert placer.placed(policy()) == {}


async def test_to_remove_what_is_not_there_makes_no_request(
    world: World, placer: OcmPlacer
) -> None:
    await placer.remove(copy().key)
    assert world.writes == []


async def test_the_agents_finalizer_is_waited_for(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    world.change(WHERE, finalizers=["cluster.open-cluster-management.io/manifest-work-cleanup"])
    await placer.remove(copy().key)
    await placer.remove(copy().key)
    assert world.writes == ["PATCH", "DELETE"]
    assert placer.placed(policy()) == {}
    with pytest.raises(Retriable, match="is being deleted"):
        await placer.apply(copy())
    world.news.clear()
    world.api.delete(WORKS, WHERE)
    await until(lambda: world.news)
    assert world.news == [policy()]
    await placer.apply(copy())
    assert list(placer.placed(policy())) == ["east"]


async def test_a_work_that_somebody_edited_has_another_digest(
    world: World, placer: OcmPlacer
) -> None:
    await placer.apply(copy())
    metadata = dict(world.api.get(WORKS, WHERE)["metadata"])
    del metadata["resourceVersion"]
    spec = work_of(copy(rules=["of somebody"]))["spec"]
    world.api.put(WORKS, WHERE, metadata=metadata, spec=spec)
    await until(lambda: world.news)
    assert placer.placed(policy())["east"].digest != copy().digest
    await placer.apply(copy())
    assert placer.placed(policy())["east"].digest == copy().digest


async def test_a_second_work_of_the_same_copy_is_removed_with_the_next_write(
    world: World, placer: OcmPlacer
) -> None:
    """As one by another name of an earlier release."""
    await placer.apply(copy())
    found = world.api.get(WORKS, WHERE)
    other = ObjectKey("east", "another-name")
    marks = {n: found["metadata"][n] for n in ("labels", "annotations")}
    world.api.put(WORKS, other, metadata=marks, spec=found["spec"])
    await until(lambda: world.news)
    assert placer.placed(policy())["east"].digest == ""
    await placer.apply(copy())
    assert list(world.api.objects(WORKS)) == [WHERE]


async def test_copies_of_other_clusters_and_policies_are_left_alone(
    world: World, placer: OcmPlacer
) -> None:
    for one in (copy(), copy("west"), copy(name="other")):
        await placer.apply(one)
    await placer.remove(copy().key)
    assert list(placer.placed(policy())) == ["west"]
    assert list(placer.placed(policy("other"))) == ["east"]
    assert len(world.api.objects(WORKS)) == 2


async def test_many_copies_are_as_many_writes(world: World, placer: OcmPlacer) -> None:
    clusters = [f"c{n}" for n in range(40)]
    await asyncio.gather(*(placer.apply(copy(cluster)) for cluster in clusters))
    await asyncio.gather(*(placer.apply(copy(cluster)) for cluster in clusters))
    assert world.writes == ["PATCH"] * 40
    assert list(placer.placed(policy())) == sorted(clusters)


async def test_a_work_that_was_made_anew_meanwhile_is_left_for_the_watch(
    world: World, placer: OcmPlacer
) -> None:
    await placer.apply(copy())
    mismatch = "uid mismatch: the provided object specified uid x"
    world.api.http.fault(patches(WORKS), failing(409, mismatch))
    with pytest.raises(Retriable):
        await placer.apply(copy(rules=["a"]))


@pytest.mark.parametrize(
    "notes",
    [
        {"kube-sync.io/gateways": "shop/other"},
        {"kube-sync.io/policy": "kuadrant.io/v1/authpolicies:shop/other"},
        {"kube-sync.io/policy": ""},
        None,
    ],
)
async def test_a_work_whose_annotations_somebody_edited_stays_that_policys_and_is_put_right(
    world: World, placer: OcmPlacer, notes: dict[str, str] | None
) -> None:
    await placer.apply(copy())
    wanted = world.api.get(WORKS, WHERE)["metadata"]["annotations"]
    world.news.clear()
    world.change(WHERE, annotations={} if notes is None else {**wanted, **notes})
    await until(lambda: world.news == [policy()])
    assert placer.policies() == [policy()]
    assert placer.placed(policy())["east"].digest == ""
    await placer.apply(copy())
    assert world.api.get(WORKS, WHERE)["metadata"]["annotations"] == wanted
    assert placer.placed(policy())["east"].digest == copy().digest


async def test_a_work_of_another_policy_is_not_taken_over(world: World, placer: OcmPlacer) -> None:
    await placer.apply(copy())
    found = source()
    other = replace(found, id=found.id._replace(namespace="x"))
    body = work_of(copied(other, [0], [], ["east"], Downstream())["east"])
    metadata = {**world.api.get(WORKS, WHERE)["metadata"], **body["metadata"], "name": WHERE.name}
    metadata.pop("resourceVersion")
    world.api.put(WORKS, WHERE, metadata=metadata, spec=body["spec"])
    await until(lambda: policy() not in placer.policies())
    with pytest.raises(Conflict, match="brings another policy"):
        await placer.apply(copy())
    assert world.writes == ["PATCH"]


def test_the_name_of_a_work_has_sixteen_digits_and_fits_a_label() -> None:
    name = work_key(copy(name="a" * 80)).name
    assert len(name) == 63
    assert re.fullmatch(r".*-[0-9a-f]{16}", name)
