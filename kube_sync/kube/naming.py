"""How people name objects: TYPE NAME, TYPE/NAME and NAMESPACE/NAME, as kubectl has it. Pure.

One word may be read in two ways: `ml/train` is the object `train` of the kind `ml`, or of the
namespace `ml`. Both are kept, and whoever knows which objects there are takes the one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource, ObjectKey

DEFAULT: Final = "default"  # the namespace of what names none
_PARTS: Final = 3  # of TYPE/NAMESPACE/NAME

# `kubectl api-resources` of Kubernetes 1.36: what workloads are, and what they are mistaken for.
_SHORT: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "configmaps"): ("cm",),
    ("", "namespaces"): ("ns",),
    ("", "nodes"): ("no",),
    ("", "persistentvolumeclaims"): ("pvc",),
    ("", "persistentvolumes"): ("pv",),
    ("", "pods"): ("po",),
    ("", "replicationcontrollers"): ("rc",),
    ("", "secrets"): (),
    ("", "serviceaccounts"): ("sa",),
    ("", "services"): ("svc",),
    ("apps", "daemonsets"): ("ds",),
    ("apps", "deployments"): ("deploy",),
    ("apps", "replicasets"): ("rs",),
    ("apps", "statefulsets"): ("sts",),
    ("autoscaling", "horizontalpodautoscalers"): ("hpa",),
    ("batch", "cronjobs"): ("cj",),
    ("batch", "jobs"): (),
    ("networking.k8s.io", "ingresses"): ("ing",),
    ("networking.k8s.io", "networkpolicies"): ("netpol",),
    ("policy.kube-sync.io", "metadatapolicies"): ("metapol",),
    ("policy.kube-sync.io", "placementpolicies"): ("placepol",),
    ("policy.kube-sync.io", "schedulingpolicies"): ("schedpol",),
}
# `kubectl api-resources --namespaced=false` of Kubernetes 1.36, and kinds removed lately.
CLUSTER_SCOPED: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("", "ComponentStatus"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("authentication.k8s.io", "SelfSubjectReview"),
        ("authentication.k8s.io", "TokenReview"),
        ("authorization.k8s.io", "SelfSubjectAccessReview"),
        ("authorization.k8s.io", "SelfSubjectRulesReview"),
        ("authorization.k8s.io", "SubjectAccessReview"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("certificates.k8s.io", "ClusterTrustBundle"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("internal.apiserver.k8s.io", "StorageVersion"),
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy.kube-sync.io", "SchedulingPolicy"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
        ("storagemigration.k8s.io", "StorageVersionMigration"),
    }
)


@dataclass(frozen=True, slots=True)
class Named:
    """One way to read what a person typed; `name` is None where all of a kind are meant."""

    text: str
    kind: str | None = None  # as typed; None: any
    namespace: str | None = None
    name: str | None = None

    def keys(self, namespace: str | None) -> list[ObjectKey]:
        """Return where the object may lie, in a namespace or in none.

        `namespace` is that of the command line.
        """
        where, name = self.namespace or namespace or DEFAULT, self.name or ""
        return [ObjectKey(where, name), ObjectKey("", name)]

    def means(self, gvr: GroupVersionResource, key: ObjectKey) -> bool:
        """Tell whether an object is named, wherever it lies if that is not said."""
        return (
            (self.kind is None or self.kind.lower() in spellings(gvr))
            and self.namespace in (None, key.namespace)
            and self.name in (None, key.name)
        )


Reference = tuple[Named, ...]  # all ways to read what names one object, the likeliest first


def read(words: Sequence[str], is_kind: Callable[[str], bool]) -> list[Reference]:
    """Return what the words of a command line name, one by one. Raises Misconfigured."""
    if not words:
        return []
    kind, *names = words
    if "/" in kind or not is_kind(kind):
        return [reference(word) for word in words]
    if not names:
        return [(Named(kind, kind),)]
    return [tuple(_of_kind(kind, name)) for name in names]


def reference(word: str) -> Reference:
    """Return the ways to read one word: TYPE/NAME, NAMESPACE/NAME or NAME. Raises Misconfigured."""
    parts = word.split("/")
    if not all(parts) or len(parts) > _PARTS:
        msg = f"{word}: expected TYPE/NAME, NAMESPACE/NAME or NAME, as in replicaset/web"
        raise Misconfigured(msg)
    match parts:
        case [name]:
            return (Named(word, name=name),)
        case [first, name]:
            return Named(word, first, name=name), Named(word, namespace=first, name=name)
    first, namespace, name = parts
    return (Named(word, first, namespace, name),)


def within(found: Reference, namespace: str | None) -> Reference:
    """Return the readings that go with a namespace of the command line. Raises Misconfigured."""
    fits = tuple(one for one in found if namespace is None or one.namespace in (None, namespace))
    if not fits:
        msg = f"{found[0].text}: it is in namespace {found[0].namespace}, and -n says {namespace}"
        raise Misconfigured(msg)
    return fits


def lying_in(found: Reference, namespace: str) -> Reference:
    """Return the readings with the namespace of those that name none."""
    return tuple(replace(one, namespace=one.namespace or namespace) for one in found)


def spelt(gvr: GroupVersionResource, key: ObjectKey, *, in_namespace: bool = False) -> str:
    """Return a name that every command takes; `in_namespace`: the namespace is said elsewhere."""
    kind = f"{gvr.resource}.{gvr.group}" if gvr.group else gvr.resource
    return f"{kind}/{key.name if in_namespace else key}"


def spellings(gvr: GroupVersionResource) -> frozenset[str]:
    """Return what a kind is called, in lower case, without asking an API server."""
    names = {gvr.resource, *_singular(gvr.resource), *_SHORT.get((gvr.group, gvr.resource), ())}
    groups = ("", f".{gvr.group}", f".{gvr.version}.{gvr.group}")
    return frozenset({f"{name}{group}".rstrip(".") for name in names for group in groups})


def is_built_in(kind: str) -> bool:
    """Tell whether a word is what Kubernetes calls one of its own kinds."""
    return kind.lower() in _BUILT_IN


def is_cluster_scoped(gvr: GroupVersionResource) -> bool:
    """Return whether a resource is one of Kubernetes itself that lies in no namespace."""
    return any((gvr.group, name) in _CLUSTER_SCOPED for name in _singular(gvr.resource))


def refused(text: str, kind: str, known: Iterable[str]) -> str:
    """Return what to say of an object of a kind that is not decided, with what would be right."""
    names = list(known)
    name = text.rpartition("/")[2].rpartition(" ")[2]
    example = f", as in {names[0]}/{name}" if names and name != kind else ""
    return f"{text}: decisions are not about {kind}, but about {', '.join(names)}{example}"


def _of_kind(kind: str, name: str) -> Iterator[Named]:
    text = f"{kind} {name}"
    if name.count("/") == _PARTS - 1:
        msg = f"{text}: after a TYPE expected NAME or NAMESPACE/NAME, as in replicaset shop/web"
        raise Misconfigured(msg)
    for one in reference(name):
        if one.kind is None:
            yield replace(one, text=text, kind=kind)


def _singular(plural: str) -> Iterator[str]:
    yield from (plural.removesuffix("s"), plural.removesuffix("es"))
    if plural.endswith("ies"):
        yield plural.removesuffix("ies") + "y"


_BUILT_IN: Final = frozenset(
    spelling
    for group, resource in _SHORT
    for spelling in spellings(GroupVersionResource(group, "v1", resource))
)
_CLUSTER_SCOPED: Final = frozenset((group, kind.lower()) for group, kind in CLUSTER_SCOPED)
