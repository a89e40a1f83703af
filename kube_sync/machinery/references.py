"""References of the Gateway API (ParentReference) to what conditions are about.

Keeps true: group and kind are always said, as the API server would put in those of a Gateway. What
a policy names may be no reference that a status can have: a policy's own definition decides on what
it may name, and one entry that is refused is a whole status that is refused.
"""

from __future__ import annotations

import re
from typing import Final

from kube_sync.kube.conditions import Json
from kube_sync.topology import GroupKind, Kind, Locator, Topology
from kube_sync.topology.policies import TargetRef

# Patterns and lengths of ParentReference (Gateway API, shared_types.go).
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SHAPES: Final = {
    "group": (re.compile(rf"|{_LABEL}(\.{_LABEL})*"), 253),
    "kind": (re.compile(r"[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?"), 63),
    "namespace": (re.compile(_LABEL), 63),
    "name": (re.compile(r".+", re.DOTALL), 253),
    "sectionName": (re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253),
}


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


def can_be_said(reference: Json) -> bool:
    """Tell whether a status may have such a reference."""
    return all(
        len(reference[field]) <= length and pattern.fullmatch(reference[field])
        for field, (pattern, length) in _SHAPES.items()
        if field in reference
    )


def _reference(kind: GroupKind, namespace: str, name: str, section: str) -> Json:
    said = {"group": kind.group, "kind": kind.kind, "namespace": namespace, "name": name}
    said["sectionName"] = section
    optional = ("namespace", "sectionName")
    return {field: value for field, value in said.items() if value or field not in optional}
