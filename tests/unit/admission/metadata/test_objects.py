"""The objects that are judged, and the requests in which they are."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.admission.metadata.objects import Candidate, Request, candidates, namespaces
from kube_sync.errors import Misconfigured
from kube_sync.kube.manifests import Document

CONFIG_MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.mine.io"},
    "spec": {"group": "mine.io", "scope": "Cluster", "names": {"kind": "Widget"}},
}
WIDGET = {"apiVersion": "mine.io/v1", "kind": "Widget", "metadata": {"name": "w"}}


def of(*objects: Any, old: Any = (), **asked: Any) -> list[Candidate]:
    documents = [Document("f.yaml", one) for one in objects]
    stored = [Document("old.yaml", one) for one in old]
    files = ("old.yaml",) if old else ()
    return candidates(documents, stored, Request(("f.yaml",), old=files, **asked))


def test_object_is_a_create_in_its_namespace() -> None:
    (found,) = of(CONFIG_MAP, namespace="shop")
    assert (found.kind, found.name, found.namespace, found.product) == (
        "ConfigMap",
        "c",
        "shop",
        "",
    )
    assert found.request == {
        "uid": "",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "name": "c",
        "namespace": "shop",
        "operation": "CREATE",
        "object": {**CONFIG_MAP, "metadata": {"name": "c", "namespace": "shop"}},
        "oldObject": None,
        "dryRun": True,
        "options": {},
    }


def test_namespace_is_found_as_kubectl_finds_it() -> None:
    inside = {**CONFIG_MAP, "metadata": {"name": "c", "namespace": "own"}}
    assert namespaces([*of(CONFIG_MAP), *of(inside), *of(WIDGETS)]) == ["default", "own"]
    with pytest.raises(Misconfigured, match=r"f\.yaml: ConfigMap c is in namespace own, not in x"):
        of(inside, namespace="x")


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Namespace"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ],
)
def test_objects_of_the_cluster_lie_in_no_namespace(version: str, kind: str) -> None:
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
    (found,) = of(whole, namespace="shop")
    assert (found.namespace, found.request["namespace"], found.request["object"]) == ("", "", whole)


def test_definition_among_the_files_tells_the_scope_of_its_kind() -> None:
    assert [c.namespace for c in of(WIDGET, WIDGETS)] == ["", ""]
    for spec in (None, {"names": 1}, {**WIDGETS["spec"], "scope": "Namespaced"}):
        assert of(WIDGET, {**WIDGETS, "spec": spec})[0].namespace == "default"


def test_pods_that_a_workload_makes_are_judged_after_it() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    found = of({**workload, "metadata": {"name": "d"}}, operation="UPDATE")
    assert [one.product for one in found] == ["", "ReplicaSets", "pods"]
    own, _, pod = found
    assert (own.operation, own.request["kind"]["group"]) == ("UPDATE", "apps")
    assert (pod.operation, pod.kind, pod.name) == ("CREATE", "Deployment", "d")
    assert pod.request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert pod.request["object"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"a": "b"}, "namespace": "default"},
        "spec": {"containers": []},
    }


def test_replica_set_has_the_labels_of_the_template_and_the_annotations_of_its_deployment() -> None:
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    metadata = {"name": "d", "labels": {"x": "y"}, "annotations": {"a": "b", applied: "{}"}}
    spec = {"template": {"metadata": {"labels": {"c": "d"}}}}
    whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    made = of(whole)[1].request
    assert made["kind"] == {"group": "apps", "version": "v1", "kind": "ReplicaSet"}
    assert made["object"]["metadata"] == {
        "labels": {"c": "d"},
        "annotations": {"a": "b"},
        "namespace": "default",
    }


def test_job_of_a_cron_job_has_the_metadata_of_the_job_template() -> None:
    job = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {}}}}
    metadata = {"name": "c", "labels": {"x": "y"}}
    whole = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata}
    _, made, pod = of({**whole, "spec": {"jobTemplate": job}})
    assert (made.product, made.request["kind"]["kind"]) == ("Jobs", "Job")
    assert made.request["object"]["metadata"] == {"labels": {"a": "b"}, "namespace": "default"}
    assert "labels" not in pod.request["object"]["metadata"]


@pytest.mark.parametrize(
    ("version", "kind"), [("batch/v1", "Job"), ("v1", "ReplicationController")]
)
def test_job_without_labels_has_those_of_its_template(version: str, kind: str) -> None:
    spec = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": spec}
    assert of(whole)[0].request["object"]["metadata"]["labels"] == {"a": "b"}
    own = {**whole, "metadata": {"name": "j", "labels": {"c": "d"}}}
    assert of(own)[0].request["object"]["metadata"]["labels"] == {"c": "d"}


def test_claims_of_a_stateful_set_have_the_labels_of_its_selector_too() -> None:
    claims = [{"metadata": {"name": "data", "labels": {"a": "b"}}}, {}]
    spec = {"selector": {"matchLabels": {"s": "t"}}, "volumeClaimTemplates": claims}
    whole = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}
    found = of({**whole, "spec": {**spec, "template": {"spec": {}}}})
    assert [one.product for one in found] == ["", "volume claims", "volume claims", "pods"]
    labels = [one.request["object"]["metadata"]["labels"] for one in found[1:3]]
    assert labels == [{"a": "b", "s": "t"}, {"s": "t"}]


def test_stored_object_of_the_same_name_is_the_old_one() -> None:
    stored = {**CONFIG_MAP, "metadata": {"name": "c", "namespace": "default", "uid": "u"}}
    (found,) = of(CONFIG_MAP, old=[stored], operation="UPDATE")
    assert found.request["oldObject"] == stored
    assert of(CONFIG_MAP, operation="UPDATE")[0].request["oldObject"] is None


def test_object_that_is_not_stored_is_an_error() -> None:
    other = {**CONFIG_MAP, "metadata": {"name": "other"}}
    with pytest.raises(Misconfigured, match=r"--old: ConfigMap c of f\.yaml is not in it"):
        of(CONFIG_MAP, old=[other], operation="UPDATE")


def test_metadata_that_is_no_object_stays_for_the_rules_to_judge() -> None:
    (found,) = of({**CONFIG_MAP, "metadata": ["x"]})
    assert found.request["object"]["metadata"] == ["x"]
    (found,) = of({**CONFIG_MAP, "metadata": None})
    assert found.request["object"]["metadata"] == {"namespace": "default"}


def test_what_is_no_object_is_an_error() -> None:
    with pytest.raises(Misconfigured, match=r"f\.yaml: an object without a kind"):
        of({"apiVersion": "v1"})
    with pytest.raises(Misconfigured, match=r"f\.yaml: there is no object in it"):
        of()
