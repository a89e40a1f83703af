"""The configuration of the rules of built-in policy systems.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from typing import Literal

from kube_sync.config.kinds import Count, Section

SystemName = Literal["scheduling", "metadata"]


class Toleration(Section, frozen=True):
    """A toleration of a pod, as in core/v1."""

    key: str = ""
    """Key of the taint; empty: every key."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """How the taint's value is compared."""
    value: str = ""
    """Value of the taint, where the operator is Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; null: every effect."""


# What these plugins of kube-apiserver 1.36 write (plugin/pkg/admission).
_OF_PLUGINS = (
    Toleration("nvidia.com/gpu", effect="NoSchedule"),  # ExtendedResourceToleration
    # PodTolerationRestriction
    Toleration("node.kubernetes.io/memory-pressure", effect="NoSchedule"),
)


class Scheduling(Section, frozen=True):
    """How SchedulingPolicies are judged by, as `data.kube_sync.config.scheduling`."""

    merge_option: Literal[1, 2, 3, 4] = 1
    """How several policies that may be used come together: 1 deep merge, 2 the first one alone,
    3 merge of fields, 4 what all of them allow."""
    user_may_use: bool = False
    """Counts what the requesting user may use beside what the pod's service account may."""
    # There, a pod that asks for it looks like one that names none.
    default_scheduler_is_unspecified: bool = False
    """Takes `default-scheduler`, which the API server fills in, for no scheduler named even where
    the policy with the default allows that name."""
    strict_affinity: bool = False
    """Accepted until the next release and without effect: what a policy requires is wanted in every
    node selector term of a pod."""
    trust_daemonset_controller: bool = True
    """Lets the DaemonSet controller tie its own pods to nodes, and add tolerations to them, without
    a permission; their DaemonSet is judged all the same."""
    injected_toleration_seconds: Count = 300
    """Seconds in the tolerations that the API server adds to every pod, which need no
    permission."""
    global_default_priority_class: str = ""
    """PriorityClass that the API server fills in, which counts as none asked for, beside those that
    the cluster has as its global default; empty: none."""
    plugin_tolerations: tuple[Toleration, ...] = _OF_PLUGINS
    """Tolerations that plugins of the API server add to pods, which need no permission; that of an
    extended resource only in a pod that requests the resource."""


class Metadata(Section, frozen=True):
    """How MetadataPolicies are judged by, as `data.kube_sync.config.metadata`."""

    qos: bool = True
    """Annotates pods with their quality of service, in every namespace."""
