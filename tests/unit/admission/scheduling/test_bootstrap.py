"""The default objects on a fake API server: in order, once, and whatever stands in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.admission.scheduling.autoupdate import AUTOUPDATE
from kube_sync.admission.scheduling.bootstrap import Bootstrap, Default, defaults
from kube_sync.admission.scheduling.evidence import COLLECTIONS, SCHEDULING_POLICIES
from kube_sync.objects import ObjectKey
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.http import answer

MANIFESTS = Path(__file__).resolve().parents[4] / "manifests"
ROLES, BINDINGS = COLLECTIONS["ClusterRole"], COLLECTIONS["ClusterRoleBinding"]
RESTRICTED = ObjectKey("", "sp:restricted")


@dataclass
class World:
    """A cluster, what OPA is said to have of it, and what was told."""

    api: FakeApiServer
    folder: Path
    in_opa: bool = True
    asked: list[tuple[str, ...]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    async def known(self, path: tuple[str, ...]) -> bool:
        self.asked.append(path)
        return self.in_opa

    @asynccontextmanager
    async def starting(self) -> AsyncGenerator[None]:
        """Run a Bootstrap until the block ends."""
        async with kube_of(self.api, self.folder) as client:
            backoff = Backoff(0.001, 0.001)
            bootstrap = Bootstrap(client, self.known, self.told.append, backoff=backoff)
            running = asyncio.create_task(bootstrap.run())
            try:
                yield
            finally:
                running.cancel()
                await asyncio.wait([running])

    async def start(self) -> list[tuple[str, str]]:
        """Start one, wait until it is done, and return what it wrote."""
        seen = len(self.api.http.requests)
        self.told.clear()
        async with self.starting():
            await self.api.http.until(lambda: seen < len(self.api.http.requests))
            while "ok" not in self.told:  # noqa: ASYNC110 - it comes after the last answer
                await asyncio.sleep(0)
        made = self.api.http.requests[seen:]
        return [(r.method, r.path.rpartition("/")[2]) for r in made if r.method != "GET"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api:
        for kind, gvr in COLLECTIONS.items():
            inside = kind in ("Role", "RoleBinding")
            api.define(gvr, kind, namespaced=inside, builtin=gvr != SCHEDULING_POLICIES)
        yield World(api, tmp_path)


async def test_rights_come_before_policies_and_everybodys_policy_comes_first(world: World) -> None:
    await world.start()
    made = [r.json() for r in world.api.http.requests if r.method == "POST"]
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [
        ("ClusterRole", "sp:restricted"),
        ("ClusterRole", "sp:privileged"),
        ("ClusterRoleBinding", "sp:restricted"),
        ("RoleBinding", "sp:kube-system-privileged"),
        ("SchedulingPolicy", "restricted"),
        ("SchedulingPolicy", "privileged"),
    ]
    assert made == [default.object for default in defaults()]


async def test_second_start_writes_nothing(world: World) -> None:
    await world.start()
    assert await world.start() == []


async def test_what_is_missing_comes_back_with_the_next_start(world: World) -> None:
    await world.start()
    world.api.delete(ROLES, RESTRICTED)
    world.api.put(BINDINGS, RESTRICTED, roleRef=_role_ref("sp:restricted"), subjects=[])
    assert await world.start() == [("POST", "clusterroles"), ("PUT", "sp:restricted")]
    (subject,) = world.api.get(BINDINGS, RESTRICTED)["subjects"]
    assert subject["name"] == "system:authenticated"


async def test_what_says_so_is_left_alone(world: World) -> None:
    await world.start()
    metadata = {"annotations": {AUTOUPDATE: "false"}}
    world.api.put(ROLES, RESTRICTED, rules=[], metadata=metadata)
    policy = ObjectKey("", "restricted")
    world.api.put(SCHEDULING_POLICIES, policy, spec={}, metadata=metadata)
    assert await world.start() == []
    assert world.api.get(SCHEDULING_POLICIES, policy)["spec"] == {}


async def test_binding_of_another_role_is_made_anew(world: World) -> None:
    await world.start()
    world.api.put(BINDINGS, RESTRICTED, roleRef=_role_ref("cluster-admin"), subjects=[])
    assert await world.start() == [("DELETE", "sp:restricted"), ("POST", "clusterrolebindings")]
    found = world.api.get(BINDINGS, RESTRICTED)
    assert (found["roleRef"]["name"], len(found["subjects"])) == ("sp:restricted", 1)


async def test_no_policy_comes_before_opa_knows_who_may_use_it(world: World) -> None:
    world.in_opa = False
    async with world.starting():
        await world.api.http.until(lambda: len(world.api.objects(BINDINGS)) == 1)
        while len(world.asked) < 3:  # noqa: ASYNC110 - nothing is requested meanwhile
            await asyncio.sleep(0.001)
        assert not world.api.objects(SCHEDULING_POLICIES)
        assert world.told[-1].startswith("OPA does not have clusterroles.v1.rbac")
        world.in_opa = True
        await world.api.http.until(lambda: len(world.api.objects(SCHEDULING_POLICIES)) == 2)
    assert set(world.asked) == {
        ("clusterroles", "sp:restricted"),
        ("clusterroles", "sp:privileged"),
        ("clusterrolebindings", "sp:restricted"),
        ("rolebindings", "kube-system", "sp:kube-system-privileged"),
    }


async def test_kind_that_is_not_installed_is_told_and_waited_for(world: World) -> None:
    world.api.undefine(SCHEDULING_POLICIES)
    async with world.starting():
        while not world.told:  # noqa: ASYNC110 - it comes after the answer
            await asyncio.sleep(0.001)
        assert "is manifests/crds installed?" in world.told[-1]
        world.api.define(SCHEDULING_POLICIES, "SchedulingPolicy", namespaced=False, builtin=False)
        await world.api.http.until(lambda: len(world.api.objects(SCHEDULING_POLICIES)) == 2)


async def test_missing_right_is_told_with_where_it_is_to_be_had(world: World) -> None:
    refused = answer(403, b'{"message":"clusterroles is forbidden"}', kind="application/json")
    world.api.http.fault(lambda r: r.method == "POST", refused)
    await world.start()
    assert world.told[0] == "403 clusterroles is forbidden (needed: manifests/scheduling-rbac)"
    assert len(world.api.objects(ROLES)) == 2


async def test_somebody_who_was_first_is_no_trouble(world: World) -> None:
    """Two replicas start at once: what one made is read by the other."""
    await world.start()
    missing = answer(404, b'{"message":"not found"}', kind="application/json")
    world.api.http.fault(lambda r: r.method == "GET", missing)
    assert await world.start() == [("POST", "clusterroles")]  # 409, and then read again
    assert len(world.api.objects(ROLES)) == 2


def test_manifests_are_the_same_objects_in_the_same_order() -> None:
    folder = MANIFESTS / "scheduling"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    found = [yaml.safe_load((folder / name).read_text()) for name in listed]
    assert found == [default.object for default in defaults()]
    assert len(found) == len(list(folder.iterdir())) - 1


def test_default_is_named_as_kubectl_would() -> None:
    default = Default(ROLES, {"kind": "ClusterRole", "metadata": {"name": "a"}})
    assert str(default) == "clusterroles.v1.rbac.authorization.k8s.io a"


def _role_ref(name: str) -> dict[str, Any]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
