"""The webhook as it is wired: reviews in, Events and a registration out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY

from kube_sync.admission import registration
from kube_sync.admission.registration import LEASE
from kube_sync.admission.server import PATH
from kube_sync.certificates import write_certificates
from kube_sync.config import Admission, Kubernetes, Observe, Opa, Policies, Settings
from kube_sync.config.webhook import Registration
from kube_sync.kube.events import EVENTS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.kube.webhooks import CONFIGURATIONS
from kube_sync.objects import ObjectKey
from kube_sync.opa.entry import ENTRY_PATH
from kube_sync.processes.commands import run_admit
from kube_sync.runtime.tls import client_context
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.opa import FakeOpa, fake_opa
from tests.unit.async_tools import until
from tools.servers.running import free_port

KEY = ObjectKey("", "kube-sync-placement")
POLICIES = "policies"


class World:
    """The webhook, the API server that calls it, and the OPA that it asks."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa, folder: Path) -> None:
        self.api = api
        self.port = free_port()
        self.ca_file = folder / "certs/ca.crt"
        write_certificates(folder / "certs", ["127.0.0.1"])
        self.registered = Registration(KEY.name, str(self.ca_file))
        self._folder = folder
        self._opa = opa

    @asynccontextmanager
    async def running(self, **admission: Any) -> AsyncGenerator[None]:
        """Run it until the block ends; `admission` is of that section."""
        certs = self._folder / "certs"
        settings = Settings(
            kubernetes=Kubernetes(self.api.kubeconfig(self._folder / "kubeconfig")),
            opa=Opa(self._opa.http.url),
            policies=Policies((POLICIES,)),
            admission=Admission(
                listen=f"127.0.0.1:{self.port}",
                cert_file=str(certs / "tls.crt"),
                key_file=str(certs / "tls.key"),
                **admission,
            ),
            observe=Observe(f"127.0.0.1:{free_port()}"),
        )
        task = asyncio.create_task(run_admit(settings))
        try:
            await self.api.watched(CONFIGMAPS)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def policy(self) -> None:
        self.api.put(CONFIGMAPS, key("p", POLICIES), data={"p.rego": "package p"})

    async def create(self, name: str) -> bool:
        """Ask for a ReplicaSet as the API server does; returns whether it is allowed."""
        request = {
            "uid": "r1",
            "operation": "CREATE",
            "kind": {"group": "apps", "version": "v1", "kind": "ReplicaSet"},
            "namespace": "shop",
            "name": name,
            "object": {"metadata": {"name": name}},
        }
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps(kind | {"request": request})
        connector = aiohttp.TCPConnector(ssl=client_context(str(self.ca_file)))
        url = f"https://127.0.0.1:{self.port}{PATH}?timeout=2s"
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=body, headers={"Content-Type": "application/json"}) as response,
        ):
            allowed: bool = (await response.json())["response"]["allowed"]
            return allowed

    @property
    def entered(self) -> bool:
        """Whether OPA was asked for the decision of an object's side."""
        return any(r.path.endswith(ENTRY_PATH) for r in self._opa.http.requests)

    async def until_entered(self) -> None:
        while not self.entered:
            await self.create("web")

    async def until_allowed(self) -> None:
        """Wait until it is known that there is no policy of any kind."""
        while not await self.create("web"):
            pass

    @property
    def failure_policy(self) -> Any:
        (webhook,) = self.api.get(CONFIGURATIONS, KEY)["webhooks"]
        return webhook.get("failurePolicy")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(EVENTS, "Event")
        api.define(LEASES, "Lease")
        api.define(CONFIGURATIONS, "MutatingWebhookConfiguration", namespaced=False)
        client = {"url": f"https://h{PATH}"}
        api.put(CONFIGURATIONS, KEY, webhooks=[{"name": "w", "clientConfig": client}])
        yield World(api, opa, tmp_path)


async def test_a_refusal_becomes_an_event(world: World) -> None:
    world.policy()
    async with world.running():
        assert not await world.create("web")
        await until(lambda: world.api.objects(EVENTS))
    (event,) = world.api.objects(EVENTS).values()
    assert event["reason"] == "PlacementUndecidable"
    assert event["metadata"]["namespace"] == "default"


async def test_canary_of_either_kind_is_asked_at_its_entry(world: World) -> None:
    def stage(name: str, stage: str) -> None:
        spec = {"modules": [{"name": "p.rego", "rego": "package p"}], "stage": stage}
        world.api.put(PLACEMENT_POLICIES, key(name, POLICIES), spec=spec)

    world.api.define(PLACEMENT_POLICIES, KIND, builtin=False)
    world.policy()
    stage("next", "shadow")
    async with world.running():
        await world.api.watched(PLACEMENT_POLICIES)
        await world.create("web")
        assert not world.entered
        stage("next", "canary")
        await world.until_entered()


async def test_events_can_be_switched_off(world: World) -> None:
    world.policy()
    async with world.running(events=False):
        for number in range(5):  # time enough for an Event of the first
            assert not await world.create(f"web-{number}")
    assert not [r for r in world.api.http.requests if "/events" in r.path]


async def test_the_registration_follows_the_policies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_LOOK_SECONDS", 1000.0)  # news has to be enough
    async with world.running(registration=world.registered):
        await until(lambda: world.failure_policy == "Ignore")
        world.policy()
        await until(lambda: world.failure_policy == "Fail")
        # Seen as it was written, so that nothing but the policy's end is news from now on.
        closed = "kube_sync_admission_registration_closed"
        await until(lambda: REGISTRY.get_sample_value(closed) == 1)
        assert REGISTRY.get_sample_value("kube_sync_admission_registration_kept") == 1
        lease = world.api.get(LEASES, key(LEASE, "kube-sync"))
        assert lease["spec"]["holderIdentity"]
        world.api.delete(CONFIGMAPS, key("p", POLICIES))
        await until(lambda: world.failure_policy == "Ignore")


async def test_without_a_name_nothing_is_registered(world: World) -> None:
    async with world.running():
        await world.until_allowed()
    paths = {request.path for request in world.api.http.requests}
    assert not [path for path in paths if "webhookconfigurations" in path or "leases" in path]
