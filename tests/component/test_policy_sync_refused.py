"""Policy sync wired as it is, on a fake hub: what may not be read any more takes nothing away."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from kube_sync.config import Settings
from kube_sync.kube.lease import LEASES
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.policysync.copies import PLACED
from kube_sync.policysync.desired import PLACEMENT_DECISIONS
from kube_sync.policysync.hubstate import (
    CONFIGMAPS,
    DEFINITIONS,
    GATEWAY_CLASSES,
    GATEWAYS,
    GRANTS,
    LISTENER_SETS,
    MANAGED_CLUSTERS,
    NAMESPACES,
)
from kube_sync.policysync.manifestworks import WORKS
from kube_sync.processes.context import Context
from kube_sync.processes.policysync import policy_sync
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.services import Service
from tests.fakes.apiserver import FakeApiServer, error_event, fake_apiserver, lists, watches
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.fakes.http import Fault, answer, failing, stream
from tests.unit.async_tools import running, until
from tests.unit.policysync.test_hubstate import DEFINITION, WEB, World

KINDS = {
    GATEWAY_CLASSES: "GatewayClass",
    GATEWAYS: "Gateway",
    PLACEMENT_DECISIONS: "PlacementDecision",
    DEFINITIONS: "CustomResourceDefinition",
    CONFIGMAPS: "ConfigMap",
    GRANTS: "ReferenceGrant",
    LISTENER_SETS: "ListenerSet",
    NAMESPACES: "Namespace",
    WORKS: "ManifestWork",
    MANAGED_CLUSTERS: "ManagedCluster",
    AUTH: "AuthPolicy",
}
LOGIN = ObjectKey("shop", "login")
ALLOWED = json.dumps({"status": {"allowed": True}}).encode()


def hub(api: FakeApiServer) -> None:
    """Put a class, a Gateway on two clusters and a policy of it there."""
    whole = (GATEWAY_CLASSES, DEFINITIONS, MANAGED_CLUSTERS, NAMESPACES)
    for gvr, kind in {**KINDS, LEASES: "Lease"}.items():
        api.define(gvr, kind, namespaced=gvr not in whole, builtin=False)
    state = World().state
    stores = {
        GATEWAY_CLASSES: (state.classes, ObjectKey("", "multi")),
        GATEWAYS: (state.gateways, WEB),
        PLACEMENT_DECISIONS: (state.decisions, ObjectKey("shop", "d1")),
        DEFINITIONS: (state.definitions, DEFINITION),
        CONFIGMAPS: (state.configmaps, ObjectKey("system", "params")),
        AUTH: (state.policies(AUTH), ObjectKey("shop", "login")),
    }
    for gvr, (store, key) in stores.items():
        content: dict[str, Any] = dict(store.objects[key])
        metadata = content.pop("metadata")
        kept = {n: v for n, v in metadata.items() if n in ("labels", "annotations")}
        api.put(gvr, key, metadata=kept, **content)
    for name in ("east", "west"):
        api.put(MANAGED_CLUSTERS, ObjectKey("", name))
    api.http.fault(
        lambda r: r.path.endswith("selfsubjectaccessreviews"), answer(201, ALLOWED), times=1000
    )


def placed(api: FakeApiServer) -> set[str]:
    return {f"{key.namespace} {key.name.split('-')[2]}" for key in api.objects(WORKS)}


async def _run(service: Service) -> None:
    await service()


@asynccontextmanager
async def syncing(folder: Path) -> AsyncGenerator[FakeApiServer]:
    own: dict[str, Any] = {"policy_sync": {"grace_seconds": 0}}
    async with fake_apiserver() as api, kube_of(api, folder) as kube, AsyncExitStack() as stack:
        hub(api)
        readiness = Readiness()
        drain = Drain(1.0, readiness.waiting)
        context = Context(msgspec.convert(own, Settings), readiness, stack, kube, drain)
        async with running(*(_run(service) for service in policy_sync(context))):
            await until(lambda: placed(api) == {"east login", "west login"})
            yield api


async def forbidden(api: FakeApiServer, gvr: GroupVersionResource) -> list[Fault]:
    """Refuse a resource from now on, also to who watches it."""
    await api.watched(gvr)
    no = failing(403, "forbidden")
    faults = [api.http.fault(one(gvr), no, times=10_000) for one in (lists, watches)]
    api.compact()
    asked = len(api.http.requests)
    await until(lambda: any(map(lists(gvr), api.http.requests[asked:])))
    return faults


@pytest.mark.parametrize("gvr", KINDS, ids=str)
async def test_a_resource_that_is_forbidden_after_the_start_takes_no_copy_away(
    tmp_path: Path, gvr: GroupVersionResource
) -> None:
    async with syncing(tmp_path) as api:
        faults = await forbidden(api, gvr)
        api.put(AUTH, ObjectKey("shop", "another"), spec=api.get(AUTH, LOGIN)["spec"])
        if gvr != AUTH:
            await until(lambda: "east another" in placed(api))
        assert {"east login", "west login"} <= placed(api)
        for fault in faults:
            api.http.faults.remove(fault)
        await until(lambda: len(placed(api)) == 4)


async def test_a_policy_nested_deeper_than_can_be_read_keeps_its_copies_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.policysync.hub._SURVEY_SECONDS", 0.05)
    monkeypatch.setattr("kube_sync.policysync.hub._MISSING_SECONDS", 0.0)
    labels = {"resource": str(AUTH), "reason": "nested"}

    def left_out() -> float:
        return REGISTRY.get_sample_value("kube_sync_objects_left_out_total", labels) or 0.0

    async with syncing(tmp_path) as api:
        await api.watched(AUTH)
        # What is written on it later would be told whole.
        await until(lambda: PLACED in api.get(AUTH, LOGIN)["metadata"].get("annotations", {}))
        before, login = left_out(), api.get(AUTH, LOGIN)
        version = login["metadata"]["resourceVersion"]
        spec = json.dumps({**login["spec"], "deep": 0}).replace("0}", f"{'[' * 1500}{']' * 1500}}}")
        metadata = json.dumps(login["metadata"])
        body = f'{{"kind":"XList","metadata":{{"resourceVersion":"{version}"}},'
        body += f'"items":[{{"metadata":{metadata},'
        listed = answer(200, f'{body}"spec":{spec}}}]}}'.encode())
        api.http.fault(lists(AUTH), listed)
        api.http.fault(watches(AUTH), stream(error_event(410)))
        api.http.cut()
        await until(lambda: left_out() > before)
        api.put(AUTH, ObjectKey("shop", "another"), spec=login["spec"])
        await until(lambda: "east another" in placed(api))
        api.delete(AUTH, ObjectKey("shop", "another"))  # as the other one would be, if it were gone
        await until(lambda: "east another" not in placed(api))
        assert {"east login", "west login"} <= placed(api)


async def test_a_cluster_that_left_unseen_is_left_when_clusters_are_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.processes.policysync._CHECK_SECONDS", 0.05)
    monkeypatch.setattr("kube_sync.policysync.hubstate.SETTLE_SECONDS", 0.5)
    async with syncing(tmp_path) as api:
        faults = await forbidden(api, MANAGED_CLUSTERS)
        api.delete(MANAGED_CLUSTERS, ObjectKey("", "west"))
        for fault in faults:
            api.http.faults.remove(fault)
        await until(lambda: placed(api) == {"east login"})
