"""Which object and which cluster is meant, and what is said where there is none."""

from __future__ import annotations

import pytest

from kube_sync.config import Resource
from kube_sync.errors import Broken, Terminal
from kube_sync.inspect.plan.snapshot import Objects
from kube_sync.inspect.why.subject import find_cluster, find_subject
from kube_sync.kube.naming import reference
from tests.unit.inspect.plan.fleets import FLEET, WORKLOADS, item, replicaset, zoned

REPLICASETS = Resource("apps", "v1", "replicasets")
POLICIES = Resource("example.com", "v1", "netpolicies", as_="nets")
CLUSTERS: Objects = {i.key: i for i in map(item, FLEET)}
OBJECTS = {"replicasets": {i.key: i for i in map(item, WORKLOADS)}, "nets": {}}


@pytest.mark.parametrize(
    "kind", ["replicaset", "ReplicaSet", "replicasets", "replicasets.apps", "replicasets.v1.apps"]
)
def test_kind_is_spelt_as_kubectl_takes_it(kind: str) -> None:
    found = find_subject(reference(f"{kind}/web"), "shop", [POLICIES, REPLICASETS], OBJECTS)
    assert (str(found), found.resource) == ("replicasets shop/web", REPLICASETS)


def test_kind_may_be_its_name_in_opa_or_that_of_its_objects() -> None:
    odd = {"nets": {i.key: i for i in [item(replicaset("n", "eu", namespace="default"))]}}
    for kind in ("nets", "netpolicy", "replicaset"):
        assert find_subject(reference(f"{kind}/n"), None, [POLICIES], odd).resource == POLICIES


def test_namespace_is_the_default_one_where_none_is_named() -> None:
    with pytest.raises(Broken) as raised:
        find_subject(reference("replicaset/web"), None, [REPLICASETS], OBJECTS)
    assert str(raised.value) == (
        "there is no replicaset/web in namespace default; perhaps shop/web?"
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("replicaset/wep", "there is no replicaset/wep in namespace shop; perhaps shop/web?"),
        ("replicaset/xyz", "there is no replicaset/xyz in namespace shop"),
        (
            "pod/web",
            "pod/web: decisions are not about pod, but about replicasets, as in replicasets/web",
        ),
        ("xyz", "there is no xyz in namespace shop"),
        ("shop/wep", "there is no wep in namespace shop; perhaps shop/web?"),
        (
            "replicaset/",
            "replicaset/: expected TYPE/NAME, NAMESPACE/NAME or NAME, as in replicaset/web",
        ),
    ],
)
def test_object_that_is_not_there_is_said_with_what_comes_near(asked: str, said: str) -> None:
    with pytest.raises(Terminal) as raised:
        find_subject(reference(asked), "shop", [REPLICASETS], OBJECTS)
    assert str(raised.value).startswith(said)


def test_name_that_two_collections_have_is_not_guessed() -> None:
    both = {"replicasets": OBJECTS["replicasets"], "nets": OBJECTS["replicasets"]}
    with pytest.raises(Broken, match="it may be replicasets/shop/web or nets/shop/web"):
        find_subject(reference("replicaset/web"), "shop", [REPLICASETS, POLICIES], both)


def test_cluster_is_named_with_its_namespace_or_without() -> None:
    assert (
        find_cluster("c2", CLUSTERS)
        == find_cluster("fleet/c2", CLUSTERS)
        == CLUSTERS[item(FLEET[1]).key]
    )


def test_cluster_that_is_not_there_or_there_twice_is_not_guessed() -> None:
    with pytest.raises(Broken, match=r"there is no cluster c22; perhaps c2\?"):
        find_cluster("c22", CLUSTERS)
    twin = item({**zoned("c2", "eu"), "metadata": {"name": "c2", "namespace": "other"}})
    with pytest.raises(Broken, match="c2 may be fleet/c2 or other/c2: say which"):
        find_cluster("c2", {**CLUSTERS, twin.key: twin})
    with pytest.raises(Broken, match=r"there is no cluster c1$"):
        find_cluster("c1", {})
