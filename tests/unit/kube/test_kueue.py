from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.kueue import (
    ClusterState,
    Workload,
    admitted_to,
    cluster_state,
    config_clusters,
    config_name,
    workload_of,
)
from kube_sync.objects import ObjectKey


def item(document: object) -> Item:
    body = json.dumps(document).encode()
    return Item(ObjectKey("ns", "w"), "u", ResourceVersion("1"), body)


def test_a_workload_is_read_with_what_a_dispatcher_needs() -> None:
    status = {
        "conditions": [
            {"type": "QuotaReserved", "status": "True"},
            {"type": "Finished", "status": "False"},
        ],
        "admissionChecks": [
            {"name": "mk", "state": "Pending", "message": "", "lastTransitionTime": None}
        ],
        "nominatedClusterNames": ["b", "a"],
    }
    metadata = {"uid": "u", "creationTimestamp": "1970-01-01T00:00:05Z"}
    assert workload_of(item({"metadata": metadata, "status": status})) == Workload(
        "u", 5.0, reserved=True, nominated=("b", "a"), checks=(("mk", "Pending"),)
    )


def manager(seconds: int, *fields: str) -> Any:
    owned: Any = {"f:status": {f"f:{name}": {} for name in fields}}
    return {"manager": "m", "time": f"1970-01-01T00:00:{seconds:02}Z", "fieldsV1": owned}


def test_nominations_are_as_old_as_what_their_owner_last_changed() -> None:
    managers = [manager(7, "nominatedClusterNames", "conditions"), manager(9, "conditions")]
    metadata = {"uid": "u", "managedFields": [*managers, {"manager": "m"}]}
    assert workload_of(item({"metadata": metadata})).nominated_at == 7.0


@pytest.mark.parametrize(
    ("metadata", "state", "clusters"),
    [
        ({}, "Ready", {"a"}),
        ({}, "Pending", {"a"}),
        ({}, "Retry", set()),
        ({}, "Rejected", set()),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Ready", set()),
    ],
)
def test_a_workload_is_admitted_where_kueue_keeps_it(
    metadata: Any, state: str, clusters: set[str]
) -> None:
    status = {"clusterName": "a", "admissionChecks": [{"name": "mk", "state": state}]}
    body = json.dumps({"metadata": {"uid": "u"} | metadata, "status": status})
    assert admitted_to(body.encode()) == clusters


@pytest.mark.parametrize("body", [b"{}", b"x", b'{"metadata": {}, "status": {}}'])
def test_one_that_no_cluster_has_admitted_is_nowhere(body: bytes) -> None:
    assert admitted_to(body) == frozenset()


def test_one_that_is_admitted_finished_or_being_deleted_says_so() -> None:
    metadata = {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    status = {"conditions": [{"type": "Finished", "status": "True"}], "clusterName": "a"}
    found = workload_of(item({"metadata": metadata, "status": status}))
    assert (found.deleted, found.finished, found.cluster, found.reserved) == (
        True,
        True,
        "a",
        False,
    )


def test_a_new_one_has_no_status() -> None:
    assert workload_of(item({"metadata": {"uid": "u"}})) == Workload("u")


def check(controller: str = "kueue.x-k8s.io/multikueue", **parameters: str) -> Any:
    named = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"} | parameters
    return {"metadata": {}, "spec": {"controllerName": controller, "parameters": named}}


def test_a_check_of_multikueue_names_its_config() -> None:
    assert config_name(item(check())) == "c"
    assert config_name(item(check("kueue.x-k8s.io/provisioning-request"))) is None
    assert config_name(item(check(kind="ProvisioningRequestConfig"))) == ""
    assert config_name(item(check(apiGroup="example.com"))) == ""
    bare = {"spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
    assert config_name(item(bare)) == ""


def test_a_config_lists_clusters() -> None:
    assert config_clusters(item({"spec": {"clusters": ["b", "a"]}})) == ("b", "a")
    assert config_clusters(item({})) == ()


def test_a_cluster_is_active_when_kueue_says_so() -> None:
    def of(status: str) -> Any:
        active = {"type": "Active", "status": status, "message": "m"}
        return {"status": {"conditions": [active]}}

    assert cluster_state(item(of("True"))) == ClusterState(active=True, message="m")
    assert cluster_state(item(of("False"))) == ClusterState(active=False, message="m")
    assert not cluster_state(item({})).active


@pytest.mark.parametrize("read", [workload_of, config_clusters, cluster_state, config_name])
def test_what_is_of_another_form_is_read_again_later(read: Any) -> None:
    with pytest.raises(Retriable, match="ns/w cannot be read"):
        read(item({"metadata": {"uid": 1}, "spec": 1, "status": 1}))
