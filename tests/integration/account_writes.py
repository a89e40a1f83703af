"""Writes of our accounts, each with what a ValidatingAdmissionPolicy says of it.

Each account has the right to the verb by its roles, so that what is refused is so by its policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fakes.manifests import Manifest

OWN, SHOP, POLICIES, SPOKE = "kube-sync", "shop", "kube-federation-scheduling-policy", "cluster-1"
ARGOCD = "argocd"
PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
STATUS = "openpolicyagent.org/kube-mgmt-status"
LARGE, BEFORE, MARKED = "large", "from-before", "kube-sync-opa-metrics"
TLS, DECLARED = "kubernetes.io/tls", "argocd.argoproj.io/secret-type"
AFFECTED = "kube-sync.io/ColorPolicyAffected"
WHEN = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Write:
    """One request of an account; `says` is of the refusal, None where it is allowed."""

    account: str
    what: str  # for people
    method: str
    path: str
    body: Any
    says: str | None = None

    def __str__(self) -> str:
        return f"{self.account}: {self.what}"


REPLICA_SETS = f"/apis/apps/v1/namespaces/{SHOP}/replicasets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{SHOP}/events"
DECISIONS = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{SHOP}/placementdecisions"
OCM_DECISIONS = (
    f"/apis/cluster.open-cluster-management.io/v1beta1/namespaces/{SHOP}/placementdecisions"
)
CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
SECRETS = f"/api/v1/namespaces/{OWN}/secrets"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SCHEDULING = "/apis/policy.kube-sync.io/v1alpha1/schedulingpolicies"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1"
COLORS = "/apis/examples.kube-sync.io/v1alpha1/namespaces/{}/colorpolicies"
WORKS = f"/apis/work.open-cluster-management.io/v1/namespaces/{SPOKE}/manifestworks"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def named(name: str, **more: object) -> Manifest:
    return {"metadata": {"name": name, **more}}


def annotated(key: str, value: str | None) -> Manifest:
    return {"metadata": {"annotations": {key: value}}}


def condition(type_: str) -> Manifest:
    return {
        "type": type_,
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": WHEN,
    }


def listener(routes: int, *conditions: Manifest) -> Manifest:
    return {
        "name": "http",
        "attachedRoutes": routes,
        "supportedKinds": [],
        "conditions": list(conditions),
    }


def event(controller: str, namespace: str = SHOP) -> Manifest:
    return named(f"event-{controller.rpartition('/')[2]}", namespace=namespace) | {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": controller,
        "reportingInstance": "here",
        "type": "Normal",
        "reason": "Told",
        "action": "Tell",
        "regarding": {"kind": "ReplicaSet", "namespace": namespace, "name": "web"},
    }


def copy(name: str, **metadata: object) -> Manifest:
    marks: dict[str, object] = {
        "labels": {"kube-sync.io/policy-synced": "true"},
        "annotations": {"kuadrant.io/policy-synced": "true", "kube-sync.io/policy": "hub's"},
    }
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}
    heading = {"apiVersion": "examples.kube-sync.io/v1alpha1", "kind": "ColorPolicy"}
    return (
        heading | named(name, **(marks | metadata)) | {"spec": {"targetRef": target, "rules": {}}}
    )


def work(name: str, *manifests: Manifest, executor: bool = True, ours: bool = True) -> Manifest:
    account = {"namespace": OWN, "name": "kube-sync-policy-sync-spoke"}
    subject = {"subject": {"type": "ServiceAccount", "serviceAccount": account}}
    spec: Manifest = {"workload": {"manifests": list(manifests)}}
    labels = {"labels": {"kube-sync.io/policy-synced": "true"}} if ours else {}
    heading = {"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork"}
    return (
        heading
        | named(name, **labels)
        | {"spec": spec | ({"executor": subject} if executor else {})}
    )


def lease(name: str) -> Manifest:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | named(name, namespace=OWN)


def role(name: str, verb: str = "use") -> Manifest:
    rule = {"apiGroups": ["policy.kube-sync.io"], "resources": ["schedulingpolicies"]}
    return named(name) | {"rules": [rule | {"verbs": [verb]}]}


def secret(name: str, *keys: str, of_type: str = "Opaque", **metadata: Manifest) -> Manifest:
    """Return a Secret of the Job's, with these keys, and more in its metadata."""
    annotations = metadata.pop("annotations", {}) | {"kube-sync.io/provisioned-at": "1"}
    found = named(name, annotations=annotations, **metadata) | {"type": of_type}
    return found | {"data": dict.fromkeys(keys, "eA==")}


