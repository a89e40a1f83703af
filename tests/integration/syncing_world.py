"""A hub and two spokes with policy sync between them: what tests of the whole need."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import msgspec.yaml

from kube_sync.config import Settings
from kube_sync.errors import Conflict, NotFound
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.copies import MANAGER, PLACED
from kube_sync.policysync.desired import PLACEMENT, PLACEMENT_DECISIONS
from kube_sync.policysync.hubstate import CONFIGMAPS, GATEWAY_CLASSES, GATEWAYS, MANAGED_CLUSTERS
from kube_sync.policysync.manifestworks import WORKS
from kube_sync.policysync.spoke_secrets import SECRETS
from kube_sync.processes.context import Context, process
from kube_sync.processes.policysync import policy_sync
from kube_sync.processes.topology import topology
from kube_sync.runtime.services import Service
from tests.ocm.fleet import connected, work_agents
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack

COLORS = GroupVersionResource("examples.kube-sync.io", "v1alpha1", "colorpolicies")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
ROUTES = GroupVersionResource("gateway.networking.k8s.io", "v1", "httproutes")
API = "gateway.networking.k8s.io"
MERGE = "application/merge-patch+json"
TOPOLOGY = "kube-sync.io/topology"
Body = dict[str, Any]


class World:
    """A namespace of the hub with a GatewayClass, a Gateway that is placed, and policies."""

    def __init__(self, stack: RunningStack, spokes: Sequence[RunningSpoke], space: str) -> None:
        self.stack = stack
        self.spokes = spokes
        self.space = space
        self.below = f"kuadrant-{space}"
        self.gateway_class = f"multi-{space}"
        self.hub: KubeClient
        self.on: dict[str, KubeClient] = {}
        self.notes: Callable[[], Mapping[str, str]] = dict

    # The hub

    async def install(self, *clusters: str) -> None:
        """Make a class that syncs ColorPolicies, and a Gateway that is on these clusters."""
        for spoke in self.spokes:
            await self.register(spoke.name)
        await self.listing(COLORS)
        ref = {"group": "", "kind": "ConfigMap", "namespace": self.space, "name": "params"}
        spec = {"controllerName": "kube-sync.io/policy-sync", "parametersRef": ref}
        await self.put(GATEWAY_CLASSES, "", self.gateway_class, spec=spec)
        await self.gateway()
        await self.decide(*(clusters or self.names))

    async def register(self, cluster: str) -> None:
        await self.put(MANAGED_CLUSTERS, "", cluster, spec={"hubAcceptsClient": True})
        await self.put(NAMESPACES, "", cluster)

    @property
    def names(self) -> list[str]:
        return [spoke.name for spoke in self.spokes]

    async def listing(self, *gvrs: GroupVersionResource, **more: Any) -> None:
        """Say in the parameters which kinds are synced."""
        listed = [
            {"group": one.group, "version": one.version, "resource": one.resource} for one in gvrs
        ]
        params = json.dumps({"policiesToSync": [one | more for one in listed]})
        await self.put(CONFIGMAPS, self.space, "params", data={"params": params})

    async def gateway(self, name: str = "web", placement: str = "web") -> None:
        listener = {"name": "http", "port": 80, "protocol": "HTTP"}
        spec = {"gatewayClassName": self.gateway_class, "listeners": [listener]}
        labels = {PLACEMENT: placement}
        await self.put(GATEWAYS, self.space, name, metadata={"labels": labels}, spec=spec)

    async def decide(self, *clusters: str, placement: str = "web") -> None:
        """Place what has this label on exactly these clusters."""
        metadata = {"labels": {PLACEMENT: placement}}
        await self.put(PLACEMENT_DECISIONS, self.space, placement, metadata=metadata)
        decisions = [{"clusterName": one, "reason": ""} for one in clusters]
        status = {"status": {"decisions": decisions}}
        await self.merge(PLACEMENT_DECISIONS, self.space, placement, status, "/status")

    async def policy(self, name: str = "paint", color: str = "red", to: str = "web") -> None:
        await self.put(COLORS, self.space, name, spec=spec_of(color, to))

    # Requests

    async def put(
        self,
        gvr: GroupVersionResource,
        space: str,
        name: str,
        *,
        on: KubeClient | None = None,
        metadata: Body | None = None,
        **content: Any,
    ) -> None:
        """Make an object as it is said, or change it so."""
        client = on or self.hub
        body = {
            "apiVersion": f"{gvr.group}/{gvr.version}" if gvr.group else gvr.version,
            "kind": _KINDS[gvr.resource],
            "metadata": {"name": name, **(metadata or {})},
            **content,
        }
        await client.request(
            "PATCH",
            gvr.path(space or None, name),
            params={"fieldManager": "test", "force": "true"},
            body=msgspec.json.encode(body),
            content_type="application/apply-patch+yaml",
        )

    async def merge(
        self, gvr: GroupVersionResource, space: str, name: str, change: Body, sub: str = ""
    ) -> None:
        path = gvr.path(space or None, name) + sub
        body = msgspec.json.encode(change)
        await self.hub.request("PATCH", path, body=body, content_type=MERGE)

    async def get(
        self, gvr: GroupVersionResource, space: str, name: str, on: str = ""
    ) -> Body | None:
        client = self.on[on] if on else self.hub
        try:
            answer = await client.request("GET", gvr.path(space or None, name))
        except NotFound:
            return None
        return msgspec.json.decode(answer)  # type: ignore[no-any-return]

    async def delete(self, gvr: GroupVersionResource, space: str, name: str, on: str = "") -> None:
        client = self.on[on] if on else self.hub
        with suppress(NotFound):
            await client.request("DELETE", gvr.path(space or None, name))

    # What there is

    async def works(self) -> dict[str, list[str]]:
        """Return the clusters of the works, by the name of the policy."""
        found: dict[str, list[str]] = {}
        for one in msgspec.json.decode(await self.hub.request("GET", WORKS.path()))["items"]:
            parent = one["metadata"].get("annotations", {}).get("kuadrant.io/parent", "")
            space, _, name = parent.partition("/")
            if space == self.space:
                found.setdefault(name, []).append(one["metadata"]["namespace"])
        return {name: sorted(clusters) for name, clusters in found.items()}

    async def copy(self, cluster: str, name: str = "paint") -> str | None:
        """Return the color of a copy, None where there is none."""
        found = await self.get(COLORS, self.below, name, on=cluster)
        return None if found is None else found["spec"]["rules"]["a"]["color"]

    async def copies(self, name: str = "paint") -> dict[str, str]:
        found = {one: await self.copy(one, name) for one in self.names}
        return {one: color for one, color in found.items() if color is not None}

    async def listed(self, name: str = "paint") -> list[str]:
        """Return the clusters that the hub's policy says that it is on."""
        found = await self.get(COLORS, self.space, name)
        notes = (found or {}).get("metadata", {}).get("annotations", {})
        return [one["cluster"] for one in json.loads(notes.get(PLACED, "[]"))]

    async def said(
        self, name: str = "paint", *, of_now: bool = False
    ) -> dict[str, tuple[str, str, str]]:
        """Return what the hub's policy says: status, reason and message by the condition.

        `of_now`: only what is said of it as it is now.
        """
        found = await self.get(COLORS, self.space, name) or {}
        generation = found.get("metadata", {}).get("generation")
        return {
            one["type"]: (one["status"], one["reason"], one["message"])
            for entry in found.get("status", {}).get("ancestors", ())
            if entry["controllerName"] == "kube-sync.io/policy-sync"
            for one in entry["conditions"]
            if not of_now or one["observedGeneration"] == generation
        }

    def writes(self) -> Counter[str]:
        """How often what was written by policy sync, by the audit log."""
        return Counter(
            f"{one['verb']} {one['objectRef']['resource']}"
            for one in self.audited()
            if one["objectRef"]["resource"] in _COUNTED
        )

    def audited(self) -> list[Body]:
        """What the audit log tells of policy sync's writes, oldest first."""
        return [
            one
            for one in self.stack.audited(MANAGER, '"verb":"delete"')  # which names no manager
            if one["verb"] in ("create", "patch", "update", "delete") and self.space in line_of(one)
        ]

    # Processes

    @asynccontextmanager
    async def syncing(self, **options: Any) -> AsyncGenerator[Context]:
        """Run policy sync as long as the block lasts."""
        kubeconfig = self.stack.kubeconfigs["admin"]
        settings = self.settings(kubeconfig, **options)
        async with running(settings, policy_sync) as context:
            yield context

    @asynccontextmanager
    async def killed(self, folder: Path) -> AsyncGenerator[None]:
        """Run the command as a process of its own that is killed where the block ends."""
        kubeconfig = str(self.stack.kubeconfigs["admin"])
        file = folder / "config.yaml"
        file.write_bytes(msgspec.yaml.encode(self.document(kubeconfig)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kube_sync", "policy-sync", "--config", str(file)
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()

    async def grant(self, **ways: Path) -> None:
        """Put the kubeconfigs of the spokes into Secrets on the hub, or those of other ways."""
        for spoke in self.spokes:
            kubeconfig = ways.get(spoke.name, spoke.kubeconfig)
            content = base64.b64encode(kubeconfig.read_bytes()).decode()
            metadata = {"labels": {"kube-sync.io/spoke": "true"}}
            data = {"kubeconfig": content}
            await self.put(SECRETS, self.space, spoke.name, metadata=metadata, data=data)

    @asynccontextmanager
    async def topologies(self) -> AsyncGenerator[None]:
        """Run on each spoke what judges policies there."""
        async with _all(
            running(self.settings(spoke.kubeconfig), topology) for spoke in self.spokes
        ):
            yield

    def agents(self, *clusters: str, interval: float = 0.1) -> Any:
        files = {one.name: one.kubeconfig for one in self.spokes}
        chosen = {name: files[name] for name in clusters or files}
        hub = self.stack.kubeconfigs["admin"]
        return work_agents(hub, chosen, interval=interval, jitter=lambda: 0.0)

    def settings(self, kubeconfig: Path, **options: Any) -> Settings:
        return msgspec.convert(self.document(str(kubeconfig), **options), Settings)

    def document(self, kubeconfig: str, **options: Any) -> Body:
        """Return a configuration."""
        return {
            "kubernetes": {"kubeconfig": kubeconfig},
            "coordination": {"namespace": self.space},
            "observe": {"listen": "127.0.0.1:0"},
            "policy_sync": {"grace_seconds": 0, "parameters_namespace": self.space, **options},
        }

    async def below_it(self) -> None:
        """Have on each spoke what placing the Gateway would have brought there."""
        for client in self.on.values():
            await self.put(NAMESPACES, "", self.below, on=client)
            await self.put(NAMESPACES, "", self.space, on=client)
            spec = {"controllerName": "example.com/gateway"}
            await self.put(GATEWAY_CLASSES, "", self.gateway_class, on=client, spec=spec)
            listener = {"name": "http", "port": 80, "protocol": "HTTP"}
            gateway = {"gatewayClassName": self.gateway_class, "listeners": [listener]}
            await self.put(GATEWAYS, self.below, "web", on=client, spec=gateway)
            route = {"parentRefs": [{"name": "web"}], "rules": [{}]}  # where colors take effect
            await self.put(ROUTES, self.below, "route", on=client, spec=route)

    async def clear(self) -> None:
        """Take away what would be others' business after the test."""
        await self.delete(GATEWAY_CLASSES, "", self.gateway_class)
        for client in (self.hub, *self.on.values()):
            with suppress(NotFound):
                for space in (self.space, self.below):
                    await client.request("DELETE", COLORS.path(space))
        for client in self.on.values():
            path = GATEWAY_CLASSES.path(None, self.gateway_class)
            with suppress(NotFound):
                await client.request("DELETE", path)
        for name in self.names:
            path = WORKS.path(name)
            for one in msgspec.json.decode(await self.hub.request("GET", path))["items"]:
                await self._drop(name, one["metadata"]["name"])
            await self.delete(MANAGED_CLUSTERS, "", name)

    async def _drop(self, cluster: str, name: str) -> None:
        with suppress(NotFound):
            await self.merge(WORKS, cluster, name, {"metadata": {"finalizers": None}})
            await self.delete(WORKS, cluster, name)


_COUNTED = ("manifestworks", "colorpolicies", "gatewayclasses")


def line_of(entry: Body) -> str:
    """Return where an entry of the audit log leads: works have the names of their policies."""
    return str(entry["requestURI"])


_KINDS = {
    "colorpolicies": "ColorPolicy",
    "configmaps": "ConfigMap",
    "gatewayclasses": "GatewayClass",
    "gateways": "Gateway",
    "httproutes": "HTTPRoute",
    "listenersets": "ListenerSet",
    "managedclusters": "ManagedCluster",
    "namespaces": "Namespace",
    "placementdecisions": "PlacementDecision",
    "secrets": "Secret",
}


def spec_of(color: str = "red", to: str = "web", **more: Any) -> Body:
    target = {"group": API, "kind": "Gateway", "name": to, **more}
    return {"targetRef": target, "rules": {"a": {"color": color}}}


@asynccontextmanager
async def running(
    settings: Settings, services: Callable[[Context], list[Service]]
) -> AsyncGenerator[Context]:
    """Run a command's parts, without its signals."""
    async with process(settings, 0) as context, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_endless(one)) for one in services(context)]
        try:
            yield context
        finally:
            for task in tasks:
                task.cancel()


async def _endless(service: Service) -> None:
    await service()


@asynccontextmanager
async def _all(blocks: Any) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for block in blocks:
            await stack.enter_async_context(block)
        yield


@asynccontextmanager
async def world_of(
    stack: RunningStack, spokes: Sequence[RunningSpoke], space: str
) -> AsyncGenerator[World]:
    """Yield a world with clients, and take it away afterwards."""
    found = World(stack, spokes, space)
    files = [spoke.kubeconfig for spoke in spokes]
    async with connected(stack.kubeconfigs["admin"], *files) as [found.hub, *clients]:
        found.on = dict(zip(found.names, clients, strict=True))
        try:
            yield found
        finally:
            with suppress(Conflict):
                await found.clear()
