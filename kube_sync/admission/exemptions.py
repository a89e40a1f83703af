"""What the webhook must never stand in the way of: what it takes to mend a policy, or itself.

Rules of a webhook cannot leave anything out, and an administrator may have written `*` for its
resources: so conditions in CEL (admissionregistration/v1, matchConditions) leave out Leases and
Events and, where labels make ConfigMaps policy, those that carry such a label, before or after.
An expression that fails would refuse the request: each of these reads an object only where it is
known to have what is read.
"""

from __future__ import annotations

import msgspec

from kube_sync.settings import Labelled, Settings

LEASES_AND_EVENTS = "kube-sync.io/not-leases-events"
LABELLED = "kube-sync.io/not-labelled-policies"
_NOT_LEASES_NOR_EVENTS = (
    "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"
    " && !(request.resource.group in ['', 'events.k8s.io']"
    " && request.resource.resource == 'events')"
)


def left_out_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces whose objects are never asked about.

    Namespaces of labelled policies are not among them: workloads may live there too.
    """
    names = ("kube-system", settings.coordination.namespace, *settings.policies.namespaces)
    return tuple(dict.fromkeys(names))


def left_out_conditions(settings: Settings) -> dict[str, str | None]:
    """Return our conditions by name; None is for one that should not be there."""
    labelled = settings.policies.labelled
    return {
        LEASES_AND_EVENTS: _NOT_LEASES_NOR_EVENTS,
        LABELLED: _not_labelled(labelled) if labelled.namespaces else None,
    }


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
    """Return a string as CEL writes it: JSON's escapes are among its own."""
    return msgspec.json.encode(value).decode()
