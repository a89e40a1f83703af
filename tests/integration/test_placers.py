"""Both placers between real API servers: what arrives, what is left alone, what is written."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from kube_sync.errors import Conflict, NotFound, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, PolicyId
from kube_sync.policysync.direct_placer import DirectPlacer
from kube_sync.policysync.downstream import Downstream, Source, copied
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.manifestworks import SELECTOR, WORKS
from kube_sync.policysync.ocm_placer import OcmPlacer
from tests.eventually import eventually
from tests.ocm.fleet import connected, work_agents
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack

COLORS = GroupVersionResource("examples.kube-sync.io", "v1alpha1", "colorpolicies")
SECRETS = GroupVersionResource("", "v1", "secrets")
MERGE = "application/merge-patch+json"


class Fleet:
    """A hub, its spokes, and copies that are this test's own."""

    def __init__(self, stack: RunningStack, spokes: tuple[RunningSpoke, ...], space: str) -> None:
        self.stack = stack
        self.spokes = spokes
        self.space = space
        self.news: list[PolicyId] = []

    def copy(self, cluster: str, color: str = "red", **downstream: Any) -> Copy:
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
        spec = {"targetRef": target, "rules": {"a": {"color": color}}}
        policy = PolicyId(COLORS, self.space, "paint")
        source = Source(policy, "ColorPolicy", {"spec": spec}, FIELDS)
        where = Downstream(**downstream)
        return copied(source, [0], [ObjectKey(self.space, "web")], [cluster], where)[cluster]

    @property
    def place(self) -> ObjectKey:
        return ObjectKey(f"kuadrant-{self.space}", "paint")

    @property
    def names(self) -> list[str]:
        return [spoke.name for spoke in self.spokes]

    @asynccontextmanager
    async def direct(self, client: KubeClient) -> AsyncGenerator[DirectPlacer]:
        placer = DirectPlacer(self.news.append)
        placer.follow({COLORS: FIELDS})
        source = KubeCollection(client, SECRETS, namespace=self.space)
        reflector = Reflector("spokes", source, placer.store, lambda _reason: None)
        async with beside(reflector.run(), placer.run()):
            await eventually(lambda: placer.ready)
            yield placer

    @asynccontextmanager
    async def ocm(self, client: KubeClient) -> AsyncGenerator[OcmPlacer]:
        placer = OcmPlacer(client, self.news.append)
        source = KubeCollection(client, WORKS, label_selector=SELECTOR)
        reflector = Reflector("works", source, placer.store, lambda _reason: None)
        async with beside(reflector.run()):
            await eventually(lambda: placer.ready)
            yield placer

    async def grant(self, client: KubeClient) -> None:
        for spoke in self.spokes:
            content = base64.b64encode(spoke.kubeconfig.read_bytes()).decode()
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": spoke.name},
                "data": {"kubeconfig": content},
            }
            path = SECRETS.path(self.space)
            await client.request("POST", path, body=msgspec.json.encode(body))


