"""Applications of Argo CD, reduced to whose workload runs where, and whether it is healthy there.

As in github.com/argoproj/argo-cd, pkg/apis/application/v1alpha1/types.go. A destination has the
name of a cluster, which is that of its Secret in Argo CD, or the address of its API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Item
from kube_sync.objects import GroupVersionResource, ObjectKey

APPLICATIONS: Final = GroupVersionResource("argoproj.io", "v1alpha1", "applications")
APPLICATION_SETS: Final = GroupVersionResource("argoproj.io", "v1alpha1", "applicationsets")
HEALTHY: Final = "Healthy"


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Destination(msgspec.Struct):
    name: str = ""
    server: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct):
    destination: _Destination = msgspec.field(default_factory=_Destination)


class _Health(msgspec.Struct):
    status: str = ""


class _Status(msgspec.Struct):
    health: _Health = msgspec.field(default_factory=_Health)


class _Application(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_applications = msgspec.json.Decoder(_Application)


@dataclass(frozen=True, slots=True)
class Application:
    """Whose workload an Application puts into which cluster, and whether it is healthy there.

    `workloads` are the keys that the workload may have on the hub. `cluster` is a name, "" if the
    destination has none; `server` is an address without a slash at its end, or "".
    """

    workloads: frozenset[ObjectKey]
    cluster: str
    healthy: bool
    server: str = ""


def parse_application(item: Item, label: str | None) -> Application | None:
    """Parse an Application; None if it is of no workload.

    Its workload is named by the value of `label`, in the namespace of its destination or in its
    own; without a label it is the ApplicationSet that owns it.
    """
    try:
        found = _applications.decode(item.body)
    except NO_JSON:
        return None
    destination, namespace = found.spec.destination, item.key.namespace
    if label is not None:
        name = (found.metadata.labels or {}).get(label, "")
        namespaces = {namespace, destination.namespace or namespace}
        workloads = {ObjectKey(one, name) for one in namespaces if name}
    else:
        owners = found.metadata.owner_references or []
        workloads = {ObjectKey(namespace, o.name) for o in owners if o.kind == "ApplicationSet"}
    if not workloads:
        return None
    healthy, server = found.status.health.status == HEALTHY, destination.server.rstrip("/")
    return Application(frozenset(workloads), destination.name, healthy, server)