def patched(account: str, what: str, path: str, body: object, says: str | None = None) -> Write:
    return Write(account, what, "PATCH", path, body, says)


def created(account: str, what: str, path: str, body: object, says: str | None = None) -> Write:
    return Write(account, what, "POST", path, body, says)


def _remediator() -> Iterator[Write]:
    web, who = f"{REPLICA_SETS}/web", "remediator"
    notes = {"kube-sync.io/requested": "{}", "kube-sync.io/addition": "{}"}
    decided = {PREFERENCES: "{}", "kube-sync.io/moves": "[]", **notes}
    yield patched(who, "what policies decide", web, {"metadata": {"annotations": decided}})
    label = {"metadata": {"labels": {"federation.kubernetes.io/class": "a"}}}
    yield patched(who, "a label that policies decide", web, label)
    yield created(who, "its Lease", LEASES, lease("kube-sync-remediator"))
    yield created(who, "an Event of its own", EVENTS, event("kube-sync.io/remediator"))
    body = "changes annotations and labels, and nothing else"
    yield patched(who, "replicas", web, {"spec": {"replicas": 3}}, body)
    container = {"containers": [{"name": "c", "image": "other"}]}
    yield patched(who, "a template", web, {"spec": {"template": {"spec": container}}}, body)
    yield patched(who, "a finalizer", web, {"metadata": {"finalizers": ["a.io/b"]}}, body)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    yield patched(who, "an owner", web, {"metadata": {"ownerReferences": [owner]}}, body)
    yield patched(who, "another annotation", web, annotated("team", "x"), "decide.*: team")
    yield patched(
        who, "the end of another annotation", web, annotated("team", None), "decide.*: team"
    )
    application_set = f"/apis/argoproj.io/v1alpha1/namespaces/{ARGOCD}/applicationsets/web"
    yield patched(who, "where an ApplicationSet is", application_set, annotated(PREFERENCES, "{}"))
    generators: Manifest = {"spec": {"generators": []}}
    yield patched(who, "what an ApplicationSet makes", application_set, generators, body)
    longer = annotated("kube-sync.io/moves-not", "1")
    yield patched(
        who, "a name like one of its own", web, longer, "decide.*: kube-sync.io/moves-not"
    )
    yield patched(who, "a label", web, {"metadata": {"labels": {"app": "x"}}}, "decide.*: app")
    yield created(who, "another's Lease", LEASES, lease("kube-sync-topology"), "its own Lease")
    yield created(who, "an Event of another", EVENTS, event("kubelet"), "Events of its own")
    counted = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}
    yield patched(who, "a foreign Event", f"{EVENTS}/there", counted, "Events of its own")
    foreign = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "PlacementDecision",
        "decisions": [],
    }
    yield created(who, "a foreign PlacementDecision", DECISIONS, foreign | named("d"), "has made")
    yield Write(who, "its end", "DELETE", f"{DECISIONS}/there", None, "has made")
    foreign = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
    }
    ours = {"app.kubernetes.io/managed-by": "kube-sync-remediator"}
    chosen = {"status": {"decisions": [{"clusterName": "us", "reason": ""}]}}
    there = f"{OCM_DECISIONS}/there"
    yield created(who, "one of OCM's shape", OCM_DECISIONS, foreign | named("own", labels=ours))
    yield created(who, "a foreign one of OCM's", OCM_DECISIONS, foreign | named("d"), "has made")
    yield patched(who, "the clusters of a foreign one", f"{there}/status", chosen, "has made")
    yield patched(who, "a foreign one as its own", there, named("there", labels=ours), "has made")
    yield Write(who, "the end of one of OCM's", "DELETE", there, None, "has made")


