"""Traces of real servers: from a watch event to the PATCH, and from a review to OPA's answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commandline import kube_sync
from tests.eventually import eventually
from tests.fakes.otlp import Collector, Seen, collector
from tests.integration.test_pair import LEVELLED
from tools.demo.components import Components, start_components
from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, cluster, policy_map, replica_set
from tools.demo.fleet import namespace as namespace_manifest
from tools.demo.webhook import register_webhook
from tools.servers.binaries import ensure_binary
from tools.servers.files import write_file
from tools.servers.http import request
from tools.servers.running import Launcher
from tools.servers.secured_opa import start_opa
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.timeout(180)

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
VALUE = "what-an-owner-wrote"
REPLICATE, EVALUATE = "kube-sync-replicate: replicate", "kube-sync-replicate: evaluate"
REMEDIATE = "kube-sync-remediate: remediate"
PATCH = "kube-sync-remediate: PATCH API server"
REVIEW = "kube-sync-admit: admission review"


@dataclass
class World:
    """The three processes and OPA, which all export to one collector."""

    stack: RunningStack
    components: Components
    collected: Collector
    namespace: str
    folder: Path

    def create(self, name: str, level: str) -> None:
        """Create a ReplicaSet of this level."""
        manifest = replica_set(name, pci=level)
        manifest["metadata"]["namespace"] = self.namespace
        manifest["metadata"]["annotations"]["example.com/a"] = VALUE
        self.stack.api.create(manifest)

    def has_placement(self, name: str) -> bool:
        """Tell whether a ReplicaSet has a placement."""
        found = self.stack.api.get("replicasets", name, self.namespace)
        return PREFERENCES in found["metadata"].get("annotations", {})

    def spans(self, name: str, of: str) -> list[Seen]:
        """Return the spans of this name about a ReplicaSet."""
        about = f"{self.namespace}/{of}"
        found = self.collected.named(name)
        return [one for one in found if one.attributes.get("kube_sync.object") == about]

    def of_opa(self, trace: str) -> list[Seen]:
        """Return OPA's spans in a trace."""
        return [s for s in self.collected.spans if (s.service, s.trace) == ("opa", trace)]

    def patched(self, name: str) -> list[list[str]]:
        """Return the chains from a root to the PATCH of a ReplicaSet."""
        traces = {one.trace for one in self.spans("remediate", name)}
        patches = [s for s in self.collected.named("PATCH API server") if s.trace in traces]
        return [self.collected.chain(one) for one in patches]


