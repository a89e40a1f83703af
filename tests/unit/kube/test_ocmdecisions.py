from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.meta import OwnerReference
from kube_sync.kube.ocmdecisions import (
    OCM_GROUP_INDEX,
    OCM_GROUP_NAME,
    OCM_PLACEMENT,
    OCM_PLACEMENT_DECISIONS,
    ocm_shape,
)
from kube_sync.kube.slices import Choice, Published, Slice, SliceApi
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, patches
from tests.fakes.clients import kube_of
from tests.fakes.http import Recorded, answer

KEY = ObjectKey("argocd", "shop-web-0")
LABELS = {OCM_PLACEMENT: "shop-web", OCM_GROUP_INDEX: "0", OCM_GROUP_NAME: ""}
FIRST, SECOND = ({"kube-sync.io/moves": text} for text in ("[1]", "[1,2]"))
WANTED = Slice(
    KEY,
    "replicasets.apps/web",
    LABELS,
    OwnerReference("apps/v1", "ReplicaSet", "web", "u1"),
    (Choice("eu", "", "near"),),
    "shop",
)
BESIDE = replace(WANTED, key=ObjectKey("shop", "web-0"), source=None)
OURS = {"app.kubernetes.io/managed-by": "kube-sync-remediator"}
OWNER = '{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u1"}'
ANNOTATIONS = {
    "kube-sync.io/placed": "replicasets.apps/web",
    "kube-sync.io/placed-namespace": "shop",
    "kube-sync.io/placed-owner": OWNER,
}


@pytest.fixture
async def server() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as server:
        server.define(OCM_PLACEMENT_DECISIONS, "PlacementDecision", builtin=False)
        yield server


@pytest.fixture
async def api(server: FakeApiServer, tmp_path: Path) -> AsyncGenerator[SliceApi]:
    async with kube_of(server, tmp_path) as client:
        yield SliceApi(client, "tester", ocm_shape("argocd"))


def stored(server: FakeApiServer) -> Published:
    found = read(server.get(OCM_PLACEMENT_DECISIONS, KEY))
    assert found is not None
    return found


def read(document: Mapping[str, Any], namespace: str | None = "argocd") -> Published | None:
    return ocm_shape(namespace).parse(json.dumps(document).encode())


def writes(server: FakeApiServer) -> list[str]:
    return [_written(one) for one in server.http.requests if one.method == "PATCH"]


def _written(request: Recorded) -> str:
    if request.path.endswith("/status"):
        return "status"
    return "labels" if OCM_PLACEMENT in request.json()["metadata"]["labels"] else "bare"


async def test_an_applied_slice_is_there_as_the_api_defines_it(
    server: FakeApiServer, api: SliceApi
) -> None:
    written = await api.apply(WANTED, None)
    assert written.is_as(WANTED)
    found = server.get(OCM_PLACEMENT_DECISIONS, KEY)
    assert found["apiVersion"] == "cluster.open-cluster-management.io/v1beta1"
    assert found["status"] == {"decisions": [{"clusterName": "eu", "reason": "near"}]}
    assert found["metadata"]["labels"] == OURS | LABELS
    assert found["metadata"]["annotations"] == ANNOTATIONS
    assert "ownerReferences" not in found["metadata"]


async def test_readers_by_label_never_find_an_object_without_a_status(
    server: FakeApiServer, api: SliceApi
) -> None:
    """Argo CD's generator takes it for no clusters if it finds no other."""
    await api.apply(WANTED, None)
    assert writes(server) == ["bare", "status", "labels"]
    bare, status, labels = (one.json() for one in server.http.requests if one.method == "PATCH")
    assert "status" not in bare
    assert status.keys() == {"apiVersion", "kind", "metadata", "status"}
    assert status["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion"}
    assert "status" not in labels
    assert "resourceVersion" in labels["metadata"]


@pytest.mark.parametrize("failing", [2, 3])
async def test_what_broke_off_between_its_writes_is_completed(
    server: FakeApiServer, api: SliceApi, failing: int
) -> None:
    count = iter(range(1, 10))

    def fails(request: Recorded) -> bool:
        return request.method == "PATCH" and next(count) == failing

    server.http.fault(fails, answer(503))
    with pytest.raises(Retriable):
        await api.apply(WANTED, None)
    assert OCM_PLACEMENT not in server.get(OCM_PLACEMENT_DECISIONS, KEY)["metadata"]["labels"]
    found = stored(server)
    assert not found.is_as(WANTED)
    assert (await api.apply(WANTED, found)).is_as(WANTED)


