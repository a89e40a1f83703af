"""A plan over a large fleet, beside the same decisions asked for one by one.

The floor asks an OPA of the same program, which holds the same data, for the decision of one
workload after the other over one connection, as the fleet is and as it would be. It is asked about
a sample, spread over the fleet, and counted for all: each workload costs it the same.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.world import medians
from kube_sync.config import Opa, Settings
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import document, projected
from kube_sync.inspect.plan.sources import of_file
from kube_sync.opa.scratch import ScratchOpa
from tools.servers.binaries import ensure_binary

WORKLOADS, CLUSTERS = 10_000, 100
_SAMPLE = 100
_POLICY = Path(__file__).parents[1] / "rego/examples/eu_pci/eu_pci.rego"
_PCI, _EU = (
    "policy.federation.alpha.kubernetes.io/pci-compliance-level",
    "policy.federation.alpha.kubernetes.io/eu-jurisdiction-required",
)
_REGION, _LEVEL = "topology.kubernetes.io/region", "compliance.example.com/pci-level"
_PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
_EDIT = f"c000.labels.{_LEVEL}=0"


def measure_planning(
    runs: int, workloads: int = WORKLOADS, clusters: int = CLUSTERS
) -> dict[str, float]:
    """Measure so many times: seconds of a plan, and of one by one, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.jsonl"
        _write(file, workloads, clusters)
        return medians([asyncio.run(_run(str(file), workloads)) for _ in range(runs)])


async def _run(file: str, workloads: int) -> dict[str, float]:
    settings = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
    begun = time.perf_counter()
    answer = await command.run(
        Request(exported=file, fields=(_EDIT,), form="json"), settings, lambda _: None
    )
    took = time.perf_counter() - begun
    summary = json.loads(answer.text)["summary"]
    if not summary["moves"] or summary["pending"]:
        raise AssertionError(summary)
    one = 2 * await _one_by_one(file, settings, workloads)
    return {
        "plan (s)": took,
        "plan, one by one (s)": one,
        "plan, ratio": took / one,
        "plan, classes": summary["classes"],
        "plan, moves": summary["moves"],
    }


async def _one_by_one(file: str, settings: Settings, workloads: int) -> float:
    """Return how many seconds all decisions take, by those of a sample."""
    bodies = projected(settings, await of_file(file, settings))
    data = document(settings.replicate.root, bodies)
    modules = {"policy": _POLICY.read_text(encoding="utf-8")}
    objects = [*bodies["replicasets"].values()]
    sample = objects[:: max(1, len(objects) // _SAMPLE)]
    async with ScratchOpa(settings.opa.binary).serving(modules, data) as opa:
        begun = time.perf_counter()
        for body in sample:
            await opa.query(settings.placement.path, b'{"input":' + body + b"}")
        return (time.perf_counter() - begun) * workloads / len(sample)


def _write(file: Path, workloads: int, clusters: int) -> None:
    fleet = [_cluster(n) for n in range(clusters)]
    modules = {"eu_pci.rego": _POLICY.read_text(encoding="utf-8")}
    metadata = {"name": "placement", "namespace": "kube-federation-scheduling-policy"}
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": modules}
    placed = [_workload(n, fleet) for n in range(workloads)]
    file.write_bytes(b"\n".join(map(msgspec.json.encode, [policy, *fleet, *placed])))


def _cluster(number: int) -> dict[str, Any]:
    region = ("europe-west", "us-east", "asia-south")[number % 3] + str(number % 5)
    labels = {_REGION: region, _LEVEL: str(3 - number % 4)}
    name = f"c{number:03}"
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": "fleet", "uid": name, "labels": labels},
    }


def _workload(number: int, fleet: list[dict[str, Any]]) -> dict[str, Any]:
    level, is_eu = number % 4, number % 3 == 0
    fits = [
        cluster["metadata"]["name"]
        for cluster in fleet
        if int(cluster["metadata"]["labels"][_LEVEL]) >= level
        and (not is_eu or cluster["metadata"]["labels"][_REGION].startswith("europe-"))
    ]
    preferences = {"clusters": {name: {"weight": 1} for name in fits}, "rebalance": True}
    annotations = {
        _PCI: str(level),
        _EU: str(is_eu).lower(),
        _PREFERENCES: msgspec.json.encode(preferences, order="sorted").decode(),
    }
    name = f"web-{number:05}"
    metadata = {"name": name, "namespace": f"team-{number % 50}", "uid": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}},
    }
