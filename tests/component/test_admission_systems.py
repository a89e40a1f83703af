"""A built-in policy system in the webhook as it is wired: whether it asks, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kube_sync.admission import policygate, registration
from kube_sync.certificates import write_certificates
from kube_sync.config import (
    SYSTEMS,
    Admission,
    Engine,
    Kubernetes,
    Observe,
    Opa,
    Policies,
    Settings,
    System,
)
from kube_sync.config import Metadata as MetadataSection
from kube_sync.config.webhook import Registration
from kube_sync.kube.events import EVENTS
from kube_sync.kube.lease import LEASES
from kube_sync.kube.webhooks import CONFIGURATIONS, VALIDATING
from kube_sync.objects import ObjectKey
from kube_sync.processes.commands import run_admit
from kube_sync.runtime.tls import client_context
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.http import FakeServer, Recorded, answer, served
from tests.unit.async_tools import until
from tools.servers.running import free_port

SYSTEM = SYSTEMS["scheduling"]
POLICIES = SYSTEM.policies
METADATA = SYSTEMS["metadata"]
PATHS = {CONFIGURATIONS: "/admit", VALIDATING: "/validate"}
ADMITS = {"allowed": True, "reasons": [], "patch": [], "policies": []}
DENIES = {"allowed": False, "reasons": ["no gpu"], "patch": [], "policies": []}


@dataclass
class Opa_:  # noqa: N801 - of the settings there is one too
    """Says what the test says."""

    ruling: dict[str, Any] = field(default_factory=lambda: dict(DENIES))
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.http = FakeServer(self._serve)

    async def _serve(self, request: web.Request, recorded: Recorded) -> web.Response:
        if recorded.json()["input"]:  # and not to see whether anybody answers
            self.asked.append(request.path)
        return web.json_response({"result": self.ruling})


class World:
    """The webhook, the API server that calls it, and the OPA that it asks."""

    def __init__(
        self, api: FakeApiServer, opa: Opa_, folder: Path, system: System = SYSTEM
    ) -> None:
        self.api = api
        self.system = system
        self.settings: dict[str, Any] = {}
        self.opa = opa
        self.port = free_port()
        self.observed = free_port()
        self._folder = folder
        write_certificates(folder / "certs", ["127.0.0.1"])

    def define(self) -> None:
        system = self.system
        self.api.define(system.policies, system.kind, namespaced=system.by_namespace)

    def policy(self, name: str = "restricted", namespace: str = "") -> None:
        self.api.put(self.system.policies, key(name, namespace), spec={})

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        certs = self._folder / "certs"
        settings = Settings(
            kubernetes=Kubernetes(self.api.kubeconfig(self._folder / "kubeconfig")),
            opa=Opa(self.opa.http.url),
            policies=Policies(("policies",)),
            admission=Admission(
                listen=f"127.0.0.1:{self.port}",
                cert_file=str(certs / "tls.crt"),
                key_file=str(certs / "tls.key"),
                engine=Engine(attempts=1),
                registration=Registration("kube-sync-placement", str(certs / "ca.crt")),
            ),
            observe=Observe(f"127.0.0.1:{self.observed}"),
            builtin=(self.system.name,),  # type: ignore[arg-type]  # as text it is one of them
            **self.settings,
        )
        task = asyncio.create_task(run_admit(settings))
        try:
            await self.api.watched(CONFIGMAPS)
            await until(lambda: any(map(lists(self.system.policies), self.api.http.requests)))
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def create(self, path: str = "/admit/scheduling", **also: Any) -> Any:
        """Ask about a pod as the API server does, or what `also` says; returns the response."""
        request = {
            "uid": "r1",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "name": "web",
            "object": {"metadata": {"name": "web"}},
        } | also
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        ca_file = str(self._folder / "certs/ca.crt")
        connector = aiohttp.TCPConnector(ssl=client_context(ca_file))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                f"https://127.0.0.1:{self.port}{path}?timeout=2s",
                data=json.dumps(kind | {"request": request}),
                headers={"Content-Type": "application/json"},
            ) as response,
        ):
            return (await response.json())["response"]

    async def allowed(self) -> bool:
        found: bool = (await self.create())["allowed"]
        return found

    async def conditions(self) -> str:
        url = f"http://127.0.0.1:{self.observed}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.text()

    @property
    def failure_policies(self) -> list[Any]:
        name = ObjectKey("", f"kube-sync-{self.system.name}")
        return [self.api.get(gvr, name)["webhooks"][0].get("failurePolicy") for gvr in PATHS]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with _world(tmp_path, SYSTEM) as found:
        yield found


@pytest.fixture
async def metadata(tmp_path: Path) -> AsyncGenerator[World]:
    """With a policy in the namespace `shop`."""
    async with _world(tmp_path, METADATA) as found:
        found.define()
        found.policy("p", "shop")
        yield found


@asynccontextmanager
async def _world(folder: Path, system: System) -> AsyncGenerator[World]:
    opa = Opa_()
    async with fake_apiserver() as api, served(opa, opa.http):
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(EVENTS, "Event")
        api.define(LEASES, "Lease")
        for gvr, path in PATHS.items():
            api.define(gvr, "Configuration", namespaced=False)
            client = {"url": f"https://h{path}/{system.name}"}
            name = ObjectKey("", f"kube-sync-{system.name}")
            api.put(gvr, name, webhooks=[{"name": "w", "clientConfig": client}])
        yield World(api, opa, folder, system)


async def test_without_the_kind_pods_are_admitted_and_nobody_is_asked(world: World) -> None:
    async with world.running():
        await until(lambda: world.failure_policies == ["Ignore", "Ignore"])
        assert await world.allowed()
        assert "is its CRD there?" in await world.conditions()
    assert world.opa.asked == []


async def test_without_a_policy_pods_are_admitted_and_nobody_is_asked(world: World) -> None:
    world.define()
    async with world.running():
        await world.api.watched(POLICIES)
        assert await world.allowed()
    assert world.opa.asked == []


async def test_a_kind_that_comes_with_policies_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_LOOK_SECONDS", 1000.0)  # news has to be enough
    async with world.running():
        await until(lambda: world.failure_policies == ["Ignore", "Ignore"])
        world.define()
        world.policy()
        await until(lambda: world.failure_policies == ["Fail", "Fail"])
        assert not await world.allowed()


async def test_from_the_first_policy_on_opa_decides(world: World) -> None:
    world.define()
    world.policy()
    async with world.running():
        await world.api.watched(POLICIES)
        response = await world.create()
        assert response["status"]["message"] == "no gpu"
        world.opa.ruling = dict(ADMITS)
        assert await world.allowed()
    assert world.opa.asked == ["/v1/data/kube_sync/scheduling/decision"] * 2


async def test_with_the_last_policy_the_door_opens(world: World) -> None:
    world.define()
    world.policy()
    async with world.running():
        await until(lambda: world.failure_policies == ["Fail", "Fail"])
        world.api.delete(POLICIES, key("restricted", ""))
        await until(lambda: world.failure_policies == ["Ignore", "Ignore"])
        assert await world.allowed()


async def test_where_the_policies_cannot_be_seen_the_door_is_shut(world: World) -> None:
    """Forbidden is not missing: there may be policies."""
    world.define()
    world.api.http.fault(lists(POLICIES), answer(403, b"no rights"), times=1000)
    async with world.running():
        assert not await world.allowed()
        assert "no rights" in await world.conditions()


async def test_policies_that_are_lost_from_sight_shut_the_door_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the last that was heard was that there is no such kind."""
    async with world.running():
        await until(lambda: world.failure_policies == ["Ignore", "Ignore"])
        assert await world.allowed()
        monkeypatch.setattr(policygate, "_BOUND_SECONDS", 0.0)
        monkeypatch.setattr(registration, "_UNSURE_SECONDS", 0.0)
        assert await world.allowed()  # that nothing is there is known all the time
        world.api.http.fault(lists(POLICIES), answer(403, b"no rights"), times=1000)
        await until(lambda: world.failure_policies == ["Fail", "Fail"])
        assert not await world.allowed()


