"""The configuration of the rules of built-in policy systems.

The text below a field says what it does: it is what `kube-sync config --explain` prints.
"""

from __future__ import annotations

from typing import Literal

from kube_sync.settings.kinds import Count, Section

SystemName = Literal["scheduling", "metadata"]


class Scheduling(Section, frozen=True):
    """How SchedulingPolicies are judged by, as `data.kube_sync.config.scheduling`."""

    merge_option: Literal[1, 2, 3, 4] = 1
    """How several policies that may be used come together: 1 deep merge, 2 the first one alone,
    3 merge of fields, 4 what all of them allow."""
    user_may_use: bool = False
    """Counts what the requesting user may use beside what the pod's service account may."""
    # The API server has put it in before anybody asks: then a default may take its place.
    default_scheduler_is_unspecified: bool = False
    """Takes `default-scheduler`, which the API server fills in, for no scheduler named."""
    # Kubernetes takes any one term.
    strict_affinity: bool = False
    """Wants what a policy requires in every node selector term of a pod, not in just one."""
    trust_daemonset_controller: bool = True
    """Lets the DaemonSet controller add tolerations to its own pods without a permission."""
    injected_toleration_seconds: Count = 300
    """Seconds in the tolerations that the API server adds to every pod, which need no
    permission."""
    global_default_priority_class: str = ""
    """PriorityClass that the API server fills in, which counts as none asked for; empty: none."""


class Metadata(Section, frozen=True):
    """How MetadataPolicies are judged by, as `data.kube_sync.config.metadata`."""

    qos: bool = True
    """Annotates pods with their quality of service, in every namespace."""
