from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Settings
from kube_sync.errors import Refused, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.provisioning.keeper import provision
from kube_sync.provisioning.plan import names
from kube_sync.provisioning.wanted import wanted
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clients import SECRETS, key, kube_of
from tests.fakes.http import Recorded, answer, failing, served

WANTED = wanted(Settings())


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[tuple[FakeApiServer, KubeClient]]:
    api = FakeApiServer()
    api.define(SECRETS, "Secret")
    async with served(api, api.http), kube_of(api, folder) as kube:
        yield api, kube


def writes(api: FakeApiServer) -> list[Recorded]:
    return [request for request in api.http.requests if request.method != "GET"]


async def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (api, kube):
        done = await provision(kube, WANTED, 1.5)
        assert sorted(done) == sorted(f"Secret kube-sync/{name} made" for name in names(WANTED))
        before = len(writes(api))
        assert await provision(kube, WANTED, 2.5) == []
        assert len(writes(api)) == before


async def test_labels_and_annotations_of_others_stay(tmp_path: Path) -> None:
    """A webhook or an operator adds them; a renewal would take them away every month."""
    async with cluster(tmp_path) as (api, kube):
        await provision(kube, WANTED, 0.0)
        one = key("kube-sync-decisions", "kube-sync")
        found = api.get(SECRETS, one)
        labels = {**found["metadata"]["labels"], "team": "x"}
        annotations = {**found["metadata"]["annotations"], "backup.example.com/skip": "true"}
        metadata = {"labels": labels, "annotations": annotations}
        api.put(SECRETS, one, metadata=metadata, data=found["data"], type=found["type"])
        await provision(kube, WANTED, 40 * 86400.0)
        renewed = api.get(SECRETS, one)
        assert "next" in renewed["data"]
        assert renewed["metadata"]["labels"] == labels
        annotations = renewed["metadata"]["annotations"]
        assert annotations["backup.example.com/skip"] == "true"
        assert annotations["kube-sync.io/provisioned-at"] == str(40 * 86400)


async def test_one_that_changed_meanwhile_is_read_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (api, kube):
        await provision(kube, WANTED, 0.0)
        late = 40 * 86400.0
        api.http.fault(lambda request: request.method == "PUT", failing(409, "changed"))
        done = await provision(kube, WANTED, late)
        assert "Secret kube-sync/kube-sync-opa-access renewed" in done
        assert "next" in api.get(SECRETS, key("kube-sync-decisions", "kube-sync"))["data"]


async def test_one_that_changes_all_the_time_is_left_to_the_next_run(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (api, kube):
        api.http.fault(lambda request: request.method == "POST", failing(409, "changed"), times=99)
        with pytest.raises(Retriable, match="somebody else"):
            await provision(kube, WANTED, 0.0)
        assert len(writes(api)) == 3


ARGOCD = wanted(msgspec.convert({"remediate": {"argocd": {"listen": "127.0.0.1:9409"}}}, Settings))
GENERATOR = "kube-sync-generator"


def generator(api: FakeApiServer, namespace: str) -> Any:
    return api.get(SECRETS, key(GENERATOR, namespace))


async def test_the_token_of_the_generator_is_made_in_both_namespaces_if_it_is_served(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (api, kube):
        done = await provision(kube, ARGOCD, 1.5)
        assert done[-2:] == [f"Secret {n}/{GENERATOR} made" for n in ("kube-sync", "argocd")]
        own, sent = generator(api, "kube-sync"), generator(api, "argocd")
        assert own["data"] == sent["data"]
        assert sent["metadata"]["labels"]["app.kubernetes.io/part-of"] == "argocd"
        assert "app.kubernetes.io/part-of" not in own["metadata"]["labels"]
        assert await provision(kube, ARGOCD, 2.5) == []


async def test_what_argo_cds_namespace_refuses_leaves_the_other_secrets_made(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (api, kube):
        api.http.fault(lambda request: "/namespaces/argocd/" in request.path, answer(403))
        with pytest.raises(Refused):
            await provision(kube, ARGOCD, 0.0)
        assert {found.name for found in api.objects(SECRETS)} == set(names(WANTED))
