"""The Lease on a real API server, with exactly the replicator's role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube_sync.config import Kubernetes
from kube_sync.errors import Refused
from kube_sync.kube.client import kube_client
from kube_sync.kube.lease import LEASES, Lease
from kube_sync.replicator.replicator import LEASE
from kube_sync.runtime.backoff import Backoff
from tests.eventually import eventually
from tests.unit.async_tools import running
from tools.servers.stack import RunningStack

NAMESPACE = "kube-sync"


@asynccontextmanager
async def candidate(
    stack: RunningStack, identity: str, namespace: str = NAMESPACE
) -> AsyncGenerator[Lease]:
    kubeconfig = str(stack.kubeconfigs["replicator"])
    async with kube_client(Kubernetes(kubeconfig=kubeconfig)) as client:
        lease = Lease(client, namespace, LEASE, identity, backoff=Backoff(0.02, 0.02))
        task = asyncio.create_task(lease.run())
        try:
            yield lease
        finally:
            task.cancel()
            await asyncio.wait([task])


def spec(stack: RunningStack) -> Any:
    found = stack.kubectl("get", "lease", LEASE, f"--namespace={NAMESPACE}", "--output=json")
    return json.loads(found)["spec"]


async def test_one_of_two_holds_the_lease_and_hands_it_over(stack: RunningStack) -> None:
    async with candidate(stack, "b-waits") as waiting:
        async with candidate(stack, "a-takes") as other:
            await eventually(lambda: waiting.held or other.held)
            for _ in range(20):
                await asyncio.sleep(0.02)  # turns of both, on a real server: nothing to await
                assert waiting.held != other.held
            first = spec(stack)
            assert first["holderIdentity"] in ("a-takes", "b-waits")
            assert first["leaseDurationSeconds"] == 15
        await eventually(lambda: waiting.held)
        assert spec(stack)["holderIdentity"] == "b-waits"
    # Emptied, so that the next one need not wait.
    assert not spec(stack).get("holderIdentity")


async def test_missing_namespace_counts_as_held(stack: RunningStack) -> None:
    """As the admin, who may do everything: what is missing is the namespace."""
    kubeconfig = str(stack.kubeconfigs["admin"])
    async with kube_client(Kubernetes(kubeconfig=kubeconfig)) as client:
        lease = Lease(client, "no-such-namespace", LEASE, "me")
        async with running(lease.run()):
            await eventually(lambda: lease.held)
            assert lease.lacking


async def test_role_allows_one_lease_and_one_configmap_only(stack: RunningStack) -> None:
    async with kube_client(Kubernetes(str(stack.kubeconfigs["replicator"]))) as client:
        with pytest.raises(Refused):
            await client.request("GET", LEASES.path(NAMESPACE, "another"))
        with pytest.raises(Refused):
            await client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/another")

    async with candidate(stack, "elsewhere", "default") as lease:
        await eventually(lambda: lease.held)  # refused there, so it does without
