"""A hub with many clusters and policies: what policy sync is measured and tested on at scale.

There are no spokes: what their agents would say is written by `answer`. Every cluster has each
policy, so there are as many works as clusters times policies. The audit log is the witness of what
was written.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bare import Bare
from tests.ocm.feedback import feedback
from tests.ocm.statuses import (
    THERE,
    applied_entry,
    applied_status,
    available_status,
    with_available,
    with_feedback,
)
from tools.demo.components import start_service
from tools.demo.fleet import Manifest, namespace
from tools.demo.sync.objects import (
    PLACEMENT,
    SPACE,
    color_policy,
    decided,
    decision,
    gateway,
    gateway_class,
    managed_cluster,
    parameters,
)
from tools.servers.accounts import account
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

AT_ONCE = 16  # as many requests as policy sync has under way
WORKS = "/apis/work.open-cluster-management.io/v1/{}manifestworks"
POLICIES = f"/apis/examples.kube-sync.io/v1alpha1/namespaces/{SPACE}/colorpolicies"
_USER = "system:serviceaccount:kube-sync:kube-sync-policy-sync"
_ROOT = Path(__file__).resolve().parents[1]
_CLUSTERS = "/apis/cluster.open-cluster-management.io"
_DECISIONS = f"{_CLUSTERS}/v1beta1/namespaces/{SPACE}/placementdecisions"
_GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"
_GRACE = 10.0  # seconds: more than a loaded machine needs until works are marked with it
_IN_ONE = 60  # clusters of a decision: so that there are several (OCM has at most 100 in one)
_PATIENCE = 300.0  # seconds

Writes = Counter[tuple[str, str]]  # by verb, and resource with its subresource


@dataclass
class Fleet:
    """A hub, its clusters and policies, and what policy sync has written on it."""

    stack: RunningStack
    bare: Bare
    clusters: list[str]
    policies: list[str]
    kubeconfig: Path  # of policy sync
    writes: Writes = field(default_factory=Counter)
    last: float = 0.0  # when the last of them was answered, in Unix seconds
    _seen: int = 0  # bytes of the audit log

    async def place(self, clusters: Sequence[str]) -> None:
        """Have the Gateway placed on these clusters, by several decisions."""
        for start in range(0, len(self.clusters), _IN_ONE):
            number = start // _IN_ONE + 1
            here = [one for one in self.clusters[start : start + _IN_ONE] if one in clusters]
            path = f"{_DECISIONS}/{PLACEMENT}-decision-{number}/status"
            status = {"status": decided(here)["status"]}
            await self.bare.kube("PATCH", path, status, "merge-patch+json")

    async def paint(self, policy: str, sky: str) -> None:
        """Edit a policy."""
        change = {"spec": {"rules": {"sky": {"color": sky}}}}
        await self.bare.kube("PATCH", f"{POLICIES}/{policy}", change, "merge-patch+json")

    async def works(self, cluster: str = "") -> list[Any]:
        """Return the works of a cluster, or all."""
        where = WORKS.format(f"namespaces/{cluster}/" if cluster else "")
        found: list[Any] = json.loads(await self.bare.kube("GET", where))["items"]
        return found

    async def status(self, policy: str) -> dict[str, str]:
        """Return the reason of each condition of a policy of the hub."""
        found = json.loads(await self.bare.kube("GET", f"{POLICIES}/{policy}"))
        (entry,) = found["status"]["ancestors"]
        return {one["type"]: one["reason"] for one in entry["conditions"]}

    async def answer(self, works: Iterable[Any]) -> None:
        """Say of works what the agents of their clusters would."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        async def one(work: Any) -> None:
            metadata = work["metadata"]
            where = WORKS.format(f"namespaces/{metadata['namespace']}/")
            path = f"{where}/{metadata['name']}/status"
            await self.bare.kube("PATCH", path, {"status": said(work, now)}, "merge-patch+json")

        await side_by_side(one(work) for work in works)

    def start(self, folder: Path) -> RunningServer:
        """Start policy sync beside the hub, and wait until it is ready."""
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.kubeconfig)},
            "policy_sync": {"grace_seconds": _GRACE},
        }
        return start_service("policy-sync", folder, configuration)

    def forget(self) -> None:
        """Count from now on."""
        self.count()
        self.writes.clear()

    def count(self) -> Writes:
        """Return what policy sync has written since `forget`, but for its Lease."""
        log = self.stack.audit_log
        if log is None:
            msg = "there is no audit log to count in"
            raise ValueError(msg)
        with log.open("rb") as lines:
            lines.seek(self._seen)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._seen += len(line)
                if _USER.encode() in line:
                    self._take(json.loads(line))
        return self.writes

    def _take(self, line: Any) -> None:
        about = line.get("objectRef", {})
        resource = "/".join(filter(None, [about.get("resource"), about.get("subresource")]))
        if line["verb"] in ("get", "list", "watch") or resource in (
            "leases",
            "selfsubjectaccessreviews",
        ):
            return
        self.writes[line["verb"], resource] += 1
        self.last = datetime.fromisoformat(line["stageTimestamp"]).timestamp()

    async def quiet(self, seconds: float) -> None:
        """Wait until policy sync has written nothing for so long."""
        begun = since = time.monotonic()
        before = self.count().total()
        while time.monotonic() - since < seconds:
            if time.monotonic() - begun > _PATIENCE:
                msg = f"it goes on writing after {_PATIENCE:.0f} s: {dict(self.writes)}"
                raise TimeoutError(msg)
            await asyncio.sleep(0.1)
            if self.count().total() != before:
                before, since = self.writes.total(), time.monotonic()

    async def until(self, written: Callable[[Writes], bool]) -> None:
        """Wait until this is so of what was written."""
        async with asyncio.timeout(_PATIENCE):
            while not written(self.count()):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.05)


