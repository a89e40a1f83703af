"""References of the Gateway API (ParentReference) to what conditions are about.

Keeps true: group and kind are always said, as the API server would put in those of a Gateway.
"""

from __future__ import annotations

from kube_sync.machinery.conditions import Json
from kube_sync.topology import GroupKind, Kind, Locator, Topology
from kube_sync.topology.policies import TargetRef


def to_node(topology: Topology, locator: Locator) -> Json:
    """Return a reference to an object, or to a section of one."""
    node = topology[locator]
    owner = topology[node.owner] if node.owner else node
    section = locator.partition("#")[2] if node.owner else ""
    return _reference(owner.kind, owner.namespace, owner.name, section)


def to_target(ref: TargetRef, known: Kind | None, namespace: str) -> Json:
    """Return a reference to what a policy in a namespace names, whether or not it is there."""
    inside = "" if known is not None and not known.namespaced else ref.namespace or namespace
    return _reference(ref.kind, inside, ref.name, ref.section)


def _reference(kind: GroupKind, namespace: str, name: str, section: str) -> Json:
    said = {"group": kind.group, "kind": kind.kind, "namespace": namespace, "name": name}
    said["sectionName"] = section
    optional = ("namespace", "sectionName")
    return {field: value for field, value in said.items() if value or field not in optional}
