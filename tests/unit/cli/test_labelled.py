from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube_sync.cli.labelled import labelled
from kube_sync.config import Kubernetes, Settings
from kube_sync.errors import Misconfigured
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import REPLICASETS, key


async def _found(tmp_path: Path, selector: str, namespace: str | None = None) -> set[str]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        for name, where, team in (("web", "shop", "a"), ("api", "shop", "b"), ("web", "ml", "a")):
            api.put(REPLICASETS, key(name, where), metadata={"labels": {"team": team}})
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        settings = Settings(kubernetes=Kubernetes(kubeconfig=kubeconfig))
        found = await asyncio.to_thread(labelled, settings, selector, namespace)
    assert {(group, resource) for group, resource, _ in found} <= {("apps", "replicasets")}
    return {str(one) for _, _, one in found}


async def test_objects_with_labels_are_asked_of_the_api_server(tmp_path: Path) -> None:
    assert await _found(tmp_path, "team=a") == {"shop/web", "ml/web"}
    assert await _found(tmp_path, "team=a", "shop") == {"shop/web"}


async def test_kind_that_is_not_served_has_no_objects(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        settings = Settings(kubernetes=Kubernetes(kubeconfig=api.kubeconfig(tmp_path / "k")))
        assert await asyncio.to_thread(labelled, settings, "a=b", None) == frozenset()


def test_what_is_no_selector_is_not_asked() -> None:
    with pytest.raises(Misconfigured, match="not a label selector"):
        labelled(Settings(), "a,", None)
