"""The pods among objects, as whom they run, and the requests that are judged."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.policykinds.documents import Document
from kube_sync.scheduling.arguments import Account, Request
from kube_sync.scheduling.pods import candidates, namespaces

BUILDER = Account("team-a", "builder")
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"schedulerName": "mine"},
}


def of(*objects: Any, **asked: Any) -> list[Any]:
    documents = [Document("f.yaml", one) for one in objects]
    return candidates(documents, Request(("f.yaml",), **asked))


def pod(namespace: str | None = None, **spec: Any) -> Any:
    metadata = {"name": "web"} | ({"namespace": namespace} if namespace else {})
    return {**POD, "metadata": metadata, "spec": spec}


def test_pod_is_a_create_by_its_own_account() -> None:
    (found,) = of(POD)
    assert (found.kind, found.name, str(found.account)) == (
        "Pod",
        "web",
        "system:serviceaccount:default:default",
    )
    assert found.request["object"]["spec"] == POD["spec"]
    assert found.request["object"]["metadata"] == {"name": "web", "namespace": "default"}
    asked = {name: found.request[name] for name in ("operation", "namespace", "dryRun")}
    assert asked == {"operation": "CREATE", "namespace": "default", "dryRun": True}
    assert found.request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert found.request["userInfo"] == {
        "username": "system:serviceaccount:default:default",
        "groups": [
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        ],
    }


@pytest.mark.parametrize(
    ("version", "kind", "way"),
    [
        ("apps/v1", "Deployment", ["spec", "template"]),
        ("apps/v1", "ReplicaSet", ["spec", "template"]),
        ("apps/v1", "StatefulSet", ["spec", "template"]),
        ("apps/v1", "DaemonSet", ["spec", "template"]),
        ("batch/v1", "Job", ["spec", "template"]),
        ("batch/v1", "CronJob", ["spec", "jobTemplate", "spec", "template"]),
        ("v1", "ReplicationController", ["spec", "template"]),
        ("v1", "PodTemplate", ["template"]),
    ],
)
def test_template_is_the_pod_that_it_would_make(version: str, kind: str, way: list[str]) -> None:
    value: Any = {"metadata": {"labels": {"a": "b"}}, "spec": {"schedulerName": "mine"}}
    for name in reversed(way):
        value = {name: value}
    metadata = {"name": "it", "namespace": "team-a"}
    (found,) = of({"apiVersion": version, "kind": kind, "metadata": metadata, **value})
    assert (found.kind, found.name, found.account) == (kind, "it", Account("team-a", "default"))
    assert found.request["object"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"a": "b"}, "namespace": "team-a"},
        "spec": {"schedulerName": "mine"},
    }


def test_template_that_is_missing_is_an_error() -> None:
    with pytest.raises(Misconfigured, match=r"f.yaml: Deployment without spec.template"):
        of({"apiVersion": "apps/v1", "kind": "Deployment", "spec": None})


def test_kinds_that_make_no_pods_are_left_out() -> None:
    others = [
        {"apiVersion": "v1", "kind": "Service"},
        {"apiVersion": "mine/v1", "kind": "Pod"},
        {"apiVersion": "mine/v1", "kind": "Deployment"},
        {"kind": None},
    ]
    assert len(of(POD, *others)) == 1
    with pytest.raises(Misconfigured, match=r"f\.yaml: there is no pod in it"):
        of(*others)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "default"),
        ({"serviceAccountName": "a"}, "a"),
        ({"serviceAccount": "a"}, "a"),
        ({"serviceAccountName": "a", "serviceAccount": "b"}, "a"),
        ({"serviceAccountName": ""}, "default"),
    ],
)
def test_own_account_is_the_one_that_the_pod_names(spec: Any, name: str) -> None:
    (found,) = of(pod("x", **spec))
    assert found.account == Account("x", name)
    assert found.request["object"]["spec"] == spec


def test_asked_account_replaces_the_one_that_the_pod_names() -> None:
    (found,) = of(pod(serviceAccountName="a", serviceAccount="a"), account=BUILDER)
    assert found.account == BUILDER
    assert found.request["object"]["spec"] == {"serviceAccountName": "builder"}
    assert found.request["namespace"] == "team-a"
    assert found.request["userInfo"]["username"] == str(BUILDER)


def test_spec_that_is_none_stays_for_the_decision_to_refuse() -> None:
    (found,) = of({**POD, "spec": ["x"]}, account=BUILDER)
    assert found.request["object"]["spec"] == ["x"]
    assert of({**POD, "spec": "x"})[0].account == Account("default", "default")


def test_user_creates_what_runs_as_the_pods_account() -> None:
    (found,) = of(POD, user="alice", groups=("dev", "system:authenticated"), namespace="x")
    assert found.request["userInfo"] == {
        "username": "alice",
        "groups": ["dev", "system:authenticated"],
    }
    assert found.account == Account("x", "default")


@pytest.mark.parametrize("asked", [{"namespace": "y"}, {"account": Account("y", "a")}], ids=str)
def test_namespaces_that_differ_are_an_error(asked: Any) -> None:
    with pytest.raises(Misconfigured, match=r"f\.yaml: Pod web is in namespace x, not in y"):
        of(pod("x"), **asked)
    assert of(pod("y"), **asked)[0].account.namespace == "y"


def test_namespaces_are_each_told_once() -> None:
    assert namespaces(of(pod("b"), pod("a"), pod("b"))) == ["a", "b"]