async def test_only_what_differs_is_written(server: FakeApiServer, api: SliceApi) -> None:
    before = await api.apply(WANTED, None)
    chosen = replace(WANTED, choices=(Choice("us", "", "cheap"),))
    moved = await api.apply(chosen, before)
    owned = replace(chosen, owner=msgspec.structs.replace(WANTED.owner, uid="u2"))
    assert (await api.apply(owned, moved)).is_as(owned)
    assert writes(server)[3:] == ["status", "labels"]
    with pytest.raises(Conflict):
        await api.apply(chosen, before)


async def test_no_move_is_there_without_its_history(server: FakeApiServer, api: SliceApi) -> None:
    """Or a process that starts in between would not know of the move."""
    first = await api.apply(replace(WANTED, records=FIRST), None)
    moved = replace(WANTED, choices=(Choice("us", "", "near"),), records=SECOND)
    server.http.requests.clear()
    second = await api.apply(moved, first)
    assert writes(server) == ["labels", "status"]
    assert (first.records, second.records) == (FIRST, SECOND)
    assert stored(server).is_as(moved)
    assert not stored(server).is_as(replace(moved, records={}))


async def test_records_may_be_written_after_the_clusters(
    server: FakeApiServer, api: SliceApi
) -> None:
    first = await api.apply(WANTED, None)
    moved = replace(WANTED, choices=(), records=FIRST, records_last=True)
    server.http.requests.clear()
    assert (await api.apply(moved, first)).is_as(moved)
    assert writes(server) == ["status", "labels"]


async def test_no_clusters_are_a_list_that_is_empty(server: FakeApiServer, api: SliceApi) -> None:
    """A status without the list stops Argo CD's controller."""
    written = await api.apply(replace(WANTED, choices=()), None)
    assert written.complete
    assert server.get(OCM_PLACEMENT_DECISIONS, KEY)["status"] == {"decisions": []}


async def test_beside_its_resource_a_slice_is_owned_by_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    async with kube_of(server, tmp_path) as client:
        written = await SliceApi(client, "tester", ocm_shape(None)).apply(BESIDE, None)
    assert written.is_as(BESIDE)
    metadata = server.get(OCM_PLACEMENT_DECISIONS, BESIDE.key)["metadata"]
    assert metadata["ownerReferences"] == [json.loads(OWNER)]
    assert metadata["annotations"].keys() == {"kube-sync.io/placed"}
    assert written.subject == ("shop", WANTED.placed)


async def test_a_name_that_has_another_source_is_not_taken_over(
    server: FakeApiServer, api: SliceApi
) -> None:
    await api.apply(WANTED, None)
    with pytest.raises(Conflict, match="somebody else's"):
        await api.apply(replace(WANTED, source="other"), None)
    assert stored(server).is_as(WANTED)


async def test_an_answer_that_is_no_slice_is_an_error(server: FakeApiServer, api: SliceApi) -> None:
    server.http.fault(patches(OCM_PLACEMENT_DECISIONS), answer(200, b"{}"))
    with pytest.raises(Retriable, match="is not the PlacementDecision"):
        await api.apply(WANTED, None)


def document(**changes: object) -> dict[str, Any]:
    metadata = {
        "name": KEY.name,
        "namespace": KEY.namespace,
        "uid": "p1",
        "labels": OURS | LABELS,
        "annotations": ANNOTATIONS,
    }
    return {"metadata": metadata | changes, "status": {"decisions": [{"clusterName": "eu"}]}}


def test_what_is_ours_is_read() -> None:
    found = read(document())
    assert found is not None
    assert (found.subject, found.owners) == (("shop", WANTED.placed), (WANTED.owner,))
    assert (found.choices, found.complete) == ((Choice("eu", "", ""),), True)


@pytest.mark.parametrize("status", [{}, {"status": {}}, {"status": {"decisions": None}}])
def test_an_object_without_a_list_is_not_taken_for_one_without_clusters(
    status: dict[str, Any],
) -> None:
    found = read({"metadata": document()["metadata"]} | status)
    assert found is not None
    assert (found.complete, found.choices) == (False, ())
    assert not found.is_as(replace(WANTED, choices=()))


def _without(key: str) -> dict[str, str]:
    return {name: text for name, text in ANNOTATIONS.items() if name != key}


def _foreign() -> Iterator[dict[str, Any]]:
    yield {}
    yield document(labels=LABELS)  # of a Placement of OCM
    for key in ANNOTATIONS:
        yield document(annotations=_without(key))
    yield document(annotations=ANNOTATIONS | {"kube-sync.io/placed-owner": "{"})
    yield document() | {"status": {"decisions": [{}]}}


@pytest.mark.parametrize("foreign", list(_foreign()))
def test_what_is_not_ours_is_nothing(foreign: dict[str, Any]) -> None:
    assert read(foreign) is None


def test_what_another_arrangement_published_is_nothing() -> None:
    """Its readers have to move first: deleting it would take their clusters away."""
    assert read(document(), None) is None
    assert read(document(annotations=_without("kube-sync.io/placed-namespace"))) is None
