"""Policies and rights from files and from a cluster, as OPA would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.admission.scheduling.evidence import (
    COLLECTIONS,
    SCHEDULING_POLICIES,
    Evidence,
    of_cluster,
    of_files,
)
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import kube_of

RBAC = "rbac.authorization.k8s.io/v1"


def document(kind: str, version: str = RBAC, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def policy(name: str) -> dict[str, Any]:
    return document("SchedulingPolicy", "policy.kube-sync.io/v1alpha1", name=name)


def read(folder: Path, *objects: dict[str, Any]) -> Evidence:
    file = folder / "f.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return of_files([str(file)])


def test_objects_lie_where_decisions_read_them(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        policy("p"),
        document("Role", name="r", namespace="a"),
        document("RoleBinding", name="rb"),
        document("ClusterRole", name="cr", namespace="ignored"),
        document("ClusterRoleBinding", name="crb"),
    )
    names = {
        resource: {
            n: sorted(o) if resource in ("roles", "rolebindings") else "" for n, o in d.items()
        }
        for resource, d in found.data.items()
    }
    assert names == {
        "schedulingpolicies": {"p": ""},
        "roles": {"a": ["r"]},
        "rolebindings": {"default": ["rb"]},
        "clusterroles": {"cr": ""},
        "clusterrolebindings": {"crb": ""},
    }
    assert found.policies == {"p": policy("p")}


@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"name": 1}], ids=str)
def test_object_without_a_name_is_an_error(tmp_path: Path, metadata: Any) -> None:
    with pytest.raises(Misconfigured, match=r"f\.yaml.*: a ClusterRole without metadata\.name"):
        read(tmp_path, policy("p"), document("ClusterRole", **metadata))


async def serve(api: FakeApiServer) -> None:
    for kind, gvr in COLLECTIONS.items():
        inside = kind in ("Role", "RoleBinding")
        api.define(gvr, kind, namespaced=inside, builtin=gvr != SCHEDULING_POLICIES)
        for namespace in ("a", "b") if inside else ("",):
            api.put(gvr, ObjectKey(namespace, "it"))


async def test_of_a_cluster_only_the_namespaces_of_the_pods_are_read(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        await serve(api)
        found = await of_cluster(client, ["a"])
        roles = [r for r in api.http.requests if lists(COLLECTIONS["Role"])(r)]
    assert [r.path for r in roles] == [COLLECTIONS["Role"].path("a")]
    assert found.data["roles"].keys() == found.data["rolebindings"].keys() == {"a"}
    assert found.data["clusterroles"]["it"]["kind"] == "ClusterRole"
    assert found.policies["it"]["metadata"]["name"] == "it"


async def test_cluster_without_the_kind_is_told(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        with pytest.raises(Terminal, match=r"schedulingpolicies.* \(is manifests/crds installed"):
            await of_cluster(client, [])
