"""The policies say which fields go into OPA, on a real API server and a real OPA."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.replicator.class_backfill import FEW as FEW_OBJECTS
from tests.eventually import eventually
from tests.integration.test_selection import data
from tools.demo.components import start_service
from tools.servers.http import get, request
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

LESS = """
package io.k8s.federation.admission

annotations["version"] := "less"

annotations["team"] := input.metadata.labels.team

annotations["zones"] := concat(",", [map.data.zone |
	some map in data.kubernetes.configmaps[input.metadata.namespace]
])
"""
MORE = (
    LESS.replace('"less"', '"more"')
    + """
annotations["image"] := concat(",", [c.image | some c in input.spec.template.spec.containers])

annotations["sizes"] := concat(",", [map.data.size |
	some map in data.kubernetes.configmaps[input.metadata.namespace]
])
"""
)
FEW = {"version": "less", "team": "shop", "zones": "z1"}
ALL = {**FEW, "version": "more", "image": "nginx", "sizes": "9"}
MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
SETS = {"group": "apps", "version": "v1", "resource": "replicasets"}


class World:
    """One replicator with `fields: auto`, on an OPA and a namespace of its own."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str, folder: Path) -> None:
        self.stack = stack
        self.opa = opa
        self.namespace = namespace
        self.folder = folder
        self.url = ""  # of its metrics

    def apply(self, kind: str, name: str, **content: Any) -> None:
        metadata = {"name": name, "namespace": self.namespace, "labels": {"team": "shop"}}
        group = "apps/v1" if kind == "ReplicaSet" else "v1"
        found = {"apiVersion": group, "kind": kind, "metadata": metadata, **content}
        self.stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(found))

    def policy(self, source: str) -> None:
        self.apply("ConfigMap", "policy", data={"p.rego": source})

    @asynccontextmanager
    async def replicating(self, **selection: object) -> AsyncGenerator[None]:
        """Run the replicator; `selection` is of the ReplicaSets."""
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["admin"])},
            "opa": self.opa.settings(),
            "decisions": self.opa.replicator.server(),
            "policies": {"namespaces": [self.namespace]},
            "replicate": {"fields": "auto", "resources": [MAPS, SETS | selection]},
        }
        server = await asyncio.to_thread(start_service, "replicate", self.folder, configuration)
        self.url = server.url
        try:
            yield
        finally:
            server.stop()

    def held(self, collection: str, name: str) -> Any:
        found = data(self.opa, collection)[self.namespace][name]
        return {key: found[key] for key in found.keys() - {"apiVersion", "kind"}}

    def decision(self) -> Any:
        """Return what OPA decides on the ReplicaSet as it holds it, as the replicator asks."""
        epoch = next(iter(json.loads(self._ask("GET", "kube_sync/epoch"))["result"]))
        items = [[self.namespace, "web"]]
        asked = {"input": {"epoch": epoch, "collection": "replicasets", "items": items}}
        answer = json.loads(self._ask("POST", "kube_sync/batch/decisions", json.dumps(asked)))
        return answer.get("result", {}).get("0", {}).get("decision", {}).get("annotations")

    def budget(self) -> Any:
        """Return what readers of the decision stream are told of the limits."""
        *_, last = self.stream("status")
        return "held" if last["held"] else (last["budget"] or {}).get("document")

    def stream(self, kind: str) -> list[Any]:
        """Return the records of one type that the decision stream has now."""
        endpoint = self.opa.replicator
        url = f"{endpoint.url}/v1/decisions/io/k8s/federation/admission"
        token = endpoint.token_file.read_text(encoding="utf-8")
        lines = get(url, ca_file=endpoint.ca_file, token=token).body.splitlines()
        return [found for found in map(json.loads, lines) if found["type"] == kind]

    def lists(self) -> int:
        """Return how often ReplicaSets were listed, by the API server's audit log."""
        return sum(
            one["verb"] == "list" and one.get("userAgent", "").startswith("kube-sync/")
            for one in self.stack.audited(self.namespace)
            if one.get("objectRef", {}).get("resource") == "replicasets"
            and one["objectRef"].get("namespace") == self.namespace
        )

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        token = self.opa.token_files["replicator"].read_text(encoding="utf-8")
        url = f"{self.opa.url}/v1/data/{path}"
        return request(method, url, ca_file=self.opa.ca_file, token=token, body=body).body

    def fields(self, resource: str) -> float:
        return self.metric(f'kube_sync_replicated_fields{{resource="{resource}"}} ')

    def metric(self, start: str) -> float:
        """Return the sum of the samples that begin so."""
        lines = [line for line in self.metrics() if line.startswith(start)]
        assert lines
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def metrics(self) -> list[str]:
        """Return the lines of all metrics."""
        return get(f"{self.url}/metrics").body.decode().splitlines()

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[set[str]]:
        """Ask for the decision again and again; the block is given all that was said."""
        said: set[str] = set()

        async def watch() -> None:
            while True:
                said.add(json.dumps(await asyncio.to_thread(self.decision), sort_keys=True))

        task = asyncio.create_task(watch())
        try:
            yield said
            assert not task.done()
        finally:
            task.cancel()


