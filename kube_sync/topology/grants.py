"""ReferenceGrants: who may refer from one namespace into another.

Keeps true: no grant, no reference; a grant counts in the namespace that it lies in, for the kinds
and namespaces that it names, and a `to` without a name is for all of the kind (Gateway API,
ReferenceGrant).
"""

from __future__ import annotations

from kube_sync.topology.identity import GroupKind
from kube_sync.topology.links import View
from kube_sync.topology.nodes import Body, Kind, Node, Role
from kube_sync.topology.shapes import Malformed, items, text

REFERENCE_GRANT = Kind(GroupKind("gateway.networking.k8s.io", "ReferenceGrant"), Role.OBJECT)


def granted(view: View, by: tuple[GroupKind, str], of: tuple[GroupKind, str, str]) -> bool:
    """Tell whether a kind in a namespace may refer to an object: kind, namespace and name."""
    kind, namespace, name = of
    grants = view.all(REFERENCE_GRANT.id, namespace)
    return any(_allows(grant, by, (kind, name)) for grant in grants)


def _allows(grant: Node, by: tuple[GroupKind, str], of: tuple[GroupKind, str]) -> bool:
    try:
        return any(_is_from(entry, by) for entry in items(grant.body, "spec", "from")) and any(
            _is_to(entry, of) for entry in items(grant.body, "spec", "to")
        )
    except Malformed:
        return False


def _is_from(entry: Body, by: tuple[GroupKind, str]) -> bool:
    return (GroupKind(text(entry, "group"), text(entry, "kind")), text(entry, "namespace")) == by


def _is_to(entry: Body, of: tuple[GroupKind, str]) -> bool:
    named = text(entry, "name")
    return GroupKind(text(entry, "group"), text(entry, "kind")) == of[0] and named in ("", of[1])
