"""What runs beside the replicator for SchedulingPolicies, wired as it is, on the fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kube_sync.admission.scheduling.evidence import COLLECTIONS, SCHEDULING_POLICIES
from kube_sync.config import Settings
from kube_sync.kube.lease import LEASES
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.processes.conditions import LEASE, install_defaults, keep_conditions
from kube_sync.processes.context import Context
from kube_sync.runtime.draining import Drain
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of, opa_of
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa, fake_opa
from tests.unit.async_tools import until

REPORT = "/v1/data/kube_sync/scheduling/validation/report"
RESTRICTED = ObjectKey("", "restricted")


_DONE = ("scheduling bootstrap", "scheduling conditions")


@asynccontextmanager
async def running(api: FakeApiServer, opa: FakeOpa, folder: Path) -> AsyncGenerator[Readiness]:
    readiness = Readiness()
    async with AsyncExitStack() as stack, kube_of(api, folder) as kube, opa_of(opa) as client:
        drain = Drain(1.0, readiness.waiting)
        context = Context(Settings(builtin=("scheduling",)), readiness, stack, kube, drain)
        services = [*keep_conditions(context, client), install_defaults(context, client)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(one)) for one in services]
            yield readiness
            for task in tasks:
                task.cancel()


async def _run(service: Any) -> None:
    await service()


def replicated(api: FakeApiServer) -> dict[str, Any]:
    """Return what OPA has once all of the API server's rights are in it."""
    data: dict[str, Any] = {}
    for gvr in COLLECTIONS.values():
        for key, found in api.objects(gvr).items():
            inside = data.setdefault(gvr.resource, {})
            inside = inside.setdefault(key.namespace, {}) if key.namespace else inside
            inside[key.name] = found
    return data


async def test_defaults_and_conditions_come_once_opa_has_the_rights(tmp_path: Path) -> None:
    async with fake_apiserver() as api, fake_opa() as opa:
        for kind, gvr in {**COLLECTIONS, "Lease": LEASES}.items():
            inside = kind in ("Role", "RoleBinding", "Lease")
            api.define(gvr, kind, namespaced=inside, builtin=gvr != SCHEDULING_POLICIES)
        body = b'{"result": {"problems": [], "findings": []}}'
        report = answer(200, body, kind="application/json")
        opa.http.fault(lambda r: r.path == REPORT, report, times=100)
        async with running(api, opa, tmp_path) as readiness:
            assert not readiness.reasons
            await opa.http.until(lambda: any("sp:restricted" in r.path for r in opa.http.requests))
            assert not api.objects(SCHEDULING_POLICIES)
            opa.data = {"kubernetes": replicated(api)}
            await api.http.until(
                lambda: "status" in api.objects(SCHEDULING_POLICIES).get(RESTRICTED, {})
            )
            await until(lambda: {readiness.conditions[name] for name in _DONE} == {"ok"})
        accepted, *_ = api.get(SCHEDULING_POLICIES, RESTRICTED)["status"]["conditions"]
        assert (accepted["type"], accepted["status"]) == ("Accepted", "True")
        assert ObjectKey("kube-sync", LEASE) in api.objects(LEASES)
        assert len(api.objects(SCHEDULING_POLICIES)) == 2
