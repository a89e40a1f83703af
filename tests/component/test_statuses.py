"""Two replicators, each with an OPA of its own, beside one API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Placement, Policies, Replicate, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.kube.lease import LEASES
from kube_sync.kube.policymaps import STATUS
from kube_sync.observability.readiness import Readiness
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import LEASE, Replicator
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key, kube_of, opa_of
from tests.fakes.compiler import FakeCompiler
from tests.fakes.opa import FakeOpa, fake_opa
from tests.unit.async_tools import until

POLICIES = "policies"
WHERE = key(LEASE, "kube-sync")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(LEASES, "Lease")
        yield api


@asynccontextmanager
async def replicating(api: FakeApiServer, folder: Path) -> AsyncGenerator[FakeOpa]:
    """Run one replicator with an OPA of its own."""
    settings = Settings(
        replicate=Replicate(resources=()),
        policies=Policies(namespaces=(POLICIES,)),
        placement=Placement(resources=()),
    )
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(fake_opa())
        kube = await stack.enter_async_context(kube_of(api, folder))
        opa = await stack.enter_async_context(opa_of(fake))
        replicator = Replicator(
            settings,
            kube,
            opa,
            DecisionHub("test"),
            Readiness(),
            FakeCompiler(),
            shelf=BundleServer(),
        )
        task = asyncio.create_task(replicator.run())
        try:
            yield fake
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def policy(api: FakeApiServer, name: str, source: str) -> None:
    api.put(CONFIGMAPS, key(name, POLICIES), data={"a.rego": source})


def status(api: FakeApiServer, name: str) -> Any:
    metadata = api.get(CONFIGMAPS, key(name, POLICIES))["metadata"]
    return json.loads((metadata.get("annotations") or {}).get(STATUS, "null"))


def holder(api: FakeApiServer) -> str:
    lease = api.objects(LEASES).get(WHERE, {"spec": {"holderIdentity": ""}})
    identity: str = lease["spec"]["holderIdentity"]
    return identity


async def test_only_the_holder_of_the_lease_writes_statuses(
    api: FakeApiServer, tmp_path: Path
) -> None:
    """Their OPAs differ here, so that two writers would never agree."""
    async with replicating(api, tmp_path):
        await until(lambda: holder(api))
        async with replicating(api, tmp_path) as other:
            policy(api, "p", "package p\n# needs: q/q/q")
            await until(lambda: (status(api, "p") or {}).get("status") == "error")
            other.policies["q/q/q"] = "package q"
            policy(api, "r", "package r")
            await until(lambda: f"{POLICIES}/r/a.rego" in other.policies)
            await until(lambda: status(api, "r") == {"status": "ok"})
            assert f"{POLICIES}/p/a.rego" in other.policies
            assert status(api, "p")["status"] == "error"


async def test_new_holder_writes_what_is_due(api: FakeApiServer, tmp_path: Path) -> None:
    """And what it had loaded before was in force all the time."""
    held = {"holderIdentity": "somebody", "leaseDurationSeconds": 15}
    api.put(LEASES, WHERE, spec=held)
    policy(api, "p", "package p")
    async with replicating(api, tmp_path) as opa:
        await until(lambda: opa.policies.get(f"{POLICIES}/p/a.rego"))
        await until(lambda: any("/leases/" in r.path for r in api.http.requests))
        assert status(api, "p") is None
        api.put(LEASES, WHERE, spec={**held, "holderIdentity": ""})
        await until(lambda: status(api, "p") == {"status": "ok"})
    assert holder(api) == ""


async def test_without_the_leases_namespace_statuses_are_written_all_the_same(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.undefine(LEASES)
    policy(api, "p", "package p")
    async with replicating(api, tmp_path):
        await until(lambda: status(api, "p") == {"status": "ok"})
