"""Reads SchedulingPolicies, roles and bindings from files or a cluster, in the shape of OPA's data.

Invariant: it only reads a cluster, and namespaced roles and bindings only of the given namespaces.
A role that grants the use of SchedulingPolicies in another API group (the design document has
`extensions`) is valid, but has no effect: it gets a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kube_sync.kube.client import KubeClient
from kube_sync.kube.manifests import Document
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policykinds.kinds import SCHEDULING
from kube_sync.policykinds.policyfiles import Expected, listed, read_policies
from kube_sync.policykinds.reports import Report

KIND: Final = SCHEDULING.kind
SCHEDULING_POLICIES: Final = SCHEDULING.gvr
_RBAC: Final = "rbac.authorization.k8s.io"

# Each is in OPA below the name of its collection, too.
COLLECTIONS: Final[Mapping[str, GroupVersionResource]] = MappingProxyType(
    {
        KIND: SCHEDULING_POLICIES,
        "Role": GroupVersionResource(_RBAC, "v1", "roles"),
        "RoleBinding": GroupVersionResource(_RBAC, "v1", "rolebindings"),
        "ClusterRole": GroupVersionResource(_RBAC, "v1", "clusterroles"),
        "ClusterRoleBinding": GroupVersionResource(_RBAC, "v1", "clusterrolebindings"),
    }
)


_IN_NAMESPACES: Final = frozenset({"Role", "RoleBinding"})
_SECTIONS: Final = frozenset({"required", "allowed", "default", "allowedAffinities"})

Json = dict[str, Any]


def _is_spec(spec: object) -> bool:
    return isinstance(spec, dict) and not _SECTIONS.isdisjoint(spec)


EXPECTED: Final = Expected(SCHEDULING, COLLECTIONS, _is_spec)


class Evidence:
    """Objects by collection, as below `data.kubernetes`."""

    def __init__(self) -> None:
        self.data: dict[str, Json] = {gvr.resource: {} for gvr in COLLECTIONS.values()}

    def add(self, kind: str, key: ObjectKey, value: Json) -> None:
        """Add one object; one of the same name is replaced, as by an apply."""
        inside = self.data[COLLECTIONS[kind].resource]
        if key.namespace:
            inside = inside.setdefault(key.namespace, {})
        inside[key.name] = value

    @property
    def policies(self) -> Json:
        """The SchedulingPolicies by name."""
        return self.data[SCHEDULING_POLICIES.resource]


def of_files(paths: Sequence[str], *, ignore_others: bool = False) -> Evidence:
    """Return all objects in these files. Raises Misconfigured."""
    found = Evidence()
    for document in read_policies(paths, EXPECTED, ignore_others=ignore_others):
        found.add(document.kind, _key(document), document.object)
    return found


async def of_cluster(client: KubeClient, namespaces: Iterable[str]) -> Evidence:
    """Return the objects of a cluster, namespaced ones of these namespaces. Raises SyncError."""
    found = Evidence()
    wanted = list(namespaces)
    for kind, gvr in COLLECTIONS.items():
        for namespace in wanted if kind in _IN_NAMESPACES else (None,):
            for key, value in await listed(client, gvr, namespace):
                found.add(kind, key, value)
    return found


def _key(document: Document) -> ObjectKey:
    if document.kind not in _IN_NAMESPACES:
        return ObjectKey("", document.name())
    # Where `kubectl apply` would put it.
    return ObjectKey(document.namespace(None), document.name())


_GROUPS: Final = frozenset({SCHEDULING.gvr.group, "*"})


def rights_of_other_groups(data: Mapping[str, Mapping[str, Any]]) -> dict[str, Report]:
    """Return a finding for each such role, by its kind and name; `data` is by collection."""
    found: dict[str, Report] = {}
    for name, role in _roles(data):
        if findings := tuple(_findings(role)):
            found[name] = Report((), findings)
    return found


def _roles(data: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, role in data.get("clusterroles", {}).items():
        yield f"ClusterRole {name}", role
    for namespace, roles in data.get("roles", {}).items():
        for name, role in roles.items():
            yield f"Role {namespace}/{name}", role


def _findings(role: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    rules = role.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        groups = _texts(rule, "apiGroups")
        if (
            groups
            and _GROUPS.isdisjoint(groups)
            and SCHEDULING.gvr.resource in _texts(rule, "resources")
            and "use" in _texts(rule, "verbs")
        ):
            yield (
                f"rules[{index}]: grants the use of {SCHEDULING.gvr.resource} of the API group"
                f" {', '.join(groups)}, not of {SCHEDULING.gvr.group}"
            )


def _texts(rule: Any, field: str) -> list[str]:  # noqa: ANN401 - any JSON
    found = rule.get(field) if isinstance(rule, dict) else None
    return [str(one) for one in found] if isinstance(found, list) else []