@pytest.fixture(scope="module")
def world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder, namespace = tmp_path_factory.mktemp("traces"), "traced"
    stack.api.create_namespace(namespace)
    with collector() as collected:
        tracing = {
            "type": "http",
            "address": collected.url.removeprefix("http://"),
            "sample_percentage": "0",  # nothing but what kube-sync records
            "batch_span_processor_options.batch_timeout_ms": "50",
        }
        arguments = [f"--set=distributed_tracing.{key}={value}" for key, value in tracing.items()]
        opa = start_opa(launcher, folder / "opa", arguments)
        own = replace(
            stack,
            opa=opa.server,
            opa_url=opa.url,
            opa_ca_file=opa.ca_file,
            opa_token_files=opa.token_files,
            replicator=opa.replicator,
        )
        environment = {
            "KUBE_SYNC_OBSERVE_TRACING_ENABLED": "true",
            "KUBE_SYNC_OBSERVE_TRACING_RATIO": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        components = start_components(own, folder / "services", environment=environment)
        try:
            stack.api.apply(namespace_manifest(FLEET))
            stack.api.apply(cluster("west", "europe-west1", "9"))
            stack.api.apply(policy_map(LEVELLED))
            yield World(own, components, collected, namespace, folder)
        finally:
            components.stop()
            opa.server.stop()
            stack.api.delete("configmaps", "placement", POLICIES)
            stack.api.delete_all("clusterprofiles", FLEET)
            stack.api.delete_all("replicasets", namespace)


@pytest.fixture
def webhook(world: World) -> Iterator[None]:
    """The registration of the webhook."""
    register_webhook(world.stack, world.components.webhook_url, world.components.webhook_ca)
    yield
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        world.stack.api.delete(kind, "kube-sync-placement")


async def test_a_placement_is_one_trace_from_the_watch_event_to_the_patch(world: World) -> None:
    world.create("first", "1")  # the policy is in force once it is placed
    await eventually(lambda: world.patched("first"))
    world.create("web", "7")
    await eventually(lambda: world.patched("web"), [[REPLICATE, EVALUATE, REMEDIATE, PATCH]])
    [remediate] = world.spans("remediate", "web")
    assert remediate.attributes["kube_sync.outcome"] == "applied"
    [replicated] = [s for s in world.collected.named("replicate") if s.trace == remediate.trace]
    assert replicated.attributes["kube_sync.objects"] == [f"replicasets {world.namespace}/web"]
    # OPA's own spans of the write and of the evaluation are in the same trace.
    ours = {s.span: s.name for s in world.collected.spans if s.trace == remediate.trace}
    await eventually(
        lambda: {ours.get(one.parent) for one in world.of_opa(remediate.trace)},
        {"PATCH OPA", "POST OPA"},
    )
    # An object of the same class is not evaluated again.
    world.create("same", "7")
    await eventually(lambda: world.patched("same"), [[REPLICATE, REMEDIATE, PATCH]])
    # From the trace to the log and the decision stream, and back.
    [line] = [
        found
        for found in map(json.loads, world.components.services["remediate"].logs().splitlines())
        if found["event"] == "remediated" and found["key"] == f"{world.namespace}/web"
    ]
    assert (line["trace_id"], line["span_id"]) == (remediate.trace, remediate.span)
    decision = decided(world, "web")
    assert str(decision["seq"]) == remediate.attributes["kube_sync.decision.seq"]
    assert decision["trace"].split("-")[1] == remediate.trace
    assert VALUE.encode() not in world.collected.received
    assert b'{"clusters"' not in world.collected.received
    for name in ("kube_sync_replication_lag_seconds", "kube_sync_decision_evaluation_seconds"):
        assert exemplars(world, "replicate", name), name
    # `why` names the trace of the decision that it tells of.
    assert (await asyncio.to_thread(why, world, "web"))["trace"] == remediate.trace


def exemplars(world: World, service: str, histogram: str) -> list[str]:
    """Return the ids of the traces in the buckets of a histogram, as Prometheus reads them."""
    url, more = world.components.services[service].url, {"Accept": OPENMETRICS}
    lines = request("GET", f"{url}/metrics", more=more).body.decode().splitlines()
    buckets = "\n".join(line for line in lines if line.startswith(f"{histogram}_bucket"))
    return re.findall(r' # \{.*trace_id="([0-9a-f]{32})"', buckets)


def why(world: World, name: str) -> Any:
    """Return the answer of `kube-sync why` on a ReplicaSet."""
    stack = world.stack
    configuration = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
        "opa": {"binary": str(ensure_binary("opa"))},
        "decisions": stack.endpoint.client(),
        "observe": {"tracing": {"enabled": True}},
    }
    file = write_file(world.folder / "why.yaml", yaml.safe_dump(configuration).encode())
    asked = ("why", f"rs/{name}", "-n", world.namespace, "-o", "json", "--config", str(file))
    finished = kube_sync(*asked)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def decided(world: World, name: str) -> Any:
    """Return the record of a ReplicaSet in the decision stream."""
    endpoint = world.stack.endpoint
    url = f"{endpoint.url}/v1/decisions/io/k8s/federation/admission"
    token = endpoint.token_file.read_text(encoding="utf-8")
    body = request("GET", url, ca_file=endpoint.ca_file, token=token).body
    records = [record for line in body.splitlines() if "object" in (record := json.loads(line))]
    [found] = [one for one in records if one["object"]["name"] == name]
    return found


@pytest.mark.usefixtures("webhook")
async def test_a_review_is_one_trace_with_opas_own_spans(world: World) -> None:
    def reviewed() -> list[Seen]:
        """Create one more: the API server begins to ask in its own time."""
        world.create(f"api-{next(numbers)}", "3")
        found = world.collected.named("admission review")
        return [one for one in found if one.attributes["kube_sync.operation"] == "CREATE"]

    numbers = itertools.count()
    [review, *_] = await eventually(reviewed)
    assert review.kind == "server"
    assert review.attributes["kube_sync.outcome"] == "admitted"
    assert review.attributes["kube_sync.decision_id"]
    [asked] = [s for s in world.collected.named("POST policy engine") if s.parent == review.span]
    assert (asked.trace, asked.attributes["http.response.status_code"]) == (review.trace, 200)
    await eventually(lambda: {s.parent for s in world.of_opa(review.trace)}, {asked.span})
    # Prometheus finds the trace in the histogram of latencies.
    assert exemplars(world, "admit", "kube_sync_admission_seconds")
    assert VALUE.encode() not in world.collected.received


@pytest.mark.usefixtures("webhook")
async def test_the_review_of_a_patch_belongs_to_the_trace_of_the_cluster_that_caused_it(
    world: World,
) -> None:
    """The API server passes the context on, without any configuration of its own."""
    world.create("moved", "8")
    await eventually(lambda: world.has_placement("moved"))
    world.stack.api.apply(cluster("east", "europe-west1", "9"))

    def chains() -> list[list[str]]:
        return [world.collected.chain(s) for s in world.spans("admission review", "moved")]

    await eventually(chains, lambda found: [REPLICATE, EVALUATE, REMEDIATE, PATCH, REVIEW] in found)
