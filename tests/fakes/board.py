"""The page and all that it asks, on a hub that a test fills: no cluster and no OPA."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from kube_sync.config import Resource
from kube_sync.decisions.canary import Canary
from kube_sync.decisions.decision import Decision, compact
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Explaining
from kube_sync.decisions.history import History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Source, Target
from kube_sync.decisions.stream import stream_app
from kube_sync.guard import Placements
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.result import Ask, Document, FieldRead, Reads
from kube_sync.opa.client import Explained
from kube_sync.opa.paths import DataPath
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from kube_sync.ui.api import BoardApi
from kube_sync.ui.fleet import FleetReader
from kube_sync.ui.page import page_routes
from kube_sync.ui.remediator_client import RemediatorStatus
from kube_sync.ui.replication import health
from kube_sync.ui.story import Stories

PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
DECISION = "io/k8s/federation/admission"
POLICY = "policies/placement/policy.rego"
SOURCE = 'package io.k8s.federation.admission\n\nannotations["x"] := 1 if input.kind\n'
REPLICASETS = Resource("apps", "v1", "replicasets")


class FakeCollection:
    """One collection, as OPA holds it."""

    def __init__(self, name: str, held: int) -> None:
        self.name = name
        self.object_count = held
        self.known = self.loaded = True
        self.pending = 0
        self.pending_seconds = 0.0


class FakePolicies:
    """The policies in force."""

    def __init__(self) -> None:
        self.in_force: dict[str, str] = {POLICY: SOURCE}
        self.rejected: dict[str, str] = {}
        self.warned: dict[str, list[str]] = {}
        self.digest = "ab12cd34ef567890"
        self.canary: Canary | None = None
        asked = (Ask(POLICY, "annotations", 3, "compared with a constant"),)
        fields = (
            FieldRead(("kind",), whole=False, asked=asked),
            FieldRead(("metadata", "labels", "team"), whole=False, asked=asked),
        )
        empty = Document()
        self.reads: Reads | None = Reads(Document(fields, used=True), {"x": empty}, (), {})


class Board:
    """A page's world, with what can be done to it."""

    def __init__(self, token: str | None = None) -> None:
        self.token = TokenFile(token)
        self.hub = DecisionHub("5f0c")
        self.history = History()
        self.hub.listeners.append(self.history.add)
        self.readiness = Readiness()
        self.policies = FakePolicies()
        self.collections = [FakeCollection("clusters", 0), FakeCollection("replicasets", 0)]
        self.held = RemediatorStatus(
            {"v": 1, "active": True, "held": [], "limits": {}, "waiting": []}
        )
        self.clusters: dict[str, Any] = {}
        self.objects: dict[DataPath, Any] = {}
        self.explanation: list[str] = []
        self.result: Any = None
        self.asked = DECISION  # for which the explanation is
        self.targets: tuple[Resource, ...] = (REPLICASETS,)
        self.failing: Exception | None = None  # what OPA says to everything
        self.port = 0

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/ui"

    def add_clusters(self, names: Iterable[str], **labels: str) -> None:
        """Put clusters into the fleet."""
        for name in names:
            metadata = {"name": name, "namespace": "fleet", "labels": labels}
            self.clusters.setdefault("fleet", {})[name] = {"metadata": metadata}
        self.collections[0].object_count = len(self.clusters.get("fleet", {}))

    def decide(
        self,
        name: str,
        weights: Mapping[str, Any] | None,
        *,
        namespace: str = "shop",
        cause: str = "load",
        errors: tuple[str, ...] = (),
        source: Source | None = None,
    ) -> Target:
        """Decide that a workload runs on these clusters."""
        clusters = {} if weights is None else {n: {"weight": w} for n, w in weights.items()}
        value = compact({"clusters": clusters})
        annotations = {} if weights is None else {PREFERENCES: value}
        target = Target("apps", "v1", "replicasets", name, namespace)
        body = {"kind": "ReplicaSet", "metadata": {"name": name, "labels": {"team": "blue"}}}
        self.objects["kubernetes", "replicasets", namespace, name] = body
        outcome = Outcome(f"uid-{name}", Decision(annotations, errors))
        self.hub.publish(
            target.gvr, target.key, outcome, cause, "ab12cd34ef567890", data=4, source=source
        )
        return target

    async def get_data(self, path: DataPath) -> bytes | None:
        """Answer as OPA."""
        if self.failing is not None:
            raise self.failing
        if path == ("kubernetes", "clusters"):
            return json.dumps(self.clusters).encode()
        found = self.objects.get(path)
        return None if found is None else json.dumps(found).encode()

    async def explain(self, path: str, body: bytes, longest: int, seconds: float) -> Explained:
        """Answer as OPA."""
        assert (path, json.loads(body).keys()) == (self.asked, {"input"})
        assert longest
        assert seconds
        raw = msgspec.Raw(json.dumps(self.result).encode()) if self.result else msgspec.Raw()
        return Explained(raw, self.explanation)

    async def read_held(self) -> RemediatorStatus:
        """Answer as the remediator."""
        return self.held

    def app(self) -> web.Application:
        """Return what serves it."""
        explaining = Explaining(self, DECISION)
        stories = Stories(
            self.hub,
            self,
            self.history,
            self,
            explaining,
            remediator=self.read_held,
            targets=lambda: self.targets,
            root="kubernetes",
        )
        api = BoardApi(
            fleet=FleetReader(self, "kubernetes").read,
            health=lambda: health(self, self.hub, self.readiness),
            remediator=self.read_held,
            history=self.history,
            stories=stories,
            path=DECISION,
            placements=Placements().forms,
        )
        return stream_app(self.hub, self.token, api.routes(), DECISION, page_routes())


@asynccontextmanager
async def served_board(board: Board) -> AsyncGenerator[Board]:
    """Serve it, on the port that it had before or a free one."""
    address = ("127.0.0.1", board.port)
    async with serving(board.app(), address, grace=0.05) as board.port:
        yield board
