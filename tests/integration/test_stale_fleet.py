"""A replicator that is cut off from the clusters alone: nothing moves by what it last knew of them.

Its decision stream goes on, since ReplicaSets change and are decided on as ever.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bare import bare_client
from tests.faults.proxy import reply
from tests.faults.world import World, faulty_world
from tests.integration.test_pair import eventually
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import (
    FLEET,
    PREFERENCES,
    REGION,
    SHOP,
    cluster,
    namespace,
    policy_map,
    replica_set,
)
from tools.servers.http import get
from tools.servers.running import Launcher, free_port
from tools.servers.stack import RunningStack, furnished_stack

STALE_SECONDS = 2
POLICY = f"""
package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{"clusters": {{name: {{}} |
	some name, found in data.kubernetes.clusters.{FLEET}
	found.metadata.labels["{REGION}"] == input.metadata.labels.region
}}}}
"""
_OFTEN = 10_000
_EXPIRED = (
    json.dumps(
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    ).encode()
    + b"\n"
)


@dataclass
class Fleet:
    """Two clusters, a workload, and a remediator that moves it by what the replicator decides."""

    stack: RunningStack
    replicator: World
    status_url: str

    async def label(self, kind: str, where: str, name: str, **labels: str) -> None:
        pairs = [f"{key}={text}" for key, text in labels.items()]
        arguments = ("label", kind, name, "--overwrite", *pairs, f"--namespace={where}")
        await asyncio.to_thread(self.stack.kubectl, *arguments)

    def placement(self) -> Any:
        arguments = ("get", "replicaset", "web", f"--namespace={SHOP}", "--output=json")
        metadata = json.loads(self.stack.kubectl(*arguments))["metadata"]
        text = metadata.get("annotations", {}).get(PREFERENCES)
        return sorted(json.loads(text)["clusters"]) if text else None

    def stale(self) -> dict[str, float]:
        """Return what the stream says is not current, and for how many seconds."""
        endpoint = self.stack.endpoint
        token = endpoint.token_file.read_text(encoding="utf-8").strip()
        url = f"{endpoint.url}/v1/decisions/io/k8s/federation/admission"
        lines = get(url, ca_file=endpoint.ca_file, token=token).body.splitlines()
        status = next(r for r in map(json.loads, lines) if r["type"] == "status")
        return {one["source"]: one["seconds"] for one in status["stale"]}

    def waiting(self) -> list[tuple[str, str]]:
        """Return what waits for what, as the remediator tells."""
        found = json.loads(get(f"{self.status_url}/v1/remediation/status").body)["waiting"]
        return [(one["name"], one["reason"].partition(":")[0]) for one in found]

    def patches(self) -> int:
        """Count the PATCHes of the workload by the remediator; the audit log is the witness."""
        assert self.stack.audit_log is not None
        lines = map(json.loads, self.stack.audit_log.read_text(encoding="utf-8").splitlines())
        return sum(
            line["verb"] == "patch"
            and line["objectRef"]["resource"] == "replicasets"
            and line["user"]["username"].endswith("kube-sync-remediator")
            for line in lines
            if "objectRef" in line
        )


@pytest.fixture
def stack(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    with furnished_stack(launcher, tmp_path / "stack", audit=True) as running:
        east, west = cluster("east", "eu", "1"), cluster("west", "us", "1")
        web = replica_set("web")
        web["metadata"]["labels"]["region"] = "eu"
        for made in (namespace(FLEET), namespace(SHOP), policy_map(POLICY), east, west, web):
            running.kubectl("create", "-f", "-", stdin=json.dumps(made))
        yield running


@pytest.fixture
async def fleet(stack: RunningStack, tmp_path: Path) -> AsyncGenerator[Fleet]:
    listen = f"127.0.0.1:{free_port()}"
    guard = {**GUARD_OFF, "stale_seconds": STALE_SECONDS}
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["remediator"])},
        "decisions": stack.endpoint.client(),
        "remediate": {"listen": listen, "guard": guard},
    }
    async with (
        bare_client(stack) as bare,
        faulty_world(stack, bare, tmp_path / "replicate", seed=0) as replicator,
    ):
        await replicator.settled()
        folder = tmp_path / "remediate"
        service = await asyncio.to_thread(start_service, "remediate", folder, configuration)
        try:
            running = Fleet(stack, replicator, f"http://{listen}")
            await eventually(running.placement, ["east"])
            yield running
        finally:
            await asyncio.to_thread(service.stop)


@pytest.mark.parametrize("fault", ["watch", "list"])
async def test_nothing_moves_while_the_replicator_does_not_see_the_clusters(
    fleet: Fleet, fault: str
) -> None:
    proxy, refused = fleet.replicator.kube.inner, reply(503)
    if fault == "watch":
        proxy.reply(b"/clusterprofiles", refused, _OFTEN)
        proxy.cut(b"/clusterprofiles")
    else:
        proxy.reply(b"/clusterprofiles?limit", refused, _OFTEN)
        assert proxy.inject(b"/clusterprofiles", _EXPIRED) == 1
    await eventually(lambda: fleet.stale().get("clusters", 0) > STALE_SECONDS, expected=True)
    assert set(fleet.stale()) == {"clusters"}
    before = fleet.patches()
    await fleet.label("replicaset", SHOP, "web", region="us")
    await eventually(fleet.waiting, [("web", "clusters")])
    assert (fleet.placement(), fleet.patches()) == (["east"], before)
    # West is gone for who sees it: a move by what was known would have been a wrong one.
    await fleet.label("clusterprofile", FLEET, "west", **{REGION: "asia"})
    await fleet.label("clusterprofile", FLEET, "east", **{REGION: "us"})
    fleet.replicator.kube.calm()
    await eventually(fleet.stale, {})
    await eventually(fleet.waiting, [])
    assert (fleet.placement(), fleet.patches()) == (["east"], before)
    await fleet.label("replicaset", SHOP, "web", region="asia")
    await eventually(fleet.placement, ["west"])
    assert fleet.patches() == before + 1