async def test_a_refusal_is_an_event_of_the_system(world: World) -> None:
    world.define()
    world.policy()
    async with world.running():
        await world.api.watched(POLICIES)
        await world.create("/validate/scheduling")
        await until(lambda: world.api.objects(EVENTS))
    (event,) = world.api.objects(EVENTS).values()
    assert event["reason"] == "SchedulingDenied"


ADMIT, CHECK = "/admit/metadata", "/validate/metadata"
CONFIGMAP = {
    "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
    "resource": {"group": "", "version": "v1", "resource": "configmaps"},
}


async def test_metadata_is_decided_first_and_checked_last(metadata: World) -> None:
    async with metadata.running():
        await metadata.api.watched(METADATA.policies)
        for path in (ADMIT, CHECK):
            response = await metadata.create(path, **CONFIGMAP)
            assert response["status"]["message"] == "no gpu"
    assert metadata.opa.asked == [
        "/v1/data/kube_sync/metadata/pipeline",
        "/v1/data/kube_sync/metadata/checked",
    ]


async def test_an_object_where_no_policy_is_costs_no_question(metadata: World) -> None:
    async with metadata.running():
        await metadata.api.watched(METADATA.policies)
        for path in (ADMIT, CHECK):
            assert (await metadata.create(path, namespace="other", **CONFIGMAP))["allowed"]
        # Nor does a pod once nothing is put on it any more.
        assert (await metadata.create(CHECK, namespace="other"))["allowed"]
        assert metadata.opa.asked == []
        metadata.policy("first", "other")
        await until(lambda: metadata.failure_policies == ["Fail", "Fail"])

        async def refused() -> bool:
            return not (await metadata.create(ADMIT, namespace="other", **CONFIGMAP))["allowed"]

        async with asyncio.timeout(30):
            while not await refused():
                pass


@pytest.mark.parametrize("qos", [True, False])
async def test_pods_without_a_policy_are_asked_about_for_their_class_alone(
    metadata: World, *, qos: bool
) -> None:
    metadata.settings = {"metadata": MetadataSection(qos=qos)}
    metadata.opa.ruling = ADMITS | {"reasons": ["quality of service: …"]}
    async with metadata.running():
        await metadata.api.watched(METADATA.policies)
        assert (await metadata.create(ADMIT, namespace="other"))["allowed"]
    assert len(metadata.opa.asked) == qos


async def test_without_a_decision_only_namespaces_with_policies_are_shut(metadata: World) -> None:
    metadata.opa.ruling = {}
    async with metadata.running():
        await metadata.api.watched(METADATA.policies)
        response = await metadata.create(ADMIT)
        assert response["status"]["message"].startswith("there is a MetadataPolicy, but no dec")
        assert (await metadata.create(ADMIT, namespace="other"))["allowed"]
