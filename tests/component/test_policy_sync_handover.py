"""Policy sync by one process after the other: what one took away, and what went unseen, counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Settings
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.policysync.desired import PLACEMENT, PLACEMENT_DECISIONS
from kube_sync.policysync.hubstate import GATEWAYS, MANAGED_CLUSTERS
from kube_sync.processes.context import Context
from kube_sync.processes.policysync import policy_sync
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.services import Service
from tests.component.test_policy_sync_refused import hub, placed
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH, source
from tests.unit.async_tools import running, until

LOGIN = ObjectKey("shop", "login")
CLUSTERS = [f"c{number}" for number in range(10)]


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looks at all come soon."""
    monkeypatch.setattr("kube_sync.policysync.hub._SURVEY_SECONDS", 0.05)


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as found:
        hub(found)
        for cluster in CLUSTERS:
            found.put(MANAGED_CLUSTERS, ObjectKey("", cluster))
        decide(found, CLUSTERS)
        yield found


def decide(api: FakeApiServer, clusters: Iterable[str], of: str = "both") -> None:
    status = {"decisions": [{"clusterName": one} for one in clusters]}
    where = ObjectKey("shop", "d1" if of == "both" else of)
    api.put(PLACEMENT_DECISIONS, where, metadata={"labels": {PLACEMENT: of}}, status=status)


def at(clusters: Iterable[str]) -> set[str]:
    return {f"{cluster} login" for cluster in clusters}


def held(readiness: Readiness) -> str:
    """Return what is said of removals that wait."""
    return str(readiness.conditions.get("removals", ""))


async def _run(service: Service) -> None:
    await service()


@asynccontextmanager
async def syncing(api: FakeApiServer, folder: Path) -> AsyncGenerator[Readiness]:
    """Be one process, which hands over when it ends."""
    own: dict[str, Any] = {"policy_sync": {"grace_seconds": 0}}
    async with kube_of(api, folder) as kube, AsyncExitStack() as stack:
        readiness = Readiness()
        drain = Drain(1.0, readiness.waiting)
        context = Context(msgspec.convert(own, Settings), readiness, stack, kube, drain)
        async with running(*(_run(service) for service in policy_sync(context))):
            yield readiness


async def test_clusters_that_leave_by_turns_of_two_processes_are_held_as_by_one(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with syncing(api, tmp_path):
        await until(lambda: placed(api) == at(CLUSTERS))
        decide(api, CLUSTERS[3:])
        await until(lambda: placed(api) == at(CLUSTERS[3:]))
    decide(api, CLUSTERS[5:])
    async with syncing(api, tmp_path) as readiness:
        await until(lambda: "5 of 10 clusters are left" in held(readiness))
        assert placed(api) == at(CLUSTERS[3:])


def spread(api: FakeApiServer, number: int) -> set[str]:
    """Have so many Gateways of one policy and one cluster each, and no other; return the copies."""
    api.delete(AUTH, LOGIN)
    for cluster in CLUSTERS[:number]:
        spec = {"gatewayClassName": "multi"}
        api.put(
            GATEWAYS,
            ObjectKey("shop", cluster),
            metadata={"labels": {PLACEMENT: cluster}},
            spec=spec,
        )
        decide(api, [cluster], of=cluster)
        target = {**source().body["spec"]["targetRef"], "name": cluster}
        api.put(AUTH, ObjectKey("shop", f"p{cluster}"), spec={"targetRef": target})
    return {f"{cluster} p{cluster}" for cluster in CLUSTERS[:number]}


async def test_clusters_that_vanished_while_nobody_looked_are_held_as_those_that_vanish_seen(
    api: FakeApiServer, tmp_path: Path
) -> None:
    """Each is the only one of its Gateway, and all are few: only together they are many."""
    copies = spread(api, 6)
    async with syncing(api, tmp_path):
        await until(lambda: placed(api) == copies)
    for key in [*api.objects(MANAGED_CLUSTERS)]:
        api.delete(MANAGED_CLUSTERS, key)
    async with syncing(api, tmp_path) as readiness:
        await until(lambda: "ManagedClusters: 0 of 6 clusters are left" in held(readiness))
        assert placed(api) == copies
        for cluster in CLUSTERS[:5]:
            api.put(MANAGED_CLUSTERS, ObjectKey("", cluster))
        await until(lambda: placed(api) == copies - {"c5 pc5"})
        for cluster in CLUSTERS[:3]:
            api.delete(MANAGED_CLUSTERS, ObjectKey("", cluster))
        await until(lambda: "ManagedClusters: 2 of 6 clusters are left" in held(readiness))
        assert placed(api) == copies - {"c5 pc5"}