def _replicator() -> Iterator[Write]:
    who, maps = "replicator", CONFIGMAPS.format(POLICIES)
    yield patched(who, "a status", f"{maps}/policy", annotated(STATUS, "{}"))
    yield created(who, "the last good", CONFIGMAPS.format(OWN), named("kube-sync-last-good"))
    yield created(who, "its Lease", LEASES, lease("kube-sync-replicator"))
    events = EVENTS.replace(SHOP, POLICIES)
    own = event("kube-sync.io/replicator", POLICIES)
    yield created(who, "an Event of its own", events, own)
    yield created(who, "an Event of another", events, event("kubelet", POLICIES), "Events of its")
    yield created(who, "a default role", f"{RBAC}/clusterroles", role("sp:restricted"))
    told = {"status": {"conditions": [condition("Accepted")]}}
    yield patched(who, "conditions", f"{SCHEDULING}/there/status", told)
    annotation = "own annotation on a ConfigMap"
    large = f"{maps}/{LARGE}"
    yield patched(who, "a status of as much as fits", large, annotated(STATUS, "{}"))
    edited = {"data": {"p.rego": "package evil"}}
    yield patched(who, "modules", f"{maps}/policy", edited, annotation)
    binary = {"binaryData": {"more": "eA=="}}
    yield patched(who, "more of a policy", f"{maps}/policy", binary, annotation)
    approved = annotated("kube-sync.io/approved", "moves-1")
    yield patched(who, "an approval", f"{maps}/policy", approved, annotation)
    staged = {"metadata": {"labels": {"kube-sync.io/stage": "candidate"}}}
    yield patched(who, "a label", f"{maps}/policy", staged, annotation)
    yield patched(
        who, "a foreign ConfigMap", f"{CONFIGMAPS.format(SHOP)}/theirs", edited, annotation
    )
    yield created(who, "a ConfigMap", CONFIGMAPS.format(OWN), named("other"), annotation)
    yield created(who, "another's Lease", LEASES, lease("kube-sync-remediator"), "its own Leases")
    default = "the default ones, and no others"
    yield created(who, "a role", f"{RBAC}/clusterroles", role("other"), default)
    policy = {"apiVersion": "policy.kube-sync.io/v1alpha1", "kind": "SchedulingPolicy"}
    yield created(who, "a policy", SCHEDULING, policy | named("other") | {"spec": {}}, default)
    bound: Manifest = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}}
    bound["roleRef"]["name"] = "kube-sync-replicator"
    binding = named("sp:restricted") | bound
    path = f"{RBAC}/clusterrolebindings"
    yield created(who, "a binding of another role", path, binding, "binds the roles of the default")
    wide = {"subjects": [{"kind": "User", "name": "me", "apiGroup": "rbac.authorization.k8s.io"}]}
    wide |= {"roleRef": bound["roleRef"] | {"name": "sp:privileged"}}
    name, path = "sp:kube-system-privileged", f"{RBAC}/namespaces/kube-system/rolebindings"
    yield created(who, "the use of `privileged`", path, named(name) | wide, "and nobody else")
    listing = role("sp:privileged", "list")
    yield created(who, "a right beyond use", f"{RBAC}/clusterroles", listing, "and nothing else")


