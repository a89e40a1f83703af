from __future__ import annotations

import pytest

from kube_sync.objects import GroupVersionResource, ObjectKey

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")


@pytest.mark.parametrize(
    ("gvr", "text"), [(REPLICASETS, "replicasets.v1.apps"), (CONFIGMAPS, "configmaps.v1")]
)
def test_a_resource_is_spelt_as_kubectl_accepts_it(gvr: GroupVersionResource, text: str) -> None:
    assert str(gvr) == text


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (REPLICASETS.path(), "/apis/apps/v1/replicasets"),
        (REPLICASETS.path("ns"), "/apis/apps/v1/namespaces/ns/replicasets"),
        (REPLICASETS.path("ns", "web"), "/apis/apps/v1/namespaces/ns/replicasets/web"),
        (REPLICASETS.path("", "web"), "/apis/apps/v1/replicasets/web"),
        (CONFIGMAPS.path(), "/api/v1/configmaps"),
        (CONFIGMAPS.path("ns", "p"), "/api/v1/namespaces/ns/configmaps/p"),
    ],
)
def test_the_core_group_and_cluster_scope_have_paths_of_their_own(path: str, url: str) -> None:
    assert path == url


def test_a_key_without_a_namespace_is_the_bare_name() -> None:
    assert str(ObjectKey("", "node-1")) == "node-1"
    assert str(ObjectKey("shop", "web")) == "shop/web"


def test_keys_of_equal_names_are_one_key() -> None:
    assert len({ObjectKey("a", "b"), ObjectKey("a", "b"), ObjectKey("b", "a")}) == 2