@asynccontextmanager
async def beside(*loops: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def got(client: KubeClient, gvr: GroupVersionResource, key: ObjectKey) -> Any:
    try:
        return msgspec.json.decode(await client.request("GET", gvr.path(key.namespace, key.name)))
    except NotFound:
        return None


async def merged(
    client: KubeClient, gvr: GroupVersionResource, key: ObjectKey, sub: str = "", **change: Any
) -> None:
    path = gvr.path(key.namespace, key.name) + sub
    body = msgspec.json.encode(change)
    await client.request("PATCH", path, body=body, content_type=MERGE)


@pytest.fixture
def fleet(hub: RunningStack, spokes: tuple[RunningSpoke, ...], namespace: str) -> Fleet:
    return Fleet(hub, spokes, namespace)


async def insisted(placer: DirectPlacer, copy: Copy) -> None:
    """Write it; an API server that learnt of a kind a moment ago may ask to come again (429)."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await placer.apply(copy)
            except Retriable:
                await asyncio.sleep(0.1)


async def test_the_direct_placer_writes_reads_mends_and_removes(fleet: Fleet) -> None:
    """From a kubeconfig in a Secret, by TLS; the namespace is made on the way."""
    files = [fleet.stack.kubeconfigs["admin"], *(spoke.kubeconfig for spoke in fleet.spokes)]
    async with connected(*files) as [client, first, second]:
        await fleet.grant(client)
        one, other = fleet.names
        key = fleet.copy(one).key
        async with fleet.direct(client) as placer:
            await eventually(lambda: len(placer._spokes) == 2 and placer.ready)  # noqa: SLF001 - nothing is sent to a spoke before
            for name in (one, other):
                await insisted(placer, fleet.copy(name))
            assert list(placer.placed(key.policy)) == sorted([one, other])
            there = await got(first, COLORS, fleet.place)
            version = there["metadata"]["resourceVersion"]
            await placer.apply(fleet.copy(one))
            assert (await got(first, COLORS, fleet.place))["metadata"]["resourceVersion"] == version

            await merged(first, COLORS, fleet.place, spec={"rules": {"a": {"color": "x"}}})
            await eventually(lambda: placer.placed(key.policy)[one].digest == "")
            await placer.apply(fleet.copy(one))
            assert (await got(first, COLORS, fleet.place))["spec"]["rules"]["a"]["color"] == "red"
            assert placer.placed(key.policy)[one].digest == fleet.copy(one).digest

            await placer.mark_for_removal(key, 100)
            assert placer.placed(key.policy)[one].remove_after == 100
            await placer.apply(fleet.copy(one, "blue"))
            assert placer.placed(key.policy)[one].remove_after is None
        async with fleet.direct(client) as placer:
            await eventually(lambda: len(placer.placed(key.policy)) == 2)
            await placer.remove(key)
            await eventually(lambda: fleet.news.count(key.policy) > 0)
            assert await got(first, COLORS, fleet.place) is None
            assert await got(second, COLORS, fleet.place) is not None
            assert list(placer.placed(key.policy)) == [other]
            await placer.remove(fleet.copy(other).key)


async def test_the_direct_placer_leaves_a_native_policy_and_adopts_a_restored_copy(
    fleet: Fleet,
) -> None:
    files = [fleet.stack.kubeconfigs["admin"], fleet.spokes[0].kubeconfig]
    async with connected(*files) as [client, spoke]:
        await fleet.grant(client)
        copy = fleet.copy(fleet.names[0])
        async with fleet.direct(client) as placer:
            await eventually(lambda: len(placer._spokes) == 2 and placer.ready)  # noqa: SLF001 - nothing is sent to a spoke before
            await insisted(placer, copy)
            await placer.remove(copy.key)
            # Those that leave, too.
            await eventually(lambda: copy.key.policy not in placer.policies())
            path = COLORS.path(fleet.place.namespace)
            native = {**copy.body, "metadata": {"name": fleet.place.name}}
            await spoke.request("POST", path, body=msgspec.json.encode(native))
            with pytest.raises(Conflict, match="is not ours"):
                await placer.apply(copy)
            await spoke.request("DELETE", COLORS.path(fleet.place.namespace, fleet.place.name))
            await spoke.request("POST", path, body=msgspec.json.encode(copy.body))
            await placer.apply(copy)
            assert placer.placed(copy.key.policy)[fleet.names[0]].digest == copy.digest
            await placer.remove(copy.key)


async def test_works_bring_copies_to_spokes_and_are_waited_for(fleet: Fleet) -> None:
    files = [fleet.stack.kubeconfigs["admin"], fleet.spokes[0].kubeconfig]
    name = fleet.names[0]
    async with connected(*files) as [client, spoke]:
        spaces = GroupVersionResource("", "v1", "namespaces")
        for where, space in ((client, name), (spoke, fleet.place.namespace)):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            with suppress(Conflict):
                await where.request("POST", spaces.path(), body=msgspec.json.encode(body))
        copy = fleet.copy(name)
        options: dict[str, Any] = {"interval": 0.1, "jitter": lambda: 0.0}
        async with fleet.ocm(client) as placer:
            async with work_agents(files[0], {name: files[1]}, **options):
                await placer.apply(copy)
                await eventually(lambda: _said(placer, copy) == copy.digest)
                assert (await got(spoke, COLORS, fleet.place))["spec"] == copy.body["spec"]
                before = fleet.news.count(copy.key.policy)
                await placer.apply(copy)
                changed = fleet.copy(name, "blue")
                await placer.apply(changed)
                await eventually(lambda: _said(placer, copy) == changed.digest)
                assert fleet.news.count(copy.key.policy) > before
            await placer.remove(copy.key)
            assert placer.placed(copy.key.policy) == {}
            with pytest.raises(Retriable, match="is being deleted"):
                await placer.apply(copy)  # nobody is there to take the finalizer away
            async with work_agents(files[0], {name: files[1]}, **options):
                await eventually(
                    lambda: copy.key.policy not in placer.store.policies()
                )  # those that leave, too
            assert await got(spoke, COLORS, fleet.place) is None


def _said(placer: OcmPlacer, copy: Copy) -> object:
    feedback = placer.placed(copy.key.policy)[copy.key.cluster].feedback
    return None if feedback is None else feedback.values.get("digest")