def _plain_statuses() -> Iterator[Write]:
    """Yield what the topology writes of policies without ancestors, and its maps of paths."""
    who, maps = "topology", "kube-sync-topology-paths-"
    yield created(who, "its maps of paths", CONFIGMAPS.format(OWN), named(f"{maps}0"))
    nothing = "and nothing else"
    yield created(who, "one map too many", CONFIGMAPS.format(OWN), named(f"{maps}8"), nothing)
    limits = f"/apis/kuadrant.io/v1/namespaces/{SHOP}/ratelimitpolicies/limits/status"
    counted, enforced = condition("example.com/Counted"), condition("Enforced")
    plain = {"status": {"conditions": [counted, condition("Accepted"), enforced]}}
    yield patched(who, "a policy without ancestors is enforced", limits, plain)
    alone = {"status": {"conditions": [enforced]}}
    others = "its own conditions, and no others"
    yield patched(who, "another's condition of a policy", limits, alone, others)


def _topology() -> Iterator[Write]:
    who, space = "topology", f"/api/v1/namespaces/{SHOP}/status"
    service = f"/api/v1/namespaces/{SHOP}/services/web/status"
    gate = f"{GATEWAYS}/namespaces/{SHOP}/gateways/g/status"
    route = f"{GATEWAYS}/namespaces/{SHOP}/httproutes/r/status"
    ours, theirs = condition(AFFECTED), condition("Programmed")
    yield patched(who, "a namespace is affected", space, {"status": {"conditions": [ours]}})
    yield patched(who, "a Service is affected", service, {"status": {"conditions": [ours]}})
    said: Manifest = {
        "status": {"conditions": [theirs, ours], "listeners": [listener(1, theirs, ours)]}
    }
    yield patched(who, "a Gateway and a listener are", gate, said)
    entry: Manifest = {"parentRef": {"name": "g"}, "conditions": [ours]}
    other = entry | {"controllerName": "example.com/c", "conditions": [theirs]}
    own = entry | {"controllerName": "kube-sync.io/topology"}
    yield patched(who, "a route is", route, {"status": {"parents": [other, own]}})
    yield created(who, "its picture", CONFIGMAPS.format(OWN), named("kube-sync-topology"))
    by = "by its subresource"
    privileged = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    yield patched(who, "a label of a namespace", space, privileged, by)
    yield patched(who, "a label of a Service", service, {"metadata": {"labels": {"a": "b"}}}, by)
    yield patched(who, "an annotation", space, annotated("a", "b"), by)
    yield patched(who, "a finalizer", service, {"metadata": {"finalizers": ["a.io/b"]}}, by)
    conditions = "conditions of a status, and nothing else"
    address: Manifest = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    yield patched(who, "an address of a Service", service, address, conditions)
    address = {"status": {"addresses": [{"value": "192.0.2.1"}]}}
    yield patched(who, "an address of a Gateway", gate, address, conditions)
    own_conditions = "its own conditions, and no others"
    yield patched(who, "no conditions", gate, {"status": {"conditions": []}}, own_conditions)
    forged = {"status": {"conditions": [theirs | {"status": "False"}]}}
    yield patched(who, "another's condition", gate, forged, own_conditions)
    listeners = "own conditions of listeners"
    yield patched(who, "routes", gate, {"status": {"listeners": [listener(7, theirs)]}}, listeners)
    yield patched(who, "no listeners", gate, {"status": {"listeners": []}}, listeners)
    bare = {"status": {"listeners": [listener(1)]}}
    yield patched(who, "a listener's condition", gate, bare, listeners)
    yield patched(who, "no parents", route, {"status": {"parents": [own]}}, "entries of ancestors")
    color = f"{COLORS.format(SHOP)}/native/status"
    ancestor = {"ancestorRef": {"name": "g"}, "conditions": [theirs]}
    foreign = {"status": {"ancestors": [ancestor | {"controllerName": "example.com/c"}]}}
    yield patched(who, "an ancestor of another", color, foreign, "entries of ancestors")
    nothing = "and nothing else"
    yield created(who, "a ConfigMap", CONFIGMAPS.format(OWN), named("other"), nothing)
    yield created(who, "a Lease", LEASES, lease("kube-sync-replicator"), nothing)