TEAM = """
package io.k8s.federation.admission

annotations["team"] := input.metadata.labels.team
"""
LIMITED = """package kube_sync_budget

moves_burst := 1 if {
	some map in data.kubernetes.configmaps.NAMESPACE
	map.data.size == "9"
}
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_limits_read_is_replicated_too(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    """What OPA lacks would be undefined, and so no limit."""
    world = World(stack, opa, namespace, tmp_path / "replicate")
    world.apply("ConfigMap", "zones", data={"zone": "z1", "size": "9", "more": "x"})
    limits = LIMITED.replace("configmaps.NAMESPACE", f'configmaps["{namespace}"]')
    world.apply("ConfigMap", "policy", data={"p.rego": LESS, "limits.rego": limits})
    async with world.replicating():
        await eventually(world.budget, {"moves_burst": 1})
        assert world.held("configmaps", "zones")["data"] == {"zone": "z1", "size": "9"}
        world.policy(LESS)
        await eventually(world.budget, None)
        await eventually(lambda: world.held("configmaps", "zones")["data"], {"zone": "z1"})


@pytest.mark.timeout(120)
async def test_data_grows_before_the_policies_and_shrinks_after_them(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    world = World(stack, opa, namespace, tmp_path / "replicate")
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    world.apply("ReplicaSet", "web", spec=spec)
    world.apply("ConfigMap", "zones", data={"zone": "z1", "size": "9", "more": "x" * 1000})
    world.policy(LESS)
    async with world.replicating():
        await eventually(world.decision, FEW)
        small = world.held("replicasets", "web")
        assert small.keys() == {"metadata"}
        assert small["metadata"].keys() == {"name", "namespace", "uid", "labels"}
        assert world.held("configmaps", "zones")["data"] == {"zone": "z1"}
        async with world.watched() as said:
            world.policy(MORE)
            await eventually(world.decision, ALL)
            await eventually(lambda: json.dumps(ALL, sort_keys=True) in said, expected=True)
            containers = [{"image": "nginx"}]
            grown = {"template": {"spec": {"containers": containers}}}
            assert world.held("replicasets", "web")["spec"] == grown
            assert world.held("configmaps", "zones")["data"] == {"zone": "z1", "size": "9"}
            world.policy(LESS)
            await eventually(lambda: world.held("replicasets", "web"), small)
            await eventually(lambda: world.held("configmaps", "zones")["data"], {"zone": "z1"})
            await eventually(lambda: world.fields("configmaps"), 1)
        assert said == {json.dumps(found, sort_keys=True) for found in (FEW, ALL)}


@pytest.mark.timeout(120)
async def test_first_list_brings_the_decision_classes(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    """Otherwise all objects are listed once more before the first decision, for that alone."""
    world = World(stack, opa, namespace, tmp_path / "replicate")
    for index in range(FEW_OBJECTS + 1):
        labels = {"team": ("shop", "bank")[index % 2]}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        }
        manifest = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": f"web-{index}", "namespace": namespace, "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        }
        stack.api.create(manifest)
    world.policy(TEAM)
    async with world.replicating(namespaces=[namespace]):
        await eventually(lambda: world.stream("status")[-1]["held"], [])
        decided = [one["decision"]["annotations"]["team"] for one in world.stream("decision")]
        assert Counter(decided) == {"shop": FEW_OBJECTS // 2 + 1, "bank": FEW_OBJECTS // 2}
        assert world.metric('kube_sync_decision_classes{resource="replicasets"}') == 2
        assert world.metric("kube_sync_decision_evaluations_total{") == 2
        lists = [
            one for one in world.metrics() if one.startswith("kube_sync_reflector_lists_total")
        ]
        assert lists
        assert not any('reason="classify"' in line for line in lists)
        await eventually(world.lists, 1)
