"""The kinds that decisions on scheduling read, and where they lie in the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kube_sync.objects import GroupVersionResource
from kube_sync.policykinds.kinds import SCHEDULING

KIND: Final = SCHEDULING.kind
SCHEDULING_POLICIES: Final = SCHEDULING.gvr
_RBAC: Final = "rbac.authorization.k8s.io"

# Each lies below the name of its collection in OPA, too.
COLLECTIONS: Final[Mapping[str, GroupVersionResource]] = MappingProxyType(
    {
        KIND: SCHEDULING_POLICIES,
        "Role": GroupVersionResource(_RBAC, "v1", "roles"),
        "RoleBinding": GroupVersionResource(_RBAC, "v1", "rolebindings"),
        "ClusterRole": GroupVersionResource(_RBAC, "v1", "clusterroles"),
        "ClusterRoleBinding": GroupVersionResource(_RBAC, "v1", "clusterrolebindings"),
    }
)
