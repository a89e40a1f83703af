"""Which kinds of policies manifests are about, since no library knows them all.

Keeps true: ColorPolicy is known, a CustomResourceDefinition with the label of GEP-713 declares
its kind, and what is called a policy and has a target counts as one. What a kind does not
declare is as GEP-713 has it: inherited, in effect at the rules of routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_sync.errors import Terminal
from kube_sync.survey.topology.manifests import Manifest
from kube_sync.topology import GroupKind, Kind, PolicyKind
from kube_sync.topology.colors import COLOR_POLICY
from kube_sync.topology.conditions import EFFECTS, Effect
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS, LISTENER, ROUTES, RULES
from kube_sync.topology.nodes import kind_of
from kube_sync.topology.shapes import Malformed, mapping, text

LABEL = "gateway.networking.k8s.io/policy"
LEVEL = "kube-sync.io/takes-effect-at"  # annotation: kinds, separated by commas
EFFECT = "kube-sync.io/effect-condition"  # annotation: Programmed or Enforced
_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
_DIRECT = (GroupKind("gateway.networking.k8s.io", "BackendTLSPolicy"),)
_BELOW_GATEWAYS = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER, *ROUTES, *RULES})
_TARGETS = ("targetRef", "targetRefs")
_BLOCKS = ("defaults", "overrides")


@dataclass(frozen=True, slots=True)
class PolicyKinds:
    """The kinds of policies; ColorPolicy is one even where nothing is said of it."""

    kinds: tuple[PolicyKind, ...]
    mentioned: frozenset[GroupKind]  # declared or used
    cluster_scoped: frozenset[GroupKind]


def policy_kinds(
    manifests: Sequence[Manifest], kinds: Iterable[Kind], *, plain: bool = False
) -> PolicyKinds:
    """Return the kinds of policies that manifests declare or use. Raises Terminal."""
    levels = {id_.kind: id_ for kind in kinds for id_ in _nodes_of(kind)}
    found: dict[GroupKind, PolicyKind] = {}
    cluster_scoped = set()
    for manifest in manifests:
        if declares_policies(manifest):
            kind = _declared(manifest, levels)
            found[kind.id] = kind
            if _said(manifest, "spec", "scope") == "Cluster":
                cluster_scoped.add(kind.id)
    for id_ in sorted(set(_used(manifests)) - found.keys()):
        found[id_] = _kind(id_, direct=id_ in _DIRECT)
    mentioned = frozenset(found)
    found.setdefault(COLOR_POLICY.id, COLOR_POLICY)
    across = "free" if plain else COLOR_POLICY.across
    known = (
        replace(kind, rules=_rules(kind.id, manifests), across=across) for kind in found.values()
    )
    return PolicyKinds(tuple(known), mentioned, frozenset(cluster_scoped))


def declares_policies(manifest: Manifest) -> bool:
    """Tell whether an object is the definition of a kind of policies. Raises Terminal."""
    return kind_of(manifest.body) == _CRD and LABEL in _labels(manifest)


def _nodes_of(kind: Kind) -> Iterator[GroupKind]:
    yield kind.id
    if kind.sections is not None:
        yield kind.sections.kind


def _declared(manifest: Manifest, levels: Mapping[str, GroupKind]) -> PolicyKind:
    id_ = GroupKind(_said(manifest, "spec", "group"), _said(manifest, "spec", "names", "kind"))
    direct = _labels(manifest)[LABEL] == "Direct"
    said = _said(manifest, "metadata", "annotations", LEVEL)
    plain = replace(_kind(id_, direct=direct), effect=_effect(manifest))
    if not said:
        return plain
    names = [name.strip() for name in said.split(",")]
    unknown = sorted(set(names) - levels.keys())
    if unknown:
        msg = f"{manifest.place}: metadata.annotations: {LEVEL}: {unknown[0]} is no targetable kind"
        raise Terminal(msg)
    level = frozenset(levels[name] for name in names)
    kind = replace(plain, level=level)
    # What lies below gateways takes effect on the paths through these, other things by themselves.
    return kind if level <= _BELOW_GATEWAYS else replace(kind, origins=frozenset())


def _effect(manifest: Manifest) -> Effect | None:
    said = _said(manifest, "metadata", "annotations", EFFECT)
    if said and said not in EFFECTS:
        known = " or ".join(sorted(EFFECTS))
        msg = f'{manifest.place}: metadata.annotations: {EFFECT}: "{said}" is not {known}'
        raise Terminal(msg)
    return EFFECTS.get(said)


def _kind(id_: GroupKind, *, direct: bool) -> PolicyKind:
    if direct:
        return PolicyKind(id_, merges=False)
    return replace(COLOR_POLICY, id=id_)


def _used(manifests: Sequence[Manifest]) -> Iterator[GroupKind]:
    for manifest in manifests:
        kind, spec = kind_of(manifest.body), manifest.body.get("spec")
        if (
            kind.kind.endswith("Policy")
            and isinstance(spec, dict)
            and any(name in spec for name in _TARGETS)
        ):
            yield kind


def _rules(id_: GroupKind, manifests: Sequence[Manifest]) -> str:
    """Return the field of named rules, or "" where no policy of the kind has one."""
    if id_ == COLOR_POLICY.id:
        return COLOR_POLICY.rules
    specs = [m.body.get("spec") for m in manifests if kind_of(m.body) == id_]
    blocks: list[Any] = [spec for spec in specs if isinstance(spec, dict)]
    blocks += [spec[name] for spec in blocks for name in _BLOCKS if name in spec]
    named = any(isinstance(b, dict) and isinstance(b.get("rules"), dict) for b in blocks)
    return "rules" if named else ""


def _labels(manifest: Manifest) -> Mapping[str, Any]:
    try:
        return mapping(manifest.body, "metadata", "labels")
    except Malformed as error:
        msg = f"{manifest.place}: {error}"
        raise Terminal(msg) from error


def _said(manifest: Manifest, *path: str) -> str:
    try:
        return text(manifest.body, *path)
    except Malformed as error:
        msg = f"{manifest.place}: {error}"
        raise Terminal(msg) from error
