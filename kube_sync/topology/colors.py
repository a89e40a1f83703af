"""ColorPolicy, the worked example: a kind of policies that only says which colour things have.

It may target anything from a Gateway or its own Namespace to the rule of a route, and takes effect
at rules. The CustomResourceDefinition is manifests/examples/colorpolicy/colorpolicies.yaml.
"""

from __future__ import annotations

from kube_sync.topology.gateway.kinds import GATEWAY, GATEWAY_CLASS, RULES
from kube_sync.topology.identity import GroupKind
from kube_sync.topology.policies import PolicyKind

COLOR_POLICY = PolicyKind(
    GroupKind("examples.kube-sync.io", "ColorPolicy"),
    level=frozenset(RULES),
    origins=frozenset({GATEWAY_CLASS, GATEWAY}),
)
