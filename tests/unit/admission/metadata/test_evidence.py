"""MetadataPolicies from files and from a cluster, as OPA would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.admission.metadata.evidence import Policies, of_cluster, of_files
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.objects import ObjectKey
from kube_sync.policykinds.kinds import METADATA
from tests.fakes.apiserver import fake_apiserver, lists
from tests.fakes.clients import kube_of

VERSION = "policy.kube-sync.io/v1alpha1"


def policy(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more}
    return {"apiVersion": VERSION, "kind": "MetadataPolicy", "metadata": metadata}


def read(folder: Path, namespace: str | None, *objects: dict[str, Any]) -> Policies:
    file = folder / "f.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return of_files([str(file)], namespace)


def test_policies_lie_in_their_namespaces_and_say_so(tmp_path: Path) -> None:
    found = read(tmp_path, "shop", policy("a", namespace="own"), policy("b"))
    assert {n: list(inside) for n, inside in found.items()} == {"own": ["a"], "shop": ["b"]}
    assert found["shop"]["b"]["metadata"] == {"name": "b", "namespace": "shop"}
    assert list(read(tmp_path, None, policy("a"))) == ["default"]


def test_policy_without_a_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"f\.yaml: a MetadataPolicy without metadata\.name"):
        read(tmp_path, None, policy(""))


async def test_of_a_cluster_only_these_namespaces_are_read(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(METADATA.gvr, "MetadataPolicy", builtin=False)
        for namespace in ("a", "b"):
            api.put(METADATA.gvr, ObjectKey(namespace, "it"))
        found = await of_cluster(client, ["a"])
        asked = [r.path for r in api.http.requests if lists(METADATA.gvr)(r)]
    assert asked == [METADATA.gvr.path("a")]
    assert found["a"]["it"]["metadata"]["namespace"] == "a"
    assert list(found) == ["a"]


async def test_cluster_without_the_kind_is_told(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        with pytest.raises(Terminal, match=r"metadatapolicies.* \(is manifests/crds installed"):
            await of_cluster(client, ["a"])
