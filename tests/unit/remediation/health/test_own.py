from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.kube.kueue import WORKLOADS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.health.own import KueueHealth, OwnHealth, healthy_at, healthy_by
from kube_sync.remediation.plan import Current

KEY = GroupVersionResource("apps", "v1", "replicasets"), ObjectKey("ns", "a")


def test_an_annotation_for_each_cluster_says_where_it_is_healthy() -> None:
    has = {"h.io/eu": "healthy", "h.io/us": "True", "h.io/ap": "degraded", "i.io/sa": "healthy"}
    assert healthy_by("h.io")(has, b"{}") == {"eu", "us"}


def test_of_what_was_read_the_clusters_that_are_asked_for_count() -> None:
    current = Current("u", {}, healthy=frozenset(["eu", "us"]))
    assert OwnHealth(healthy_by("h.io")).healthy(KEY, current, frozenset(["eu", "ap"])) == {"eu"}


@pytest.mark.parametrize(
    ("value", "healthy"),
    [(True, True), ("Healthy", True), ("true", True), (False, False), ("no", False), (1, False)],
)
def test_health_is_a_word_or_true(value: Any, healthy: bool) -> None:  # noqa: FBT001 - a parameter
    body = json.dumps({"status": {"clusters": {"eu": value}}}).encode()
    assert healthy_at("status.clusters")({}, body) == ({"eu"} if healthy else set())


@pytest.mark.parametrize("body", [b"{}", b'{"status": []}', b'{"status": {"clusters": 1}}', b"x"])
def test_without_a_map_at_the_path_nothing_is_healthy(body: bytes) -> None:
    assert healthy_at("status.clusters")({}, body) == frozenset()


def test_a_text_names_the_one_cluster() -> None:
    read = healthy_at("status.clusterName")
    assert read({}, b'{"status": {"clusterName": "eu"}}') == {"eu"}
    assert read({}, b'{"status": {"clusterName": ""}}') == frozenset()


def test_health_of_the_object_itself_is_as_current_as_the_object() -> None:
    for source in (OwnHealth(healthy_by("h.io")), KueueHealth("h.io")):
        assert (source.trouble, source.unmatched(KEY)) == (None, None)


@pytest.mark.parametrize(("asked", "healthy"), [(["eu", "us"], ["eu", "us"]), (["us"], [])])
def test_a_workload_that_one_of_some_clusters_has_admitted_lacks_nothing_in_the_others(
    asked: list[str], healthy: list[str]
) -> None:
    key, current = (WORKLOADS, KEY[1]), Current("u", {}, healthy=frozenset(["eu"]))
    assert KueueHealth("h.io").healthy(key, current, frozenset(asked)) == frozenset(healthy)


def test_kueue_admits_nothing_but_workloads() -> None:
    """Of others it is the annotations, as the cache of objects reads them, whatever sink leads."""
    source, annotations = KueueHealth("h.io"), {"h.io/us": "healthy"}
    workload = b'{"metadata": {}, "status": {"clusterName": "eu"}}'
    assert source.reader(WORKLOADS)(annotations, workload) == {"eu"}
    read = source.reader(KEY[0])(annotations, workload)
    current = Current("u", {}, healthy=read)
    assert source.healthy(KEY, current, frozenset(["eu", "us"])) == {"us"}
