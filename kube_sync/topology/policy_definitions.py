"""Reads the declaration of a kind of policies from its CustomResourceDefinition.

Invariant: the label of GEP-713 declares a kind of policies; files and the API server are read the
same. A definition takes precedence over the shipped table of released kinds (`hints.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kube_sync.topology.hints import (
    ANNOTATIONS,
    COLOR_POLICY,
    LABEL,
    NAMED,
    Hints,
    policy_kind_of,
    shipped,
)
from kube_sync.topology.nodes import Body, GroupKind, Kind, kind_of
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.raw_json import Malformed, items, mapping, text

_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
_RULES = "rules"
_BLOCKS = ("defaults", "overrides")
_ANYTHING = "x-kubernetes-preserve-unknown-fields"


def declares_policies(body: Body) -> bool:
    """Return whether an object is the definition of a kind of policies. Raises Malformed."""
    return kind_of(body) == _CRD and LABEL in mapping(body, "metadata", "labels")


def declared(body: Body, kinds: Iterable[Kind]) -> PolicyKind:
    """Return the kind of policies that a definition declares. Raises Malformed.

    `kinds` are those that it may take effect at.
    """
    id_ = GroupKind(text(body, "spec", "group"), text(body, "spec", "names", "kind"))
    hints = _own_hints(body)
    kind = policy_kind(id_, kinds, hints)
    if NAMED in hints:
        _check_paths(kind.rules, list(_specs(body)))
    elif NAMED not in shipped(id_) and id_ != COLOR_POLICY.id:
        kind = replace(kind, rules=rules_of(body) or ())
    return kind


def policy_kind(id_: GroupKind, kinds: Iterable[Kind], hints: Hints | None = None) -> PolicyKind:
    """Return a kind of policies from its shipped hints and its own ones. Raises Malformed."""
    return policy_kind_of(id_, {**shipped(id_), **(hints or {})}, kinds)


def is_cluster_scoped(body: Body) -> bool:
    """Return whether the objects of a definition are cluster-scoped. Raises Malformed."""
    return text(body, "spec", "scope") == "Cluster"


def has_known_rules(body: Body) -> bool:
    """Return whether the paths of a kind's named rules are known. Raises Malformed."""
    id_ = GroupKind(text(body, "spec", "group"), text(body, "spec", "names", "kind"))
    return NAMED in {**shipped(id_), **_own_hints(body)} or rules_of(body) is not None


def rules_of(body: Body) -> tuple[str, ...] | None:
    """Return the path of the map of named rules in the schema, () for none, None if unknown.

    Raises Malformed.
    """
    specs = [properties for spec in _specs(body) if (properties := _properties(spec))]
    if not specs:
        return None
    return (_RULES,) if any(_has_rules(spec) for spec in specs) else ()


def _own_hints(body: Body) -> dict[str, str]:
    """Return the label and annotations of a definition."""
    names = mapping(body, "metadata", "annotations").keys()
    annotations = {name: text(body, "metadata", "annotations", name) for name in ANNOTATIONS}
    label = mapping(body, "metadata", "labels").get(LABEL)
    found = {name: value for name, value in annotations.items() if name in names}
    return found | ({LABEL: label} if isinstance(label, str) and label else {})


def _specs(body: Body) -> Iterable[Body]:
    for version in items(body, "spec", "versions"):
        yield mapping(version, "schema", "openAPIV3Schema", "properties", "spec")


def _has_rules(spec: Body) -> bool:
    blocks = [spec, *(_properties(mapping(spec, name)) for name in _BLOCKS)]
    return any(text(block, _RULES, "type") == "object" for block in blocks)


def _check_paths(paths: Iterable[str], specs: Iterable[Body]) -> None:
    """Refuse a path that no policy of the kind can have. Raises Malformed."""
    blocks = [block for spec in specs for block in (spec, *_inner_blocks(spec)) if block]
    for path in paths:
        if blocks and not any(_allows_field(block, path.split(".")) for block in blocks):
            msg = f"metadata.annotations: {NAMED}: the schema has no spec.{path}"
            raise Malformed(msg)


def _inner_blocks(spec: Body) -> Iterable[Body]:
    return (mapping(_properties(spec), name) for name in _BLOCKS)


def _allows_field(schema: Body, path: Iterable[str]) -> bool:
    """Return whether a schema has a field, or allows unknown ones."""
    for name in path:
        if not (properties := _properties(schema)):
            return bool(schema.get(_ANYTHING))
        if name not in properties:
            return False
        schema = mapping(properties, name)
    return True


def _properties(schema: Body) -> Mapping[str, object]:
    return mapping(schema, "properties")
