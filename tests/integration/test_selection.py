"""Parts of collections, on a real API server and a real OPA."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from kube_sync.config import (
    Kubernetes,
    Opa,
    Placement,
    Policies,
    Replicate,
    Resource,
    Settings,
)
from kube_sync.decisions.hub import DecisionHub
from kube_sync.kube.client import kube_client
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.client import opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import Replicator
from tests.eventually import eventually
from tools.servers.binaries import ensure_binary
from tools.servers.http import get
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack


@asynccontextmanager
async def replicating(
    stack: RunningStack, opa: RunningOpa, *resources: Resource
) -> AsyncGenerator[None]:
    """Run a replicator of these in this process."""
    settings = Settings(
        kubernetes=Kubernetes(kubeconfig=str(stack.kubeconfigs["admin"])),
        opa=Opa(opa.url, str(opa.token_files["replicator"]), str(opa.ca_file)),
        replicate=Replicate(resources=resources),
        policies=Policies(namespaces=()),
        placement=Placement(resources=()),
    )
    async with kube_client(settings.kubernetes) as kube, opa_client(settings.opa) as client:
        compiler = ScratchOpa(str(ensure_binary("opa")))
        hub, readiness = DecisionHub("test"), Readiness()
        replicator = Replicator(
            settings, kube, client, hub, readiness, compiler, shelf=BundleServer()
        )
        task = asyncio.create_task(replicator.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


def data(opa: RunningOpa, name: str) -> Any:
    """Return what OPA holds of a collection."""
    token = opa.token_files["replicator"].read_text(encoding="utf-8")
    answer = get(f"{opa.url}/v1/data/kubernetes/{name}", ca_file=opa.ca_file, token=token)
    return json.loads(answer.body).get("result")


async def test_selectors_and_namespaces_mean_to_the_real_servers_what_they_mean_here(
    stack: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    def label(name: str, team: str) -> None:
        stack.api.label("configmaps", name, namespace, team=team)

    for name in ("a", "b", "c"):
        metadata = {"name": name, "namespace": namespace}
        stack.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        label(name, "x")
    some = Resource(
        "",
        "v1",
        "configmaps",
        label_selector="team in (x)",
        field_selector="metadata.name!=c",
        namespaces=(namespace, "kube-system"),
    )
    others = Resource("", "v1", "namespaces", "spaces", ignore_namespaces=("kube-system",))
    ignored = Resource("", "v1", "configmaps", "others", ignore_namespaces=(namespace,))

    def held() -> Any:
        return {space: sorted(found) for space, found in (data(opa, "configmaps") or {}).items()}

    async with replicating(stack, opa, some, others, ignored):
        await eventually(held, {namespace: ["a", "b"]})
        label("b", "y")
        await eventually(held, {namespace: ["a"]})
        label("b", "x")
        await eventually(held, {namespace: ["a", "b"]})
        # Without namespaces of its own: none is left out.
        assert {"kube-system", namespace} <= set(data(opa, "spaces"))
        assert namespace not in data(opa, "others")


async def test_named_fields_are_all_that_the_real_opa_gets(
    stack: RunningStack, opa: RunningOpa, namespace: str
) -> None:
    for name in ("plain", "named"):
        annotations = {"a.b/c": "1", "other": "2"}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        stack.api.create({**secret, "stringData": {"user": "me", "pw": "x"}})
    annotation = ("metadata", "annotations", "a.b/c")
    plain = Resource(
        "", "v1", "secrets", "plain", namespaces=(namespace,), fields=("metadata", "type")
    )
    user = Resource(
        "", "v1", "secrets", "named", namespaces=(namespace,), fields=(annotation, "data.user")
    )

    def held(collection: str) -> Any:
        found = (data(opa, collection) or {}).get(namespace, {}).get("named")
        return sorted(found) if found else None

    try:
        async with replicating(stack, opa, plain, user):
            await eventually(lambda: held("plain"), ["apiVersion", "kind", "metadata", "type"])
            await eventually(lambda: held("named"), ["apiVersion", "data", "kind", "metadata"])
            found = data(opa, "named")[namespace]["named"]
    finally:
        stack.api.delete_all("secrets", namespace)
    assert sorted(found["metadata"]) == ["annotations", "name", "namespace", "uid"]
    assert found["metadata"]["annotations"] == {"a.b/c": "1"}
    assert found["data"] == {"user": "bWU="}
