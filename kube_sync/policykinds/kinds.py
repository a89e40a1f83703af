"""The policy kinds whose status is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kube_sync.objects import GroupVersionResource

GROUP: Final = "policy.kube-sync.io"
_VERSION: Final = "v1alpha1"


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """One kind; `system` is what it is called in the configuration and in `data.kube_sync`."""

    system: str
    kind: str
    gvr: GroupVersionResource
    together: bool = False  # what is said of one depends on the others of its namespace

    @property
    def report(self) -> str:
        """The path in OPA of what there is to say about one policy."""
        return f"kube_sync/{self.system}/validation/report"

    @property
    def rule(self) -> str:
        """The same as Rego names it."""
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
