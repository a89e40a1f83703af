"""The names that a policy can use: of a decision, an AdmissionRequest, an object, a label. Pure.

Invariant: `nearest` returns a name only for one that is none of these, and that differs from it by
a letter, or by two where it is long. (Ratios, as of difflib, call `networking.istio.io` close to
`networking.k8s.io`.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

from kube_sync.decisions.decision import REQUESTED
from kube_sync.guard.placements import PREFERENCES, SELECTOR
from kube_sync.kube import staging
from kube_sync.regoversion import NAME as REGO_VERSION

_LONG: Final = 8  # letters: in such a name two of them may be wrong
_SHORT: Final = 4  # letters: in shorter names none may be
_FAR: Final = 3


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


Shape = Literal["object", "array", "boolean"]
# What a decision consists of (decisions/decision.py), and the JSON type of each part.
DECISION: Final[dict[str, Shape]] = {
    "annotations": "object",
    "labels": "object",
    "reasons": "object",
    "errors": "array",
    "warnings": "array",
    "evict": "boolean",
}
# (Kubernetes federation: ReplicaAllocationPreferences, ClusterPreferences.)
PREFERENCE: Final = frozenset({"clusters", "rebalance"})
SHARE: Final = frozenset({"weight", "minReplicas", "maxReplicas"})
# (apimachinery: ObjectMeta, and what older clients still send.)
METADATA: Final = _words("""
    name generateName namespace selfLink uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers
    managedFields clusterName
""")
# (k8s.io/api/admission/v1: AdmissionRequest, GroupVersionKind; authentication/v1: UserInfo.)
REQUEST: Final = _words("""
    uid kind resource subResource requestKind requestResource requestSubResource name namespace
    operation userInfo object oldObject dryRun options
""")
REQUEST_KIND: Final = frozenset({"group", "version", "kind"})
USER_INFO: Final = frozenset({"username", "uid", "groups", "extra"})
OBJECT: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
# Other fields at the top of objects that Kubernetes has itself.
OTHERS: Final = _words("""
    data stringData binaryData immutable type rules roleRef subjects webhooks secrets
    provisioner parameters value description request response items endpoints subsets
""")
OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
TOPOLOGY: Final = frozenset({"nodes", "effective", "merged", "targetables"})
# Kinds by the plural in URLs; the kinds of definitions are not known here.
KINDS: Final = {
    f"{kind.lower()}{'es' if kind.endswith('s') else 's'}": kind
    for kind in _words("""
        ReplicaSet Deployment StatefulSet DaemonSet Job CronJob Pod Service ConfigMap Secret
        Namespace Node Gateway HTTPRoute GRPCRoute TLSRoute TCPRoute UDPRoute ReferenceGrant
        ClusterProfile
    """)
}
GROUPS: Final = _words("""
    apps batch gateway.networking.k8s.io networking.k8s.io rbac.authorization.k8s.io
    multicluster.x-k8s.io apiextensions.k8s.io admissionregistration.k8s.io
""")
# Kubernetes, "Well-Known Labels, Annotations and Taints", and the annotations that place workloads.
KEYS: Final = _words("""
    topology.kubernetes.io/region topology.kubernetes.io/zone kubernetes.io/arch
    kubernetes.io/os kubernetes.io/hostname kubernetes.io/metadata.name app.kubernetes.io/name
    app.kubernetes.io/instance app.kubernetes.io/version app.kubernetes.io/component
    app.kubernetes.io/part-of app.kubernetes.io/managed-by node.kubernetes.io/instance-type
    failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone
""") | {PREFERENCES, SELECTOR, REQUESTED}
# What a policy's own object can carry.
LABELS: Final = frozenset({staging.LABEL, REGO_VERSION})
ANNOTATIONS: Final = frozenset(
    {
        staging.STANDS_FOR,
        staging.SHARE,
        staging.NAMESPACES,
        staging.MAX_BREAKS,
        staging.MAX_MOVES,
    }
)
# What other parts put on objects, also on policies that they copy.
OTHER_MARKS: Final = _words("""
    kube-sync.io/policy-sync kube-sync.io/policy-synced kube-sync.io/spoke kube-sync.io/placed
    kube-sync.io/digest kube-sync.io/approved kube-sync.io/let-go kube-sync.io/topology
""")


def nearest(name: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant; None: it is one of these, or none is near."""
    if name in names:
        return None
    found = ((_distance(name.casefold(), known.casefold()), known) for known in names)
    near = ((d, known) for d, known in found if d <= _allowed(name, known))
    return min(near, default=(0, None))[1]


def _allowed(name: str, known: str) -> int:
    if len(name) >= _LONG:
        return 2
    return 1 if max(len(name), len(known)) >= _SHORT else 0


def _distance(one: str, other: str) -> int:
    """Return in how many letters two names differ; two that changed places count once."""
    if abs(len(one) - len(other)) >= _FAR:
        return _FAR
    before, last = list[int](), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(row[-1] + 1, last[j] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (other[j - 2], one[i - 2]):
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def is_slip_of(key: str, other: str) -> bool:
    """Return whether two long keys differ in one letter, and hardly on purpose.

    Keys that differ in a digit, an `s` or at their end may both be meant.
    """
    longer, shorter = sorted((key, other), key=len, reverse=True)
    if min(map(_name_length, (key, other))) < _LONG or _distance(key, other) != 1:
        return False
    at = next((n for n, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b), -1)
    return 0 < at < len(shorter) - 1 and longer[at].isalpha() and longer[at] != "s"


def _name_length(key: str) -> int:
    return len(key.partition("/")[2])


def object_field(name: str) -> str | None:
    """Return the field of an object that was probably meant, if it is none of an object."""
    if name in OTHERS:
        return None
    return f"metadata.{name}" if name in ("labels", "annotations") else nearest(name, OBJECT)


def top_field(name: str) -> str | None:
    """Return the field at the top of an input that was probably meant, if it has no such field."""
    if name in OTHERS | REQUEST:
        return None
    return object_field(name) or nearest(name, REQUEST)


def kinds_of(resources: Iterable[str]) -> frozenset[str]:
    """Return the kinds of these resources, without unknown ones."""
    return frozenset(KINDS[name] for name in resources if name in KINDS)