async def create_fleet(stack: RunningStack, bare: Bare, clusters: int, policies: int) -> Fleet:
    """Create a hub's clusters and policies; the Gateway is placed nowhere yet."""
    stack.install_gateway_api()
    stack.install_open_cluster_management()
    stack.install_kinds(_ROOT / "manifests/examples/colorpolicy")
    kubeconfig = account(stack.api, "policy-sync", stack.kubeconfigs["admin"].parent)
    names = [f"cluster-{number:03}" for number in range(clusters)]
    painted = [f"house-{number:02}" for number in range(policies)]
    await _create(bare, "/api/v1/namespaces", map(namespace, [SPACE, *names]))
    await _create(bare, f"{_CLUSTERS}/v1/managedclusters", map(managed_cluster, names))
    await _create(bare, f"/api/v1/namespaces/{SPACE}/configmaps", [parameters()])
    await _create(bare, f"{_GATEWAY_API}/gatewayclasses", [gateway_class(parameters=True)])
    decisions = [decision(number + 1) for number in range(-(-clusters // _IN_ONE))]
    await _create(bare, _DECISIONS, decisions)
    placed = [gateway(SPACE, placed=True)]
    await _create(bare, f"{_GATEWAY_API}/namespaces/{SPACE}/gateways", placed)
    await _create(bare, POLICIES, (color_policy(name, SPACE, "blue") for name in painted))
    return Fleet(stack, bare, names, painted, kubeconfig)


def said(work: Any, now: str) -> dict[str, Any]:
    """Return the status of a work whose policy is in force, as the agent of its cluster has it."""
    (manifest,), (config,) = work["spec"]["workload"]["manifests"], work["spec"]["manifestConfigs"]
    version = manifest["apiVersion"].rpartition("/")[2]
    meta = {
        "ordinal": 0,
        **config["resourceIdentifier"],
        "version": version,
        "kind": manifest["kind"],
    }
    entry = applied_entry(work, meta, None, now)
    work = {**work, "status": applied_status(work, [entry], now)}
    values, synced = feedback(_in_force(manifest), config["feedbackRules"])
    entry = with_feedback(with_available(entry, THERE, now), values, synced, now)
    return available_status(work, [entry], now)


def _in_force(manifest: Any) -> dict[str, Any]:
    condition = {"status": "True", "message": "", "observedGeneration": 1}
    conditions = [condition | {"type": one, "reason": one} for one in ("Accepted", "Programmed")]
    ancestor = {"controllerName": "kube-sync.io/topology", "conditions": conditions}
    metadata = {**manifest["metadata"], "generation": 1}
    return {**manifest, "metadata": metadata, "status": {"ancestors": [ancestor]}}


async def _create(bare: Bare, path: str, objects: Iterable[Manifest]) -> None:
    await side_by_side(bare.kube("POST", path, one) for one in objects)


async def side_by_side(requests: Iterable[Awaitable[Any]]) -> None:
    """Make requests, as many at a time as policy sync does."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(request: Awaitable[Any]) -> None:
        async with gate:
            await request

    await asyncio.gather(*map(one, requests))
