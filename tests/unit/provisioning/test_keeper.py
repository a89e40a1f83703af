from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube_sync.config import Settings
from kube_sync.errors import Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.provisioning.keeper import provision
from kube_sync.provisioning.plan import names
from kube_sync.provisioning.wanted import wanted
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clients import SECRETS, key, kube_of
from tests.fakes.http import Recorded, failing, served

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
