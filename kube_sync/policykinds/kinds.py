"""Our policy kinds, whose status we write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kube_sync.objects import GroupVersionResource

GROUP: Final = "policy.kube-sync.io"
_VERSION: Final = "v1alpha1"


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """One kind; `system` is its name in the configuration and in `data.kube_sync`."""

    system: str
    kind: str
    gvr: GroupVersionResource
    together: bool = False  # the report on one depends on the others of its namespace

    @property
    def report(self) -> str:
        """The path in OPA of the report on one policy."""
        return f"kube_sync/{self.system}/validation/report"

    @property
    def rule(self) -> str:
        """The same as a reference in Rego."""
        return f"data.{self.report.replace('/', '.')}"

    @property
    def manager(self) -> str:
        """The field manager of its status."""
        return f"kube-sync-{self.system}"


SCHEDULING: Final = PolicyKind(
    "scheduling", "SchedulingPolicy", GroupVersionResource(GROUP, _VERSION, "schedulingpolicies")
)
METADATA: Final = PolicyKind(
    "metadata",
    "MetadataPolicy",
    GroupVersionResource(GROUP, _VERSION, "metadatapolicies"),
    together=True,
)
