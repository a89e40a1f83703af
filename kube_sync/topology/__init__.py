"""Policy topology: the graph of what policies attach to, and effective policies on its paths.

Pure: objects come in as JSON, in any order; nodes, edges, paths, effective policies and conditions
go out. `Topology.of(objects, kinds, links, policies)` builds one, `update` applies changes.
"""

from __future__ import annotations

from kube_sync.topology.conditions import Condition
from kube_sync.topology.effective import EffectivePolicy
from kube_sync.topology.graph import Graph
from kube_sync.topology.links import Link, View
from kube_sync.topology.merging import STRATEGIES, Mode, Rules
from kube_sync.topology.nodes import (
    NAMESPACE,
    GroupKind,
    Kind,
    Locator,
    Node,
    Role,
    Sections,
    locator,
)
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.policy_statuses import Conflict
from kube_sync.topology.topology import Topology

__all__ = [
    "NAMESPACE",
    "STRATEGIES",
    "Condition",
    "Conflict",
    "EffectivePolicy",
    "Graph",
    "GroupKind",
    "Kind",
    "Link",
    "Locator",
    "Mode",
    "Node",
    "PolicyKind",
    "Role",
    "Rules",
    "Sections",
    "Topology",
    "View",
    "locator",
]
