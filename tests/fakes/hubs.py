"""A hub in memory with its controller, whose time and rounds a test takes in hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_sync.config import PolicySync
from kube_sync.kube.client import KubeClient
from kube_sync.kube.events import Occurrence
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.hub import Facts, Hub
from kube_sync.policysync.hub_status_writer import HubStatusWriter
from kube_sync.policysync.placers import PlacerRoute, Placers, Subject
from kube_sync.policysync.policy_state import PolicyState, approved_in, observe
from kube_sync.policysync.policy_status_writer import PolicyStatus
from kube_sync.policysync.removal_guard import brakes_of
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.freshness import Stale
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.fakes.placing import MemoryPlacer
from tests.unit.async_tools import running
from tests.unit.policysync.test_hubstate import DEFINITION, World, put

SHOP = "shop"


@dataclass
class Leader:
    """Whether this process writes."""

    held: bool = True


class Rig:
    """One class, one Gateway on two clusters, and a policy of it."""

    def __init__(self, api: FakeApiServer, client: KubeClient, settings: PolicySync) -> None:
        self.api = api
        self.now = 1_000_000.0
        self.world = World()
        with_status(self.world)
        self.state = self.world.state
        self.leader = Leader()
        self.notes: dict[str, str] = {}
        self.events: list[Occurrence] = []
        self.stale: list[Stale] = []
        self.weighed = 0  # how often
        self.left = 10.0  # seconds that may be written
        self.fenced = FencedWriter(lambda: self.left if self.leader.held else 0.0)
        self.placers = Placers(self.fenced, lambda: self.now)
        self.placer = MemoryPlacer(lambda policy: self.hub.enqueue_changed_copies(policy))  # noqa: PLW0108 - later
        self.placers.add(PlacerRoute(self.placer))
        telling = HubStatusWriter(client, self.fenced)
        below = Downstream()
        self.hub = Hub(
            self.state,
            self.placers,
            brakes_of(settings),
            PolicyStatus(client, self.state, telling, below),
            self.leader,
            Facts(
                lambda subject: self.look(subject, below),
                self._weigh,
                lambda: approved_in(self.state, self.now),
            ),
            report=self.notes.__setitem__,
            events=PolicySyncEvents(lambda what, _: self.events.append(what), self.state.kind),
            grace=settings.grace_seconds,
            clock=lambda: self.now,
            quiet=0.0,
            backoff=lambda: Backoff(0.001, 0.001),
        )

    def _weigh(self) -> list[Stale]:
        self.weighed += 1
        return self.stale

    def look(self, subject: Subject, below: Downstream) -> PolicyState:
        return observe(subject, self.state, self.placers, self.state.gone_clusters, below)

    def follow(self, gvr: GroupVersionResource = AUTH) -> None:
        """Have the API server hold what the hub's state holds of policies."""
        for key, body in self.state.policies(gvr).objects.items():
            content = {n: v for n, v in body.items() if n != "metadata"}
            found = self.api.put(gvr, key, metadata=dict(body["metadata"]), **content)
            body["metadata"].update(found["metadata"])

    async def settle(self, seconds: float = 0.0) -> list[str]:
        """Let everything be done that is due after so long; return the steps."""
        self.now += seconds
        before = len(self.placer.steps)
        for _ in range(4):
            self.hear()
            await self.hub.survey()
            for _ in range(60):
                await asyncio.sleep(0.001)
                queue = self.hub._queue  # noqa: SLF001 - what is tried again at once never rests
                if not queue and not queue._in_work:  # noqa: SLF001 - likewise
                    break
        return self.placer.steps[before:]

    async def later(self, seconds: float) -> list[str]:
        """Let time pass, and what was put off be done."""
        self.now += seconds
        before = len(self.placer.steps)
        for _ in range(2):  # what is not wanted is weighed first, then asked for again
            self.hub.enqueue_all()
            await self.settle(1.0)
        return self.placer.steps[before:]

    def hear(self) -> None:
        for one in self.world.concerned:
            self.hub.enqueue(one)

    def policy(self, policy: PolicyId) -> Mapping[str, Any]:
        """Return a policy as the API server has it."""
        return self.api.get(policy.gvr, ObjectKey(policy.namespace, policy.name))

    def listed(self, policy: PolicyId) -> list[str]:
        notes = self.policy(policy)["metadata"].get("annotations", {})
        found = json.loads(notes.get("kuadrant.io/policies-synced", "[]"))
        return [one["cluster"] for one in found]

    def said(self, policy: PolicyId) -> dict[str, tuple[str, str, str]]:
        listed = self.policy(policy).get("status", {}).get("conditions", ())
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in listed}

    @property
    def writes(self) -> list[str]:
        return [f"{r.method} {r.path}" for r in self.api.http.requests if r.method != "GET"]


def with_status(world: World, field: str = "conditions") -> None:
    """Have the kind of policies tell how it is in a list of its status."""
    body = dict(world.state.definitions.objects[DEFINITION])
    (version,) = body["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    status = {"properties": {field: {"type": "array"}}}
    schema = {"openAPIV3Schema": {"properties": {**properties, "status": status}}}
    version = {**version, "schema": schema, "subresources": {"status": {}}}
    put(world.state.definitions, DEFINITION, spec={**body["spec"], "versions": [version]})


@asynccontextmanager
async def rig_of(folder: Path, **options: Any) -> AsyncGenerator[Rig]:
    """Yield a rig with workers."""
    settings = PolicySync(**options)
    async with fake_apiserver() as api, kube_of(api, folder) as client:
        api.define(AUTH, "AuthPolicy", builtin=False)
        rig = Rig(api, client, settings)
        rig.follow()
        async with running(*(rig.hub.work() for _ in range(4))):
            yield rig
