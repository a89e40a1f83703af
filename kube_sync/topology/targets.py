"""Resolves a policy's target references: to existing targets, missing ones, and forbidden ones.

Invariant: a reference into another namespace is allowed only if the kind of policies allows it, or
a ReferenceGrant there does (Gateway API, ReferenceGrant: the referent's owner agrees). A
cluster-scoped object, such as a GatewayClass, is no target for policies of a namespace, unless the
kind of policies allows it; a Namespace is, for policies inside it. Cluster-scoped policies may
target anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kube_sync.topology.links import View, is_granted
from kube_sync.topology.nodes import NAMESPACE, GroupKind, Kind, Locator, Role
from kube_sync.topology.policies import Policy, PolicyKind, TargetRef


@dataclass(frozen=True, slots=True)
class ResolvedTargets:
    """The targets of a policy, without duplicates."""

    targets: tuple[Locator, ...] = ()
    missing: tuple[Locator, ...] = ()
    refused: tuple[Locator, ...] = ()  # in a namespace without a grant
    above: tuple[Locator, ...] = ()  # cluster-scoped, of a namespaced policy


def resolve_targets(
    kind: PolicyKind, policy: Policy, kinds: Mapping[GroupKind, Kind], view: View
) -> ResolvedTargets:
    """Resolve the references of a policy."""
    found: dict[str, dict[Locator, None]] = {one.name: {} for one in fields(ResolvedTargets)}
    for ref in policy.refs:
        where = ref.resolve(kinds, policy.node.namespace)
        node = view.get(where)
        if _is_forbidden_scope(kind, policy, ref, kinds):
            found["above"][where] = None
        elif not _is_permitted(kind, policy, ref, kinds, view):
            found["refused"][where] = None
        elif node is None or node.role is not Role.TARGETABLE:
            found["missing"][where] = None
        else:
            found["targets"][where] = None
    return ResolvedTargets(**{name: tuple(sorted(locators)) for name, locators in found.items()})


def _is_forbidden_scope(
    kind: PolicyKind, policy: Policy, ref: TargetRef, kinds: Mapping[GroupKind, Kind]
) -> bool:
    known = kinds.get(ref.kind)
    if known is None or known.namespaced or ref.kind == NAMESPACE or not policy.node.namespace:
        return False
    return not kind.cluster_scoped_targets and kind.across != "free"


def _is_permitted(
    kind: PolicyKind, policy: Policy, ref: TargetRef, kinds: Mapping[GroupKind, Kind], view: View
) -> bool:
    own, known = policy.node.namespace, kinds.get(ref.kind)
    if known is not None and not known.namespaced:
        other = ref.name if ref.kind == NAMESPACE else ""
    else:
        other = ref.namespace
    if kind.across == "free" or not own or other in ("", own):
        return True
    return kind.across == "granted" and is_granted(
        view, (kind.id, own), (ref.kind, other, ref.name)
    )
