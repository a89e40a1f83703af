"""The roles of the topology and of policy sync on a real API server: enough, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2] / "manifests"
FOLDERS = [
    "topology-rbac",
    "policy-sync-rbac",
    "policy-sync-direct-rbac",
    "policy-sync-spoke-rbac",
]
GATEWAY, WORK = "gateway.networking.k8s.io", "work.open-cluster-management.io"
CLUSTER, CRDS = "cluster.open-cluster-management.io", "apiextensions.k8s.io"
LEASES, OURS = "coordination.k8s.io", "kube-sync"
EVENTS = "events.k8s.io"

# account, verbs, group, resource (and subresource), namespace ("": all), name
Right = tuple[str, str, str, str, str, str]
READ = "list watch"
MAY: list[Right] = [
    *(
        ("topology", READ, group, resource, "", "")
        for group, resource in [
            (CRDS, "customresourcedefinitions"),
            ("", "services"),
            ("", "namespaces"),
            (GATEWAY, "referencegrants"),
            (GATEWAY, "gatewayclasses"),
            (GATEWAY, "gateways"),
            (GATEWAY, "listenersets"),
            *((GATEWAY, f"{protocol}routes") for protocol in ("http", "grpc", "tcp", "tls", "udp")),
        ]
    ),
    ("topology", "patch", "", "services/status", "", ""),
    ("topology", "patch", "", "namespaces/status", "", ""),
    ("topology", "patch", GATEWAY, "gatewayclasses/status", "", ""),
    ("topology", "patch", GATEWAY, "gateways/status", "", ""),
    ("topology", "patch", GATEWAY, "listenersets/status", "", ""),
    ("topology", "patch", GATEWAY, "httproutes/status", "", ""),
    ("topology", "patch", GATEWAY, "udproutes/status", "", ""),
    ("topology", "create", LEASES, "leases", OURS, ""),
    ("topology", "get update", LEASES, "leases", OURS, "kube-sync-topology"),
    ("topology", "create", "", "configmaps", OURS, ""),
    ("topology", "get patch", "", "configmaps", OURS, "kube-sync-topology"),
    ("topology", "get patch", "", "configmaps", OURS, "kube-sync-topology-paths-7"),
    ("policy-sync", READ, CRDS, "customresourcedefinitions", "", ""),
    ("policy-sync", READ, GATEWAY, "gatewayclasses", "", ""),
    ("policy-sync", "patch", GATEWAY, "gatewayclasses/status", "", ""),
    ("policy-sync", READ, GATEWAY, "gateways", "", ""),
    ("policy-sync", READ, GATEWAY, "listenersets", "", ""),
    ("policy-sync", READ, "", "namespaces", "", ""),
    ("policy-sync", READ, GATEWAY, "referencegrants", "", ""),
    ("policy-sync", READ, CLUSTER, "placementdecisions", "", ""),
    ("policy-sync", READ, CLUSTER, "managedclusters", "", ""),
    ("policy-sync", READ, "", "configmaps", "", ""),
    ("policy-sync", f"{READ} create patch delete", WORK, "manifestworks", "", ""),
    ("policy-sync", "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", ""),
    ("policy-sync", "create", LEASES, "leases", OURS, ""),
    ("policy-sync", "get update", LEASES, "leases", OURS, "kube-sync-policy-sync"),
    ("policy-sync", READ, "", "secrets", "kube-sync-spokes", ""),
    ("policy-sync", "create patch", EVENTS, "events", "", ""),
    ("policy-sync-spoke", "create", "", "namespaces", "", ""),
]
MAY_NOT: list[Right] = [
    ("topology", "patch update", "", "configmaps", OURS, "kube-sync-policies"),
    ("topology", "get update", LEASES, "leases", OURS, "kube-sync-remediator"),
    ("topology", f"{READ} get", "", "secrets", OURS, ""),
    ("topology", READ, "", "configmaps", OURS, ""),
    ("topology", "patch update", GATEWAY, "gateways", "", ""),
    ("topology", "patch update", "", "namespaces", "", ""),
    ("topology", "patch update", "", "services", "", ""),
    ("policy-sync", f"{READ} get", "", "secrets", "", ""),
    ("policy-sync", f"{READ} get", "", "secrets", OURS, ""),
    ("policy-sync", "create patch delete", "", "secrets", "kube-sync-spokes", ""),
    ("policy-sync", "create patch", "", "configmaps", OURS, ""),
    ("policy-sync", "patch update", GATEWAY, "gatewayclasses", "", ""),
    ("policy-sync", "patch", GATEWAY, "gateways/status", "", ""),
    ("policy-sync", "patch", WORK, "manifestworks/status", "", ""),
    ("policy-sync", f"{READ} get update delete", EVENTS, "events", "", ""),
    ("policy-sync", "create", "", "events", "", ""),
    ("policy-sync-spoke", "patch delete list", "", "namespaces", "", ""),
    ("policy-sync-spoke", f"{READ} get", "", "secrets", OURS, ""),
]


@pytest.fixture(scope="module")
def cluster(stack: RunningStack) -> RunningStack:
    """The stack of all, with the roles on it; twice, as an update would have it."""
    for _ in range(2):
        for folder in FOLDERS:
            stack.apply(ROOT / folder)
    stack.install_kinds(ROOT / "examples/colorpolicy")
    return stack


def allowed(cluster: RunningStack, rights: list[Right]) -> dict[tuple[str, ...], bool]:
    """Ask the authorizer of the API server."""
    asked = [(verb, *right) for right in rights for verb in right[1].split()]
    said = {}
    for verb, *right in asked:
        account, _, group, resource, namespace, name = right
        of, _, sub = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": of, "subresource": sub}
        spec = {
            "user": f"system:serviceaccount:kube-sync:kube-sync-{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes | {"namespace": namespace, "name": name},
        }
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        said[verb, *right] = bool(cluster.api.create(kind | {"spec": spec})["status"]["allowed"])
    return said


def test_each_may_do_what_it_does(cluster: RunningStack) -> None:
    assert [right for right, said in allowed(cluster, MAY).items() if not said] == []


def test_none_may_do_what_it_does_not(cluster: RunningStack) -> None:
    assert [right for right, said in allowed(cluster, MAY_NOT).items() if said] == []


@pytest.mark.parametrize(
    ("role", "labels"),
    [
        ("topology", {"topology": {"list", "watch"}, "topology-status": {"patch"}}),
        ("policy-sync", {"policy-sync": {"get", "list", "watch", "patch"}}),
        (
            "policy-sync-spoke",
            {
                "policy-sync-spoke": {
                    "get",
                    "list",
                    "watch",
                    "create",
                    "update",
                    "patch",
                    "delete",
                }
            },
        ),
    ],
)
def test_a_role_takes_in_the_roles_of_kinds_that_are_for_it(
    cluster: RunningStack, role: str, labels: dict[str, set[str]]
) -> None:
    found = cluster.kubectl("get", "clusterrole", f"kube-sync-{role}-policies", "--output=json")
    selectors = json.loads(found)["aggregationRule"]["clusterRoleSelectors"]
    assert [one["matchLabels"] for one in selectors] == [
        {f"kube-sync.io/aggregate-to-{label}": "true"} for label in labels
    ]
    for label, verbs in labels.items():
        name = f"kube-sync-{label}-colorpolicies"
        one = json.loads(cluster.kubectl("get", "clusterrole", name, "--output=json"))
        assert one["metadata"]["labels"][f"kube-sync.io/aggregate-to-{label}"] == "true"
        assert {verb for rule in one["rules"] for verb in rule["verbs"]} == verbs


def test_an_update_keeps_what_the_cluster_put_into_a_role(cluster: RunningStack) -> None:
    """A control plane does so by the label; here there is none, so the admin does it instead."""
    rules = [{"apiGroups": ["example.com"], "resources": ["shades"], "verbs": ["list"]}]
    name = "kube-sync-topology-policies"
    cluster.kubectl(
        "patch", "clusterrole", name, "--type=merge", f"--patch={json.dumps({'rules': rules})}"
    )
    cluster.apply(ROOT / "topology-rbac")
    found = cluster.kubectl("get", "clusterrole", name, "--output=json")
    assert json.loads(found)["rules"] == rules
