"""Good input, from which odd input is made."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from kube_sync.certificates import make_authority

Json = dict[str, Any]

_PREFERENCES: Final = json.dumps(
    {"rebalance": True, "clusters": {"eu-1": {"weight": 1, "maxReplicas": 3}, "us-1": {}}}
)
_REQUESTED: Final = json.dumps({"federation.kubernetes.io/replica-set-preferences": None, "a": "b"})
_LAST_APPLIED: Final = json.dumps({"metadata": {"annotations": {"a": "b"}, "name": "web"}})
_MANAGED: Final = [
    {
        "manager": manager,
        "operation": operation,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:annotations": {".": {}, "f:a": {}}, "f:labels": {"f:l": {}}}
        },
    }
    for manager, operation in (("kubectl", "Apply"), ("kube-sync-remediator", "Apply"), ("x", "U"))
]
_METADATA: Final[Json] = {
    "name": "web",
    "namespace": "shop",
    "uid": "4d1e",
    "resourceVersion": "17",
    "generation": 3,
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "annotations": {
        "a": "b",
        "kube-sync.io/requested": _REQUESTED,
        "federation.kubernetes.io/replica-set-preferences": _PREFERENCES,
        "kubectl.kubernetes.io/last-applied-configuration": _LAST_APPLIED,
        "kube-sync.io/approve": "moves-1@1700000000,shrink-2",
    },
    "labels": {"l": "v", "app": "web"},
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u", "controller": True}
    ],
    "managedFields": _MANAGED,
}
REPLICASET: Final[Json] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": _METADATA,
    "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
}
POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": _METADATA,
    "spec": {
        "affinity": {"nodeAffinity": {"requiredDuringScheduling": [1, 2]}},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "priorityClassName": "high",
        "priority": 5,
        "schedulerName": "s",
        "serviceAccountName": "default",
    },
}
PLACEMENT_POLICY: Final[Json] = {
    "apiVersion": "policy.kube-sync.io/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {
        "name": "policy",
        "namespace": "shop",
        "uid": "u-5",
        "resourceVersion": "13",
        "generation": 3,
        "creationTimestamp": "2026-11-21T00:00:00Z",
        "labels": {"kube-sync.io/stage": "active"},
    },
    "spec": {"modules": [{"name": "a.rego", "rego": "package a"}], "stage": "active"},
    "status": {"conditions": [{"type": "Active", "status": "True", "observedGeneration": 3}]},
}
CONFIGMAP: Final[Json] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": _METADATA | {"labels": {"openpolicyagent.org/policy": "rego"}},
    "data": {
        "a.rego": "package io.k8s.federation.admission\n\nannotations := {}\n",
        "b.rego": '# a comment\npackage a["b-c"].d\n',
        "data.json": '{"a": [1, 2, {"b": null}]}',
    },
}


def _review(new: Json, kind: str, resource: str, **request: Any) -> Json:
    group, _, version = str(new["apiVersion"]).rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "name": "web",
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "developer", "groups": ["system:authenticated"]},
            "object": new,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "fieldManager": "kubectl"},
            **request,
        },
    }


REVIEW: Final = _review(REPLICASET, "ReplicaSet", "replicasets")
REVIEWS: Final = (
    REVIEW,
    _review(REPLICASET, "ReplicaSet", "replicasets", operation="UPDATE", oldObject=REPLICASET),
    _review(
        REPLICASET,
        "ReplicaSet",
        "replicasets",
        operation="DELETE",
        object=None,
        oldObject=REPLICASET,
    ),
    _review(POD, "Pod", "pods"),
)
DECISION: Final[Json] = {
    "annotations": {
        "federation.kubernetes.io/replica-set-preferences": {"clusters": {"eu-1": {"weight": 2}}},
        "a": "b",
        "n": 1.5,
    },
    "labels": {"l": "v", "x.example.com/y": "z"},
    "errors": [],
    "warnings": ["careful", {"a": 1}],
    "reasons": {"eu-1": ["cheap", "near"], "us-1": "far"},
    "evict": False,
}
ANSWERS: Final[tuple[Json, ...]] = (
    {"result": DECISION, "decision_id": "d1", "provenance": {"bundles": {"b": {"revision": "7"}}}},
    {"result": DECISION | {"errors": ["no"], "evict": True}},
    {"result": {"allowed": True, "reasons": [], "patch": [], "policies": ["p"]}},
    {},
)
BATCH: Final[Json] = {"0": {"uid": "u", "decision": DECISION}, "1": {"uid": "v"}}
ERROR: Final[Json] = {
    "code": "internal_error",
    "message": "error(s) occurred while evaluating query",
    "errors": [
        {
            "code": "eval_conflict_error",
            "message": "complete rules must not produce multiple outputs",
            "location": {"file": "shop/policies/a.rego", "row": 3, "col": 1},
        }
    ],
}
BUDGET: Final[Json] = {
    "moves_per_minute": 10,
    "moves_burst": 3,
    "namespace_moves_per_minute": 0.5,
    "dwell_seconds": 60,
    "shrink_share": 0.5,
    "mass_floor": 3,
    "not_before": {"shop/web": 1700000000},
}
RULINGS: Final = (
    {
        "allowed": True,
        "reasons": [],
        "policies": ["shop/p"],
        "patch": [
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "x"}},
            {"op": "add", "path": "/spec/nodeSelector/a~1b", "value": "c"},
            {"op": "replace", "path": "/spec/affinity/nodeAffinity", "value": {}},
            {"op": "remove", "path": "/spec/tolerations/0"},
            {"op": "remove", "path": "/spec/priorityClassName"},
        ],
    },
    {"allowed": False, "reasons": ["no"], "patch": [], "policies": ["shop/p"]},
    {
        "allowed": True,
        "reasons": [],
        "policies": [],
        "patch": [
            {"op": "move", "path": "/spec/a", "from": "/spec/b"},
            {"op": "test", "path": "/spec/priority", "value": 5},
        ],
    },
)
_TARGET: Final = {
    "group": "apps",
    "version": "v1",
    "resource": "replicasets",
    "name": "web",
    "namespace": "shop",
}
RECORDS: Final[tuple[Json, ...]] = (
    {
        "type": "decision",
        "object": _TARGET,
        "uid": "u",
        "decision": {
            "annotations": {
                "federation.kubernetes.io/replica-set-preferences": _PREFERENCES,
                "a": "b",
            },
            "errors": [],
            "labels": {"l": "v"},
            "reasons": {"eu-1": "near"},
        },
        "seq": 3,
        "cause": "data",
        "policy": "0123456789abcdef",
        "old": {"annotations": {"a": "c"}, "errors": []},
        "data": 4,
        "source": {"collection": "clusters", "object": "eu-1", "count": 2},
        "v": 1,
    },
    {
        "type": "decision",
        "object": _TARGET,
        "uid": "u",
        "decision": None,
        "seq": 4,
        "cause": "policy",
        "policy": "",
        "failure": "the policy's answer is a number, not an object",
        "v": 1,
    },
    {"type": "deleted", "object": _TARGET, "seq": 5, "v": 1},
    {
        "type": "status",
        "held": ["OPA is being loaded"],
        "instance": "me",
        "notes": ["a note"],
        "stale": [{"source": "clusters", "seconds": 3.5, "reason": "cut off"}],
        "budget": {"document": BUDGET, "failure": None, "last_good": False},
        "v": 1,
    },
    {"type": "status", "held": [], "instance": "me", "budget": {"document": BUDGET}, "v": 1},
    {"type": "bookmark", "seq": 5, "instance": "me", "v": 1},
)
PARAMETERS: Final[Json] = {
    "policiesToSync": [
        {
            "group": "kuadrant.io",
            "version": "v1",
            "resource": "ratelimitpolicies",
            "statusFields": [
                {"name": "limit", "path": ".status.limits[0].count"},
                {"name": "ok", "path": '.status.conditions[?(@.type=="Ready")].status'},
                {"name": "dotted", "path": ".metadata.annotations.a\\.b/c"},
            ],
        },
        {"group": "kuadrant.io", "version": "v1", "resource": "authpolicies"},
    ]
}
GATEWAY_CLASS: Final[Json] = {
    "metadata": {"name": "hub"},
    "spec": {
        "parametersRef": {"group": "", "kind": "ConfigMap", "namespace": "ns", "name": "params"}
    },
}
WORK: Final[Json] = {
    "metadata": {"name": "w", "namespace": "eu-1", "generation": 2},
    "status": {
        "conditions": [{"type": "Applied", "status": "True", "observedGeneration": 2}],
        "resourceStatus": {
            "manifests": [
                {
                    "resourceMeta": {"ordinal": 0, "kind": "RateLimitPolicy"},
                    "conditions": [{"type": "StatusFeedbackSynced", "status": "True"}],
                    "statusFeedback": {
                        "values": [
                            {"name": "a", "fieldValue": {"type": "String", "string": "x"}},
                            {"name": "b", "fieldValue": {"type": "Integer", "integer": 3}},
                            {"name": "c", "fieldValue": {"type": "Boolean", "boolean": True}},
                        ]
                    },
                }
            ]
        },
    },
}
KUBECONFIG: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [
        {
            "name": "k",
            "cluster": {
                "server": "https://spoke.example.com:6443",
                "certificate-authority-data": base64.b64encode(
                    make_authority("spoke").cert_pem
                ).decode(),
                "tls-server-name": "spoke",
            },
        }
    ],
    "users": [{"name": "u", "user": {"token": "t"}}],
}
_GUARD: Final = {name: value for name, value in BUDGET.items() if name != "not_before"}
CONFIGURATION: Final[Json] = {
    "kubernetes": {"kubeconfig": "/kubeconfig"},
    "opa": {"url": "https://localhost:8181", "ca_file": "/ca.crt", "token_file": "/token"},
    "replicate": {
        "resources": [
            {"group": "apps", "version": "v1", "resource": "replicasets", "fields": "auto"},
            {"group": "", "version": "v1", "resource": "pods", "as": "pods", "fields": ["spec.a"]},
        ],
        "ignore_namespaces": ["kube-system"],
    },
    "placement": {"resources": ["replicasets"], "path": "io/k8s/federation/admission"},
    "policies": {"namespaces": ["policies"], "labelled": {"namespaces": ["*"]}},
    "decisions": {"listen": "127.0.0.1:9400", "url": "http://127.0.0.1:9400/v1/decisions"},
    "remediate": {"mode": "enforce", "namespaces": {"shop": "dry-run"}, "guard": _GUARD},
    "admission": {"listen": "[::1]:8443", "engine": {"attempts": 3}},
    "observe": {"listen": ":9401"},
    "EnforceSchedulingPolicy": {"url": "http://e/v0/data/x", "token": "t"},
}
_YAML: Final = b"""\
# What all parts share.
opa: &opa
  url: https://localhost:8181
  ca_file: "/run/tls/ca.crt"
remediate:
  mode: enforce
  namespaces: {shop: dry-run, 'a': off}
replicate:
  resources:
    - {group: apps, version: v1, resource: replicasets}
    - group: ""
      version: v1
      resource: pods
      fields: [metadata.name, 'spec.nodeName']
observe:
  listen: 127.0.0.1:9402
"""


def encoded(*documents: Any) -> tuple[bytes, ...]:
    """Return documents as JSON."""
    return tuple(json.dumps(document).encode() for document in documents)


CONFIGURATIONS: Final = (_YAML, *encoded(CONFIGURATION, {"opa": {"url": "http://o:1"}}))


def lines() -> tuple[bytes, ...]:
    """Return each record as a line, and all of them together."""
    found = tuple(one + b"\n" for one in encoded(*RECORDS))
    return (*found, b"".join(found))


def listing(objects: Any) -> Json:
    """Return objects as a page of a LIST."""
    metadata = {"resourceVersion": "18", "continue": "next"}
    return {"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": list(objects)}


def variables() -> tuple[bytes, ...]:
    """Return values of environment variables."""
    resources = encoded(CONFIGURATION["replicate"]["resources"])
    return (*resources, b"enforce", b"[::1]:9400", b"https://opa.example.com:8181/prefix")
