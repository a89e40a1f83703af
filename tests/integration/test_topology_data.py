"""The topology as data, from a real API server with the Gateway API into a real OPA."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Kubernetes, Opa, Placement, Policies, Replicate, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.errors import SyncError
from kube_sync.kube.client import kube_client
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.audit import AUDIT_MODULE, audit_module
from kube_sync.replicator.replicator import Replicator
from kube_sync.topology.controller.topology_feed import gateway_api_feed
from tests.eventually import eventually
from tests.fakes.topologies import (
    GROUP,
    NS,
    Object,
    color,
    gateway,
    gateway_class,
    listener,
    overrides,
    route,
    rules,
    target,
)
from tools.servers.binaries import ensure_binary
from tools.servers.http import get
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "rego/examples/colored_routes/colored_routes.rego"
_POLICY = "examples/colored/colored_routes.rego"
CLASS = gateway_class() | {"spec": {"controllerName": "example.com/gateway"}}
LISTENERS = (listener("a", port=80), listener("b", port=81))


class World:
    """A namespace of a cluster, and an OPA that is kept in step with it."""

    def __init__(
        self, cluster: RunningStack, opa: RunningOpa, client: OpaClient, namespace: str
    ) -> None:
        self.cluster, self.opa, self.client, self.namespace = cluster, opa, client, namespace
        self.readiness = Readiness()

    def apply(self, *objects: Object) -> None:
        for manifest in json.loads(json.dumps(objects).replace(NS, self.namespace)):
            self.cluster.api.apply(manifest, force=True)

    async def errors(self) -> set[str] | None:
        """Ask the example's rules about the route; None while there is nobody to answer."""
        kind = {"group": GROUP, "version": "v1", "kind": "HTTPRoute"}
        request = {
            "operation": "UPDATE",
            "kind": kind,
            "namespace": self.namespace,
            "name": "route",
        }
        body = json.dumps({"input": request}).encode()
        try:
            answer = await self.client.query("examples/colored_routes/errors", body)
            if answer is None:  # an OPA that has just come knows no policy
                await self.client.put_policy(_POLICY, EXAMPLE.read_text(encoding="utf-8"))
        except SyncError:
            return None
        return None if answer is None else {str(one) for one in json.loads(answer)}

    async def says(self, count: int, *parts: str) -> bool:
        """Tell whether there are so many errors, each with these parts."""
        found = await self.errors()
        if found is None or len(found) != count or not await asyncio.to_thread(self.has_paths):
            return False
        return all(part in error for error in found for part in parts)

    def has_paths(self) -> bool:
        """Tell whether no errors mean that nothing is wrong: there is something to ask about."""
        rule = f"httproute.gateway.networking.k8s.io:{self.namespace}/route#rule-1"
        return rule in self.topology().get("targetables", {})

    async def holds(self, expected: dict[str, Any]) -> bool:
        return await asyncio.to_thread(self.topology) == expected

    async def lacks_only_others(self) -> bool:
        """Tell whether every kind that is granted is followed: other tests may bring more kinds."""
        said = self.readiness.reasons.get("topology", "")
        return not any(kind in said for kind in (".gateway.networking.k8s.io", "ColorPolicy"))

    async def waits(self, what: str) -> bool:
        return what in self.readiness.reasons.get("topology", "")

    def topology(self) -> dict[str, Any]:
        token = self.opa.token_files["replicator"].read_text(encoding="utf-8")
        url = f"{self.opa.url}/v1/data/kubernetes/topology"
        answer = get(url, ca_file=self.opa.ca_file, token=token)
        found: dict[str, Any] = json.loads(answer.body).get("result", {})
        return found


@asynccontextmanager
async def replicating(
    cluster: RunningStack, opa: RunningOpa, namespace: str, role: str = "admin"
) -> AsyncGenerator[World]:
    settings = Settings(
        kubernetes=Kubernetes(kubeconfig=str(cluster.kubeconfigs[role])),
        opa=Opa(opa.url, str(opa.token_files["replicator"]), str(opa.ca_file)),
        replicate=Replicate(resources=(), topology=True),
        policies=Policies(namespaces=(), static=True),
        placement=Placement(resources=()),
    )
    async with kube_client(settings.kubernetes) as kube, opa_client(settings.opa) as client:
        world = World(cluster, opa, client, namespace)
        compiler = ScratchOpa(str(ensure_binary("opa")))
        hub = DecisionHub("test")
        replicator = Replicator(
            settings,
            kube,
            client,
            hub,
            world.readiness,
            compiler,
            shelf=BundleServer(),
            topology=partial(gateway_api_feed, kube),
        )
        task = asyncio.create_task(replicator.run())
        try:
            yield world
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def colors(gateway_api: RunningStack) -> RunningStack:
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    return gateway_api


async def test_rules_are_told_what_applies_and_from_where(
    colors: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    async with replicating(colors, opa, namespace) as world:
        world.apply(CLASS, gateway("my-gateway", *LISTENERS), route())
        none = "no ColorPolicy applies on the path by"
        await eventually(lambda: world.says(2, none))

        world.apply(color("gw", target(), rules=rules(brand="green")))
        await eventually(lambda: world.says(0))
        world.apply(color("own", target("HTTPRoute", "route"), rules=rules(brand="pink")))
        by = f"brand is pink, by colorpolicy.examples.kube-sync.io:{namespace}/own"
        await eventually(lambda: world.says(1, by))

        world.cluster.api.delete("colorpolicies", "gw", namespace)
        world.apply(color("gw", target(), **overrides("merge", brand="blue")))
        await eventually(lambda: world.says(0))


async def test_an_opa_that_is_restarted_or_changed_by_hand_gets_it_again(
    colors: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    async with replicating(colors, opa, namespace) as world:
        world.apply(CLASS, gateway(), route())
        world.apply(color("gw", target(), rules=rules(brand="green")))
        await eventually(lambda: world.says(0))
        before = await asyncio.to_thread(world.topology)
        assert before["merged"]

        opa.server.kill()
        opa.server.start()
        await eventually(lambda: world.says(0))
        assert await asyncio.to_thread(world.topology) == before

        # It would come with the policies, as a bundle that nobody serves here.
        await world.client.put_policy(AUDIT_MODULE, audit_module("kubernetes"))
        by_hand = {
            "op": "remove",
            "path": f"/kubernetes/topology/merged/{next(iter(before['merged']))}",
        }
        await world.client.patch_data([json.dumps(by_hand).encode()])
        assert await asyncio.to_thread(world.topology) != before
        await eventually(lambda: world.holds(before))


async def test_an_account_without_permission_is_told_which_kind_it_lacks(
    colors: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    async with replicating(colors, opa, namespace, role="replicator") as world:
        await eventually(lambda: world.waits("HTTPRoute.gateway.networking.k8s.io"))
        assert "targetables" not in await asyncio.to_thread(world.topology)
        colors.apply(ROOT / "manifests/topology-data-rbac")
        # As the controller does that fills aggregated roles, which is not part of an API server.
        for role in ("gateway-api", "colorpolicies"):
            colors.kubectl(
                *("create", "clusterrolebinding", f"{namespace}-{role}"),
                f"--clusterrole=kube-sync-topology-{role}",
                "--serviceaccount=kube-sync:kube-sync-replicator",
            )
        await eventually(world.lacks_only_others, seconds=60)
