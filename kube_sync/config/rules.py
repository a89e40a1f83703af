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
    """Key of the taint; empty: all keys."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Operator that compares the value of the taint."""
    value: str = ""
    """Value of the taint, if the operator is `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; null: all effects."""


# What these plugins of kube-apiserver 1.36 write (plugin/pkg/admission).
_OF_PLUGINS = (
    Toleration("nvidia.com/gpu", effect="NoSchedule"),  # ExtendedResourceToleration
    # PodTolerationRestriction
    Toleration("node.kubernetes.io/memory-pressure", effect="NoSchedule"),
)


class Scheduling(Section, frozen=True):
    """Settings of SchedulingPolicies; the rules read them at `data.kube_sync.config.scheduling`."""

    merge_option: Literal[1, 2, 3, 4] = 1
    """How the policies that a pod may use are merged: 1 by key (deep merge), 2 only the first
    policy, 3 by whole fields, 4 only what all of them allow."""
    user_may_use: bool = False
    """Also counts the policies that the requesting user may use, in addition to those of the pod's
    service account."""
    # There, a pod that asks for it looks like one that names none.
    default_scheduler_is_unspecified: bool = False
    """Treats `default-scheduler`, which the API server writes into pods, as no scheduler, even if
    the policy with the default allows that name."""
    strict_affinity: bool = False
    """Without effect, and accepted only until the next release: what a policy requires is always
    required in every node selector term of a pod."""
    trust_daemonset_controller: bool = True
    """Allows the DaemonSet controller to bind its own pods to nodes, and to add tolerations to
    them, without a permission; the DaemonSet itself is checked in any case."""
    injected_toleration_seconds: Count = 300
    """`tolerationSeconds` of the tolerations that the API server adds to every pod; they need no
    permission."""
    global_default_priority_class: str = ""
    """PriorityClass that the API server adds to pods; it counts as not requested, as do the
    PriorityClasses that the cluster has as global default. Empty: none."""
    plugin_tolerations: tuple[Toleration, ...] = _OF_PLUGINS
    """Tolerations that plugins of the API server add to pods; they need no permission. The
    toleration of an extended resource counts only in a pod that requests the resource."""


class Metadata(Section, frozen=True):
    """Settings of MetadataPolicies; the rules read them at `data.kube_sync.config.metadata`."""

    qos: bool = True
    """Adds an annotation with the quality of service class to pods, in every namespace."""