def _policy_sync() -> Iterator[Write]:
    who, color = "policy-sync", f"{COLORS.format(SHOP)}/native"
    notes = {"kuadrant.io/policies-synced": "[]", "kube-sync.io/synced-status": "{}"}
    yield patched(who, "where copies are", color, {"metadata": {"annotations": notes}})
    status = {"status": {"conditions": [condition("Accepted"), condition("kube-sync.io/Synced")]}}
    yield patched(who, "how it is", f"{GATEWAYS}/gatewayclasses/c/status", status)
    yield created(who, "a work", WORKS, work("work", copy("c")))
    leaving = annotated("kuadrant.io/grace-timeout", "1")
    yield patched(who, "a mark on a work from before executors", f"{WORKS}/{BEFORE}", leaving)
    yield created(who, "its Lease", LEASES, lease("kube-sync-policy-sync"))
    own = "own annotations on a policy, and nothing else"
    yield patched(who, "a spec", color, {"spec": {"targetRef": {"name": "other"}}}, own)
    yield patched(who, "another annotation", color, annotated("a", "b"), own)
    yield patched(who, "a label", color, {"metadata": {"labels": {"a": "b"}}}, own)
    foreign = {"status": {"conditions": [condition("Ready")]}}
    path = f"{GATEWAYS}/gatewayclasses/c/status"
    yield patched(who, "another condition", path, foreign, "own conditions")
    yield created(
        who, "no executor", WORKS, work("w", copy("c"), executor=False), "names the account"
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace"} | named("x")
    yield created(who, "no copy", WORKS, work("w", namespace), "copies of policies")
    yield created(who, "no label", WORKS, work("w", copy("c"), ours=False), "has made")
    taken = {"metadata": {"labels": {"kube-sync.io/policy-synced": "true"}}}
    yield patched(who, "a foreign work", f"{WORKS}/theirs", taken, "has made")
    yield Write(who, "the end of it", "DELETE", f"{WORKS}/theirs", None, "has made")
    yield created(who, "another's Lease", LEASES, lease("kube-sync-remediator"), "its own Lease")


def _policy_sync_spoke() -> Iterator[Write]:
    who, colors = "policy-sync-spoke", COLORS.format(SHOP)
    yield created(who, "a copy", colors, copy("a-copy"))
    own = {"labels": {"kube-sync.io/policy-synced": "true"}}
    yield created(who, "a namespace", "/api/v1/namespaces", named("kuadrant-shop", **own))
    privileged = {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}
    label = "its own label alone"
    yield created(who, "another", "/api/v1/namespaces", named("kuadrant-x", **privileged), label)
    marked = "marked as such"
    yield created(who, "a policy", colors, copy("x", labels={}), marked)
    yield created(who, "one without marks", colors, copy("x", annotations={}), marked)
    yield patched(who, "a native policy", f"{colors}/native", copy("native"), "own copies here")
    yield Write(who, "the end of it", "DELETE", f"{colors}/native", None, "own copies here")


def _provision() -> Iterator[Write]:
    who, argocd = "provision", SECRETS.replace(OWN, ARGOCD)
    added: Manifest = {"labels": {"team": "x"}, "annotations": {"mesh.example.com/inject": "no"}}
    token = secret("kube-sync-decisions", "token", "next", **added)
    yield created(who, "a Secret that a webhook marked", SECRETS, token)
    pair = secret("kube-sync-opa-tls", "tls.crt", "tls.key", "ca.crt", of_type=TLS)
    yield created(who, "a certificate", SECRETS, pair)
    kept = secret(MARKED, "token", "theirs")
    yield Write(who, "one with another's key", "PUT", f"{SECRETS}/{MARKED}", kept)
    part: Manifest = {"labels": {"app.kubernetes.io/part-of": "argocd", "team": "x"}}
    sent = secret("kube-sync-generator", "token", **part)
    yield created(who, "the token of Argo CD's generator", argocd, sent)
    account = {"kubernetes.io/service-account.name": "kube-sync-replicator"}
    of_account = "kubernetes.io/service-account-token"
    stolen = secret("kube-sync-notes", of_type=of_account, annotations=account)
    kinds = "tokens and certificates for kube-sync"
    yield created(who, "the token of an account", SECRETS, stolen, kinds)
    yield created(who, "another name", SECRETS, secret("kube-sync-x", "token"), kinds)
    more = secret("kube-sync-remediation", "token", "config.json")
    yield created(who, "another key", SECRETS, more, "kube-sync-remediation: config.json")
    more = secret(MARKED, "token", "url")
    yield Write(who, "a new key", "PUT", f"{SECRETS}/{MARKED}", more, f"{MARKED}: url")
    changed = kept | {"data": kept["data"] | {"theirs": "eQ=="}}
    path = f"{SECRETS}/{MARKED}"
    yield Write(who, "another value of another's key", "PUT", path, changed, f"{MARKED}: theirs")
    unmarked = named("kube-sync-notes") | {"type": "Opaque"}
    yield created(who, "one without a mark", SECRETS, unmarked, "that it has made")
    cluster = secret("kube-sync-decisions", "token", labels={DECLARED: "cluster"})
    yield created(who, "another Secret of Argo CD", argocd, cluster, kinds)
    cluster = secret("kube-sync-generator", "token", labels={DECLARED: "cluster"})
    yield created(who, "a cluster of Argo CD", argocd, cluster, "declares nothing")
    yield created(who, "a cluster in its own namespace", SECRETS, cluster, "declares nothing")
    cluster = secret("kube-sync-generator", "token", "server", "name")
    yield created(who, "the keys of a cluster", argocd, cluster, "kube-sync-generator: .*server")
    there = secret("kube-sync-authority", "tls.crt", "tls.key", of_type=TLS)
    path = f"{SECRETS}/kube-sync-authority"
    yield Write(who, "a Secret of somebody else", "PUT", path, there, "that it has made")


def _admission() -> Iterator[Write]:
    who, path = "admission", f"{REGISTRATION}/kube-sync-placement"
    yield Write(
        who,
        "what follows the policies",
        "PUT",
        path,
        {
            "failurePolicy": "Ignore",
            "clientConfig": {"url": "https://127.0.0.1:1/admit", "caBundle": "TEFCRUw="},
            "matchConditions": [{"name": "a", "expression": "true"}],
            "namespaceSelector": {"matchLabels": {"a": "b"}},
        },
    )
    yield created(who, "its Lease", LEASES, lease("kube-sync-admission"))
    fields = "and nothing else of a registration"
    for what, webhook in {
        "whom it calls": {"clientConfig": {"url": "https://127.0.0.1:2/admit"}},
        "its rules": {"rules": []},
        "its name": {"name": "other.kube-sync.io"},
        "its time": {"timeoutSeconds": 1},
        "its objects": {"objectSelector": {"matchLabels": {"a": "b"}}},
        "no webhook": None,
    }.items():
        yield Write(who, what, "PUT", path, webhook, fields)
    yield created(who, "another's Lease", LEASES, lease("kube-sync-replicator"), "its own Lease")
    yield created(who, "an Event of another", EVENTS, event("kubelet"), "Events of its own")


ALL = [
    *_remediator(),
    *_replicator(),
    *_topology(),
    *_plain_statuses(),
    *_policy_sync(),
    *_policy_sync_spoke(),
    *_provision(),
    *_admission(),
]
RULE = {
    "apiGroups": ["nobody.example.com"],
    "apiVersions": ["v1"],
    "resources": ["nothings"],
    "operations": ["CREATE"],
}
WEBHOOK = {
    "name": "placement.kube-sync.io",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://127.0.0.1:1/admit"},
    "rules": [RULE],
}
