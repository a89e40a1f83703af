"""A replicator that is cut off from the clusters alone: nothing moves by what it last knew of them.

Its decision stream goes on, since ReplicaSets change and are decided on as ever.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bare import bare_client
from tests.eventually import eventually
from tests.faults.proxy import FaultProxy, reply
from tests.faults.world import World, faulty_world
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
from tools.servers.apiserver import write_kubeconfig
from tools.servers.http import get
from tools.servers.running import Launcher, RunningServer, free_port
from tools.servers.stack import RunningStack, furnished_stack

pytestmark = pytest.mark.slow

STALE_SECONDS = 2
POLICY = f"""
package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{"clusters": {{name: {{}} |
	some name, found in data.kubernetes.clusters.{FLEET}
	found.metadata.labels["{REGION}"] == input.metadata.labels.region
}}}} if input.metadata.labels.region != "lost"

annotations["{PREFERENCES}"] := {{"clusters": {{"atlantis": {{}}}}}} if {{
	input.metadata.labels.region == "lost"
}}
"""
UNREAD = "clusters that cannot be read"
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
    own: FaultProxy  # between the remediator and the API server
    status_url: str
    start: Callable[..., RunningServer]  # of the remediator
    service: RunningServer

    async def restart(self) -> None:
        """Restart the remediator, which need not get ready."""
        await asyncio.to_thread(self.service.stop)
        self.service = await asyncio.to_thread(self.start, ready="/livez")

    async def label(self, kind: str, where: str, name: str, **labels: str) -> None:
        pairs = [f"{key}={text}" for key, text in labels.items()]
        arguments = ("label", kind, name, "--overwrite", *pairs, f"--namespace={where}")
        await asyncio.to_thread(self.stack.kubectl, *arguments)

    def placement(self, name: str = "web") -> Any:
        arguments = ("get", "replicaset", name, f"--namespace={SHOP}", "--output=json")
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

    def events(self) -> list[tuple[str, ...]]:
        """Return whom Events beside clusters are about, and what they say, each Event once."""
        arguments = ("get", "events.events.k8s.io", f"--namespace={FLEET}", "--output=json")
        found = json.loads(self.stack.kubectl(*arguments))["items"]
        says = ("type", "reason", "reportingController")
        return [(one["regarding"]["name"], *(one[key] for key in says)) for one in found]

    def patches(self) -> int:
        """Count the PATCHes of the workload by the remediator; the audit log is the witness."""
        lines = self.stack.audited("kube-sync-remediator")
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


def proxied(stack: RunningStack, folder: Path) -> FaultProxy:
    """Return a proxy before the API server, with the certificates that lie in `folder`."""
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    reach = ssl.create_default_context(cafile=stack.apiserver_ca_file)
    port = int(stack.apiserver.url.rpartition(":")[2])
    return FaultProxy(port, serve=serve, reach=reach)


@pytest.fixture
async def fleet(stack: RunningStack, tmp_path: Path) -> AsyncGenerator[Fleet]:
    listen, certificates = f"127.0.0.1:{free_port()}", tmp_path / "replicate"
    guard = {**GUARD_OFF, "stale_seconds": STALE_SECONDS}
    async with (
        bare_client(stack) as bare,
        faulty_world(stack, bare, certificates, seed=0) as replicator,
        proxied(stack, certificates) as own,
    ):
        await replicator.settled()
        folder, token = tmp_path / "remediate", stack.kube_tokens["remediator"]
        url, ca_file = f"https://127.0.0.1:{own.port}", certificates / "ca.crt"
        kubeconfig = write_kubeconfig(folder, "remediator", url, ca_file, token)
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(kubeconfig)},
            "decisions": stack.endpoint.client(),
            "remediate": {"listen": listen, "guard": guard},
        }
        start = partial(start_service, "remediate", folder, configuration)
        service = await asyncio.to_thread(start)
        running = Fleet(stack, replicator, own, f"http://{listen}", start, service)
        try:
            await eventually(running.placement, ["east"])
            yield running
        finally:
            await asyncio.to_thread(running.service.stop)


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


async def test_cluster_that_cannot_be_read_is_told_beside_it_once_and_nothing_moves(
    fleet: Fleet,
) -> None:
    """By the remediator, with its own role: the replicator may write Events beside policies."""
    before = fleet.patches()
    await fleet.replicator.nest(FLEET, "west")
    told = [("west", "Warning", "RemediationUnreadable", "kube-sync.io/remediator")]
    await eventually(fleet.events, told)
    await eventually(lambda: fleet.stale().get(UNREAD, 0) > STALE_SECONDS, expected=True)
    await fleet.label("replicaset", SHOP, "web", region="us")
    await eventually(fleet.waiting, [("web", UNREAD)])
    assert (fleet.placement(), fleet.patches()) == (["east"], before)
    await fleet.replicator.specify(FLEET, "west", None)
    await eventually(fleet.placement, ["west"])
    assert fleet.events() == told


async def test_nothing_moves_while_the_remediator_does_not_see_the_clusters(fleet: Fleet) -> None:
    """It counts them itself: a fleet that shrinks would not be noticed."""
    clock = asyncio.get_running_loop().time
    fleet.own.reply(b"/clusterprofiles", reply(503), _OFTEN)
    fleet.own.cut(b"/clusterprofiles")
    begun, before = clock(), fleet.patches()
    await eventually(lambda: clock() > begun + STALE_SECONDS + 1, expected=True)
    await fleet.label("replicaset", SHOP, "web", region="us")
    counted = "clusterprofiles.v1alpha1.multicluster.x-k8s.io to count"
    await eventually(fleet.waiting, [("web", counted)])
    assert (fleet.placement(), fleet.patches()) == (["east"], before)
    fleet.own.calm()
    await eventually(fleet.placement, ["west"])
    assert fleet.patches() == before + 1


async def test_remediator_that_restarts_places_nothing_before_it_lists_the_clusters(
    fleet: Fleet,
) -> None:
    """A placement on no cluster of the fleet was held, and would be written in between."""
    lost = replica_set("lost")
    lost["metadata"]["labels"]["region"] = "lost"
    await asyncio.to_thread(fleet.stack.kubectl, "create", "-f", "-", stdin=json.dumps(lost))
    held = [("lost", "it would run on no cluster")]
    await eventually(fleet.waiting, held)
    fleet.own.reply(b"/clusterprofiles", reply(503), _OFTEN)
    await fleet.restart()
    await eventually(fleet.waiting, [("lost", "it is not known which clusters there are")])
    fleet.own.calm()
    await eventually(fleet.waiting, held)
    assert fleet.placement("lost") is None
