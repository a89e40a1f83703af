"""Requests that the webhook must never block: those needed to repair a policy, or the webhook.

Rules of a webhook cannot exclude resources, and an administrator may have written `*` for them: so
conditions in CEL (admissionregistration/v1, matchConditions) exclude Leases and Events and, if
labels make ConfigMaps policy, those with such a label, before or after the request. An expression
that fails would deny the request: each of these reads an object only if it is known to have the
field.
"""

from __future__ import annotations

import msgspec

from kube_sync.config import Labelled, Settings, System, exempt_namespaces
from kube_sync.objects import GroupVersionResource

LEASES_AND_EVENTS = "kube-sync.io/not-leases-events"
MIRRORS = "kube-sync.io/not-mirror-pods"
SAME_SPEC = "kube-sync.io/not-same-spec"
QUESTIONS = "kube-sync.io/not-questions"
BEING_DELETED = "kube-sync.io/not-being-deleted"
SAME_METADATA = "kube-sync.io/not-same-metadata"
OWN_POLICIES = "kube-sync.io/not-own-policies"
LABELLED = "kube-sync.io/not-labelled-policies"
_NOT_LEASES_NOR_EVENTS = (
    "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"
    " && !(request.resource.group in ['', 'events.k8s.io']"
    " && request.resource.resource == 'events')"
)
# A kubelet's report of a pod that already runs, from a file on its node; only a node may create one
# (NodeRestriction), and a denial hides the pod.
_NOT_MIRRORS = (
    "!(request.resource.group == '' && request.resource.resource == 'pods'"
    " && has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups"
    " && object != null && has(object.metadata.annotations)"
    " && 'kubernetes.io/config.mirror' in object.metadata.annotations)"
)
# Requests that are never stored; a binding is the scheduler's.
_NOT_QUESTIONS = (
    "!(request.resource.group in ['authorization.k8s.io', 'authentication.k8s.io']"
    " || (request.resource.group == '' && request.resource.resource == 'bindings'))"
)


def _same(field: str) -> str:
    """Return the CEL condition that a field, which may be absent, is unchanged."""
    new, old = (f"(has({o}.{field}) ? {o}.{field} : null)" for o in ("object", "oldObject"))
    return f"{new} == {old}"


_SAME_LABELS_AND_ANNOTATIONS = f"{_same('metadata.labels')} && {_same('metadata.annotations')}"
# The removal of a finalizer is never blocked. By the stored object, since the author of the new one
# may claim to be deleted; and only if nothing that policies decide on changes with it.
_NOT_BEING_DELETED = (
    "!(request.operation == 'UPDATE' && oldObject != null && object != null"
    " && has(oldObject.metadata.deletionTimestamp)"
    f" && {_same('spec')} && {_SAME_LABELS_AND_ANNOTATIONS})"
)
# Most kinds let a write of the status change labels and annotations. Controllers do not, and their
# writes are not sent. `subResource` is absent for the main resource.
_NOT_SAME_METADATA = (
    "!(has(request.subResource) && request.subResource == 'status'"
    f" && oldObject != null && object != null && {_SAME_LABELS_AND_ANNOTATIONS})"
)
# Labels, finalizers: nothing about where a pod runs. A finalizer that could not be removed while
# the engine is down would keep its pod for ever. Of a DaemonSet, the template is compared.
_NOT_SAME_SPEC = (
    "!(request.resource.group == '' && request.resource.resource == 'pods'"
    " && request.operation == 'UPDATE' && object.spec == oldObject.spec)"
    " && !(request.resource.group == 'apps' && request.resource.resource == 'daemonsets'"
    " && request.operation == 'UPDATE' && object.spec.template == oldObject.spec.template)"
)


def left_out_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces that are excluded from placement decisions.

    Namespaces of labelled policies are not among them: they may contain workloads too.
    """
    names = ("kube-system", settings.coordination.namespace, *settings.policies.namespaces)
    return tuple(dict.fromkeys(names))


def left_out_conditions(settings: Settings) -> dict[str, str | None]:
    """Return our conditions by name; None is for one that should not be there."""
    labelled = settings.policies.labelled
    return {
        LEASES_AND_EVENTS: _NOT_LEASES_NOR_EVENTS,
        BEING_DELETED: _NOT_BEING_DELETED,
        SAME_METADATA: _NOT_SAME_METADATA,
        LABELLED: _not_labelled(labelled) if labelled.namespaces else None,
    }


def left_out_of_systems(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces that are excluded from built-in systems."""
    return exempt_namespaces(settings)


def conditions_of(system: System, *, changing: bool) -> dict[str, str | None]:
    """Return a built-in system's conditions by name, for the mutating webhook (`changing`) or not.

    Systems that decide on every kind of object exclude what would lock their administrator out.
    """
    found: dict[str, str | None] = {
        LEASES_AND_EVENTS: _NOT_LEASES_NOR_EVENTS,
        MIRRORS: _NOT_MIRRORS,
    }
    if system.by_spec:
        found[SAME_SPEC] = _NOT_SAME_SPEC
    if system.by_namespace:
        found |= {
            QUESTIONS: _NOT_QUESTIONS,
            BEING_DELETED: _NOT_BEING_DELETED,
            SAME_METADATA: _NOT_SAME_METADATA,
        }
    if system.by_namespace and changing:
        found[OWN_POLICIES] = _not_these(system.policies)
    return found


def _not_these(gvr: GroupVersionResource) -> str:
    return (
        f"!(request.resource.group == '{gvr.group}'"
        f" && request.resource.resource == '{gvr.resource}')"
    )


def _not_labelled(labelled: Labelled) -> str:
    """Return the condition that an object is no ConfigMap with policy, or with its data."""
    labels = (label.partition("=") for label in (labelled.policy, labelled.data))
    carried = " || ".join(
        f"({_text(name)} in o.metadata.labels"
        f" && o.metadata.labels[{_text(name)}] == {_text(value)})"
        for name, _, value in labels
    )
    if "*" in labelled.namespaces:
        where = ""
    else:
        where = f" && request.namespace in [{', '.join(map(_text, labelled.namespaces))}]"
    return (
        "!(request.resource.group == '' && request.resource.resource == 'configmaps'"
        f"{where} && [object, oldObject].exists(o, o != null && has(o.metadata.labels)"
        f" && ({carried})))"
    )


def _text(value: str) -> str:
    """Return a string literal of CEL, which accepts JSON's escapes."""
    return msgspec.json.encode(value).decode()
