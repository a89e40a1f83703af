"""The webhook in front of OPA, beside the same queries sent straight to that OPA.

One load client for both, over TLS and with a token as in production; runs of the floor and of the
webhook take turns, and each figure is the median of its runs; that of a ratio is taken of the
ratios, since what else the machine does weighs on neighbouring runs alike.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import world
from benchmarks.bare import Bare
from benchmarks.load import Target, load
from kube_sync.certificates import issue, make_authority
from tools.demo.components import start_service
from tools.demo.fleet import FLEET, POLICY, cluster, replica_set
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.running import RunningServer, free_port
from tools.servers.stack import RunningStack

AT_ONCE = 32
_CLUSTERS = 20
_DISTINCT = 60  # reviews
_DECISION = "io/k8s/federation/admission"
ONE_LINE = 'package io.k8s.federation.admission\n\nannotations["example.com/seen"] := "yes"\n'
_AT_32 = 2000  # requests over as many connections
_AT_ONE = 500  # over one
_WARM = 500


@dataclass(frozen=True, slots=True)
class Pair:
    """The two that are compared, and the processes behind them."""

    floor: Target
    webhook: Target
    servers: tuple[RunningServer, RunningServer]  # OPA, webhook

    def cpu(self) -> list[float]:
        """Return the CPU seconds that both have used."""
        return [world.cpu_seconds(server) for server in self.servers]


async def measure_admission(
    stack: RunningStack, bare: Bare, runs: int, requests: int
) -> dict[str, float]:
    """Measure with the demo's policy, with one of a line, and memory over so many requests."""
    found: dict[str, float] = {}
    await bare.put(f"kubernetes/clusters/{FLEET}", json.dumps(_clusters()).encode())
    async with _webhook(stack) as pair:
        policies = {"demo's policy": POLICY.read_text(encoding="utf-8"), "one line": ONE_LINE}
        for name, source in policies.items():
            await bare.put_policy("bench/placement/policy.rego", source)
            for target in (pair.floor, pair.webhook):
                await load(target, _WARM, AT_ONCE)
            figures = await _throughput(pair, runs) | await _latency(pair, runs)
            found |= {f"admission, {name}, {what}": value for what, value in figures.items()}
        return found | await _memory(pair, requests)


async def _throughput(pair: Pair, runs: int) -> dict[str, float]:
    found = []
    for _ in range(runs):
        floor = await load(pair.floor, _AT_32, AT_ONCE)
        before = pair.cpu()
        own = await load(pair.webhook, _AT_32, AT_ONCE)
        opa, webhook = (n - b for n, b in zip(pair.cpu(), before, strict=True))
        found.append(
            {
                "floor (1/s)": floor.per_second,
                "webhook (1/s)": own.per_second,
                "throughput, ratio": own.per_second / floor.per_second,
                "client's CPU, floor": floor.cpu,
                "client's CPU, webhook": own.cpu,
                "OPA's CPU, webhook": opa / _AT_32 * own.per_second,
                "webhook's CPU": webhook / _AT_32 * own.per_second,
                "webhook's CPU a review (ms)": webhook / _AT_32 * 1e3,
            }
        )
    return world.medians(found)


async def _latency(pair: Pair, runs: int) -> dict[str, float]:
    found = []
    for _ in range(runs):
        floor = await load(pair.floor, _AT_ONE, 1)
        own = await load(pair.webhook, _AT_ONE, 1)
        found.append(
            {
                "median, floor (ms)": floor.median * 1e3,
                "median (ms)": own.median * 1e3,
                "added median (ms)": (own.median - floor.median) * 1e3,
                "p99, floor (ms)": floor.p99 * 1e3,
                "p99 (ms)": own.p99 * 1e3,
                "p99, ratio": own.p99 / floor.p99,
            }
        )
    return world.medians(found)


async def _memory(pair: Pair, requests: int) -> dict[str, float]:
    """Compare the webhook's memory after a tenth of the requests and after all."""
    early = requests // 10
    await load(pair.webhook, early, AT_ONCE)
    before = pair.servers[1].rss_bytes()
    await load(pair.webhook, requests - early, AT_ONCE)
    after = pair.servers[1].rss_bytes()
    return {
        f"admission, memory after {early} (MB)": before / 1e6,
        f"admission, memory after {requests} (MB)": after / 1e6,
        "admission, memory, ratio": after / before,
    }


@asynccontextmanager
async def _webhook(stack: RunningStack) -> AsyncGenerator[Pair]:
    """Run `kube-sync admit` before the stack's OPA."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-webhook-"))
    authority, port = make_authority("bench"), free_port()
    write_pair(folder, "tls", issue(authority, "webhook", LOOPBACK))
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    token_file = stack.opa_token_files["admission"]
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
        "opa": stack.opa_settings() | {"token_file": str(token_file)},
        "policies": {"static": True},  # there is no ConfigMap: OPA was given its policy by hand
        "admission": {
            "listen": f"127.0.0.1:{port}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
            "drain_seconds": 0.1,
        },
    }
    server = await asyncio.to_thread(start_service, "admit", folder / "admit", configuration)
    token = token_file.read_text(encoding="utf-8").strip()
    objects = replica_sets()
    floor = Target(
        f"{stack.opa_url}/v1/data/{_DECISION}",
        str(stack.opa_ca_file),
        [json.dumps({"input": found}) for found in objects],
        '"annotations"',
        {"Authorization": f"Bearer {token}"},
    )
    url = f"https://127.0.0.1:{port}/admit/placement?timeout=10s"
    reviews = [json.dumps(review(found)) for found in objects]
    try:
        yield Pair(floor, Target(url, str(ca_file), reviews, '"JSONPatch"'), (stack.opa, server))
    finally:
        await asyncio.to_thread(server.stop)
        shutil.rmtree(folder)


def _clusters() -> dict[str, Any]:
    found = (cluster(f"cluster-{n:04}", "europe-west1", "3") for n in range(_CLUSTERS))
    return {manifest["metadata"]["name"]: manifest for manifest in found}


def replica_sets() -> list[dict[str, Any]]:
    """Return the objects that reviews are about, of six classes."""
    return [_replica_set(index) for index in range(_DISTINCT)]


def _replica_set(index: int) -> dict[str, Any]:
    return replica_set(f"app-{index:05}", eu=index % 2 == 0, pci=str(index % 3))


def review(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what the API server asks about a create."""
    metadata = manifest["metadata"]
    named = {"group": "apps", "version": "v1"}
    resource = named | {"resource": "replicasets"}
    kind = named | {"kind": "ReplicaSet"}
    user = {
        "username": "system:serviceaccount:kube-system:deployment-controller",
        "uid": "0b5e54a3-6a3c-4b0e-8d0c-6a6a6f5f4c52",
        "groups": ["system:serviceaccounts", "system:authenticated"],
    }
    request = {
        "uid": f"705ab4f5-6393-11e8-b7cc-{metadata['name'][-5:]:0>12}",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "operation": "CREATE",
        "userInfo": user,
        "object": manifest,
        "oldObject": None,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
