from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediation.argocd.clusters import ArgoClusters, Cluster

TYPE = {"argocd.argoproj.io/secret-type": "cluster"}


def secret(
    name: str, data: Mapping[str, str] | None, labels: Mapping[str, str] | None = None
) -> Item:
    document: dict[str, Any] = {"metadata": {"name": name, "labels": {**TYPE, **(labels or {})}}}
    if data is not None:
        document["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    body = json.dumps(document).encode()
    return Item(ObjectKey("argocd", name), f"uid-{name}", ResourceVersion("1"), body)


async def listed(*items: Item) -> ArgoClusters:
    clusters = ArgoClusters()
    await clusters.page(items)
    clusters.finish(known=True)
    return clusters


async def test_a_cluster_has_the_name_address_and_labels_of_its_secret() -> None:
    data = {"name": "eu-1", "server": "https://eu-1.example.com/", "config": '{"bearerToken":"s"}'}
    clusters = await listed(secret("one", data, {"region": "eu"}))
    ((key, found),) = clusters.named()["eu-1"]
    assert key == ObjectKey("argocd", "one")
    assert found == Cluster("eu-1", "https://eu-1.example.com", {"region": "eu"})


async def test_the_credentials_of_a_cluster_are_not_kept() -> None:
    data = {"name": "eu-1", "server": "https://eu", "config": '{"bearerToken":"s3cr3t"}'}
    clusters = await listed(secret("one", data))
    assert "s3cr3t" not in repr(clusters.objects)


async def test_the_cluster_that_argo_cd_runs_in_is_known_without_a_secret() -> None:
    ((key, found),) = (await listed()).named()["in-cluster"]
    assert (key, found.server) == (None, "https://kubernetes.default.svc")


async def test_a_secret_gives_the_cluster_that_argo_cd_runs_in_its_name() -> None:
    data = {"name": "hub", "server": "https://kubernetes.default.svc"}
    assert set((await listed(secret("one", data))).named()) == {"hub"}


async def test_the_clusters_of_an_address_have_the_names_of_all_its_secrets() -> None:
    both = [secret(name, {"name": name, "server": "https://eu/"}) for name in ("one", "two")]
    found = (await listed(*both)).by_server()
    assert found == {
        "https://eu": {"one", "two"},
        "https://kubernetes.default.svc": {"in-cluster"},
    }


@pytest.mark.parametrize("data", [None, {}, {"server": "https://eu"}])
async def test_a_secret_without_a_name_is_no_cluster(data: Mapping[str, str] | None) -> None:
    assert set((await listed(secret("one", data))).named()) == {"in-cluster"}


async def test_a_secret_that_cannot_be_read_is_no_cluster() -> None:
    body = b'{"metadata":{"name":"one"},"data":{"name":"/w=="}}'  # 0xff, no text
    item = Item(ObjectKey("argocd", "one"), "u", ResourceVersion("1"), body)
    assert set((await listed(item)).named()) == {"in-cluster"}


async def test_two_secrets_of_one_name_are_both_found() -> None:
    same = {"name": "eu", "server": "https://a"}
    clusters = await listed(secret("one", same), secret("two", same))
    assert [key.name for key, _ in clusters.named()["eu"] if key] == ["one", "two"]
