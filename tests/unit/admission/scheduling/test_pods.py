"""The pods among objects, as whom they run, and the requests that are judged."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.admission.scheduling.pods import Account, Request, candidates, namespaces
from kube_sync.errors import Misconfigured
from kube_sync.kube.manifests import Document

DURING = "DuringSchedulingIgnoredDuringExecution"
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


def daemonset(**spec: Any) -> Any:
    metadata = {"name": "agent", "namespace": "shop"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    whole = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    return {**whole, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("affinity", "preferred"),
    [
        (None, {}),
        ({"nodeAffinity": {"required" + DURING: {"nodeSelectorTerms": ["mine"]}}}, {}),
        ({"nodeAffinity": {"preferred" + DURING: ["mine"]}}, {"preferred" + DURING: ["mine"]}),
    ],
)
def test_pod_of_a_daemonset_is_tied_to_a_node_instead_of_what_its_template_requires(
    affinity: Any, preferred: Any
) -> None:
    """As `ReplaceDaemonSetPodNodeNameNodeAffinity` of Kubernetes does."""
    (found,) = of(daemonset(affinity=affinity))
    field = {"key": "metadata.name", "operator": "In", "values": ["any-node"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = found.request["object"]["spec"]
    assert spec["affinity"] == {"nodeAffinity": {"required" + DURING: required, **preferred}}
    user = found.request["userInfo"]["username"]
    assert user == "system:serviceaccount:kube-system:daemon-set-controller"
    assert found.written["object"]["spec"]["template"]["spec"]["affinity"] == affinity


def test_tolerations_of_the_daemonset_controller_replace_those_for_the_same_taints() -> None:
    """As `AddOrUpdateTolerationInPodSpec` does; one of another operator stays beside it."""
    key = "node.kubernetes.io/not-ready"
    own = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    valued = {**own, "operator": "Equal", "value": "x"}
    (found,) = of(daemonset(tolerations=[own, valued], hostNetwork=True))
    got = found.request["object"]["spec"]["tolerations"]
    assert got[:2] == [{n: own[n] for n in ("key", "operator", "effect")}, valued]
    assert [one["key"].rpartition("/")[2] for one in got[2:]] == [
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ]


@pytest.mark.parametrize("spec", [{"affinity": ["x"]}, {"affinity": {"nodeAffinity": "x"}}])
def test_shape_that_no_pod_has_stays_in_a_daemonset_for_the_decision_to_refuse(spec: Any) -> None:
    (found,) = of(daemonset(**spec, tolerations={"a": "b"}))
    got = found.request["object"]["spec"]
    assert (got["affinity"], got["tolerations"]) == (spec["affinity"], {"a": "b"})


def test_daemonset_is_written_with_the_account_that_its_pods_are_to_run_as() -> None:
    account = Account("shop", "builder")
    (found,) = of(daemonset(serviceAccountName="a"), account=account)
    template = found.written["object"]["spec"]["template"]["spec"]
    assert template == {"serviceAccountName": "builder", "schedulerName": "default-scheduler"}
    assert found.written["kind"] == {"group": "apps", "version": "v1", "kind": "DaemonSet"}
    assert found.written["userInfo"]["username"] == str(account)


def test_user_who_is_asked_for_creates_no_pods_of_a_controller() -> None:
    template: Any = {"spec": {"template": {"spec": {}}}}
    metadata = {"metadata": {"name": "d", "namespace": "shop"}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", **metadata, **template}
    (found,) = of(workload, user="alice")
    user = found.request["userInfo"]
    assert user["username"] == "system:serviceaccount:kube-system:replicaset-controller"
    assert "system:serviceaccounts:kube-system" in user["groups"]


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"Kind": "Deployment", "apiVersion": "apps/v1"}, "an object without a kind"),
        ({"kind": "Deployment"}, "an object without apiVersion"),
        ({"kind": "Deployment", "apiVersion": "v1"}, "has to be apps/v1, not v1"),
        ({"kind": "DaemonSet", "apiVersion": "extensions/v1beta1"}, "apps/v1, not extensions/v1b"),
        ({"kind": "CronJob", "apiVersion": "batch/v1beta1"}, "batch/v1, not batch/v1beta1"),
        ({"kind": "Pod", "apiVersion": "v2"}, "apiVersion of a Pod has to be v1, not v2"),
    ],
)
def test_workload_that_would_be_passed_over_is_an_error(whole: Any, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        of(POD, whole)


def test_template_that_is_missing_is_an_error() -> None:
    with pytest.raises(Misconfigured, match=r"f.yaml: Deployment without spec.template"):
        of({"apiVersion": "apps/v1", "kind": "Deployment", "spec": None})


def test_kinds_that_make_no_pods_are_left_out() -> None:
    others = [
        {"apiVersion": "v1", "kind": "Service"},
        {"apiVersion": "mine/v1", "kind": "Pod"},
        {"apiVersion": "mine/v1", "kind": "Deployment"},
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
