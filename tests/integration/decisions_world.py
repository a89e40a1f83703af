"""A namespace whose placements are decided by a stand-in, and what is published of them.

The remediator knows nothing of decisions but the stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import DecisionRecord, Target
from tests.fakes.decisionstream import FakeDecisionStream
from tools.demo.fleet import PREFERENCES
from tools.servers.stack import RunningStack

KIND = "placementdecisions.multicluster.x-k8s.io"


def profile(name: str) -> dict[str, Any]:
    """Return a ClusterProfile in the namespace fleet."""
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": "fleet"},
        "spec": {"clusterManager": {"name": "test"}},
    }


def preferences(clusters: Iterable[str]) -> str:
    entries = {name: {"weight": 1} for name in clusters}
    return json.dumps({"clusters": entries}, separators=(",", ":"), sort_keys=True)


@dataclass
class World:
    """A namespace, what is in it, and what is decided."""

    stack: RunningStack
    stream: FakeDecisionStream
    namespace: str
    seq: int = 0

    async def create(self, name: str, annotations: Mapping[str, str] | None = None) -> str:
        """Create a ReplicaSet and return its uid."""
        labels = {"app": name}
        manifest = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        }
        return str((await self.put(manifest))["metadata"]["uid"])

    async def put(self, manifest: dict[str, Any]) -> Any:
        """Create an object of the namespace and return it."""
        manifest["metadata"]["namespace"] = self.namespace
        return await asyncio.to_thread(self.stack.api.create, manifest)

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a ReplicaSet."""
        api = self.stack.api
        await asyncio.to_thread(api.annotate, "replicasets", name, annotations, self.namespace)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object of the namespace."""
        await asyncio.to_thread(self.stack.api.delete, kind, name, self.namespace)

    def decide(
        self,
        name: str,
        uid: str,
        clusters: Iterable[str] | None,
        reasons: Mapping[str, str] | None = None,
        failure: str | None = None,
    ) -> None:
        annotations = {} if clusters is None else {PREFERENCES: preferences(clusters)}
        decision = None if failure else Decision(annotations, reasons=reasons or {})
        target = Target("apps", "v1", "replicasets", name, self.namespace)
        self.seq += 1
        record = DecisionRecord(target, uid, decision, self.seq, "data", "p1", failure=failure)
        self.stream.say(record)

    def published(self) -> list[Any]:
        items: list[Any] = self.stack.api.get(KIND, namespace=self.namespace)["items"]
        return items

    def clusters(self) -> list[list[str]]:
        return [
            [one["clusterProfileRef"]["name"] for one in found["decisions"]]
            for found in self.published()
        ]

    def writes(self) -> int:
        """Count what was asked of PlacementDecisions here, the audit log being the witness."""
        return sum(
            line["objectRef"].get("namespace") == self.namespace
            and line["user"]["username"].endswith("kube-sync-remediator")
            and line["verb"] in ("patch", "create", "delete")
            for line in self.stack.audited("kube-sync-remediator")
            if line.get("objectRef", {}).get("resource") == "placementdecisions"
        )
