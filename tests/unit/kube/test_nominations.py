from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Conflict, NotFound, Terminal
from kube_sync.kube.kueue import WORKLOADS
from kube_sync.kube.nominations import Nominations
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import key, kube_of

STATUS = {"conditions": [{"type": "QuotaReserved", "status": "True"}], "theirs": 1}
APPLIED = {
    "manager": "kueue-admission",
    "operation": "Apply",
    "subresource": "status",
    "apiVersion": WORKLOADS.api_version,
    "fieldsV1": {
        "f:status": {
            "f:conditions": {'k:{"type":"QuotaReserved"}': {"f:type": {}, "f:status": {}}},
            "f:nominatedClusterNames": {},
        }
    },
}


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(WORKLOADS, "Workload")
        yield api


@pytest.fixture
async def nominations(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[Nominations]:
    async with kube_of(api, tmp_path) as client:
        yield Nominations(client)


def put(api: FakeApiServer, **status: Any) -> str:
    stored = api.put(
        WORKLOADS,
        key("w"),
        metadata={"managedFields": [APPLIED]},
        status=STATUS | status,
    )
    return str(stored["metadata"]["uid"])


async def test_what_kueue_applied_is_applied_again_with_the_nomination(
    api: FakeApiServer, nominations: Nominations
) -> None:
    uid = put(api, nominatedClusterNames=["b"])
    found, document = await nominations.read(key("w"), uid)
    assert (found.reserved, found.nominated) == (True, ("b",))
    await nominations.nominate(key("w"), document, ("a", "b"))
    request = api.http.requests[-1]
    assert request.path == WORKLOADS.path("default", "w") + "/status"
    assert request.query == {"fieldManager": "kueue-admission", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    sent = request.json()
    assert sent["status"] == {
        "conditions": STATUS["conditions"],
        "nominatedClusterNames": ["a", "b"],
    }
    version = document["metadata"]["resourceVersion"]
    assert sent["metadata"] == {"name": "w", "uid": uid, "resourceVersion": version}


async def test_no_cluster_is_no_field(api: FakeApiServer, nominations: Nominations) -> None:
    uid = put(api, nominatedClusterNames=["b"])
    _, document = await nominations.read(key("w"), uid)
    await nominations.nominate(key("w"), document, ())
    assert "nominatedClusterNames" not in api.http.requests[-1].json()["status"]


async def test_one_that_has_changed_since_it_was_read_is_a_conflict(
    api: FakeApiServer, nominations: Nominations
) -> None:
    uid = put(api)
    _, document = await nominations.read(key("w"), uid)
    put(api, other=1)
    with pytest.raises((Conflict, NotFound)):
        await nominations.nominate(key("w"), document, ("a",))


async def test_another_of_the_same_name_is_not_read(
    api: FakeApiServer, nominations: Nominations
) -> None:
    put(api)
    with pytest.raises(NotFound, match="created again"):
        await nominations.read(key("w"), "earlier")


async def test_one_of_another_form_is_refused(api: FakeApiServer, nominations: Nominations) -> None:
    uid = put(api, conditions="none")
    with pytest.raises(Terminal, match="cannot be read"):
        await nominations.read(key("w"), uid)
