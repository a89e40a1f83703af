"""What a CustomResourceDefinition declares of a kind of policies.

Keeps true: the label of GEP-713 makes a kind one of policies; what a definition does not say is as
GEP-713 has it: inherited, in effect at the rules of routes. It is read the same from a file and
from an API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kube_sync.topology.colors import COLOR_POLICY
from kube_sync.topology.conditions import EFFECTS, Effect
from kube_sync.topology.gateway.kinds import (
    GATEWAY,
    GATEWAY_CLASS,
    LISTENER,
    LISTENER_SET,
    ROUTES,
    RULES,
)
from kube_sync.topology.identity import GroupKind
from kube_sync.topology.nodes import Body, Kind, kind_of
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.shapes import Malformed, items, mapping, text

LABEL = "gateway.networking.k8s.io/policy"
LEVEL = "kube-sync.io/takes-effect-at"  # annotation: kinds, separated by commas
EFFECT = "kube-sync.io/effect-condition"  # annotation: Programmed or Enforced
WIDE = "kube-sync.io/targets-cluster-scoped"  # annotation: "true" or "false"
_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
_DIRECT = "Direct"
_BELOW_GATEWAYS = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER_SET, LISTENER, *ROUTES, *RULES})
_NAMED = "rules"
_BLOCKS = ("defaults", "overrides")


def declares_policies(body: Body) -> bool:
    """Tell whether an object is the definition of a kind of policies. Raises Malformed."""
    return kind_of(body) == _CRD and LABEL in mapping(body, "metadata", "labels")


def declared(body: Body, kinds: Iterable[Kind]) -> PolicyKind:
    """Return the kind of policies that a definition declares. Raises Malformed.

    `kinds` are those that it may take effect at.
    """
    id_ = GroupKind(text(body, "spec", "group"), text(body, "spec", "names", "kind"))
    kind = policy_kind(id_, direct=mapping(body, "metadata", "labels").get(LABEL) == _DIRECT)
    if id_ != COLOR_POLICY.id:
        kind = replace(kind, rules=rules_of(body) or "")
    kind = replace(kind, effect=_effect(body), cluster_scoped_targets=_targets_wide(body))
    said = text(body, "metadata", "annotations", LEVEL)
    if not said:
        return kind
    level = frozenset(_level(said, {id_.kind: id_ for kind in kinds for id_ in _nodes_of(kind)}))
    # What lies below gateways takes effect on the paths through these, other things by themselves.
    origins = kind.origins if level <= _BELOW_GATEWAYS else frozenset[GroupKind]()
    return replace(kind, level=level, origins=origins)


def policy_kind(id_: GroupKind, *, direct: bool) -> PolicyKind:
    """Return what a kind of policies is when nothing else is said of it."""
    return PolicyKind(id_, merges=False) if direct else replace(COLOR_POLICY, id=id_)


def is_cluster_scoped(body: Body) -> bool:
    """Tell whether the objects of a definition lie in no namespace. Raises Malformed."""
    return text(body, "spec", "scope") == "Cluster"


def rules_of(body: Body) -> str | None:
    """Return the field of named rules as the schema has it, "" for none, None if it is silent.

    Raises Malformed.
    """
    specs = [
        spec
        for version in items(body, "spec", "versions")
        if (spec := _properties(version, "schema", "openAPIV3Schema", "properties", "spec"))
    ]
    if not specs:
        return None
    return _NAMED if any(_has_rules(spec) for spec in specs) else ""


def _has_rules(spec: Body) -> bool:
    blocks = [spec, *(_properties(spec, name) for name in _BLOCKS)]
    return any(text(block, _NAMED, "type") == "object" for block in blocks)


def _properties(body: Body, *path: str) -> Mapping[str, object]:
    return mapping(body, *path, "properties")


def _effect(body: Body) -> Effect | None:
    said = text(body, "metadata", "annotations", EFFECT)
    if said and said not in EFFECTS:
        known = " or ".join(sorted(EFFECTS))
        msg = f'metadata.annotations: {EFFECT}: "{said}" is not {known}'
        raise Malformed(msg)
    return EFFECTS.get(said)


def _targets_wide(body: Body) -> bool:
    said = text(body, "metadata", "annotations", WIDE, default="false")
    if said not in ("true", "false"):
        msg = f'metadata.annotations: {WIDE}: "{said}" is not true or false'
        raise Malformed(msg)
    return said == "true"


def _level(said: str, known: Mapping[str, GroupKind]) -> Iterator[GroupKind]:
    names = {name.strip() for name in said.split(",")}
    for name in sorted(names):
        if name not in known:
            msg = f"metadata.annotations: {LEVEL}: {name} is no targetable kind"
            raise Malformed(msg)
        yield known[name]


def _nodes_of(kind: Kind) -> Iterator[GroupKind]:
    yield kind.id
    if kind.sections is not None:
        yield kind.sections.kind
