"""Determines the kinds of policies in manifests, since no library knows them all.

Invariant: ColorPolicy is known, a CustomResourceDefinition with the label of GEP-713 declares
its kind, and a kind named policy with a target counts as one. Defaults of a kind are
those of GEP-713: inherited, in effect at the rules of routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kube_sync.errors import Terminal
from kube_sync.kube.manifests import Document
from kube_sync.topology import GroupKind, Kind, PolicyKind
from kube_sync.topology import policy_definitions as declaring
from kube_sync.topology.hints import COLOR_POLICY, shipped_kinds
from kube_sync.topology.nodes import kind_of
from kube_sync.topology.raw_json import Malformed

_TARGETS = ("targetRef", "targetRefs")
_BLOCKS = ("defaults", "overrides")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class PolicyKinds:
    """The kinds of policies; ColorPolicy is always one."""

    kinds: tuple[PolicyKind, ...]
    mentioned: frozenset[GroupKind]  # declared or used
    cluster_scoped: frozenset[GroupKind]


def policy_kinds(
    manifests: Sequence[Document], kinds: Iterable[Kind], *, plain: bool = False
) -> PolicyKinds:
    """Return the kinds of policies that manifests declare or use. Raises Terminal."""
    found: dict[GroupKind, PolicyKind] = {}
    without_rules, cluster_scoped, targetables = set(), set(), tuple(kinds)
    known_kinds = shipped_kinds()
    for manifest in manifests:
        if declares_policies(manifest):
            kind = _read(manifest, lambda body: declaring.declared(body, targetables))
            found[kind.id] = kind
            if not _read(manifest, declaring.has_known_rules):
                without_rules.add(kind.id)
            if _read(manifest, declaring.is_cluster_scoped):
                cluster_scoped.add(kind.id)
    for id_ in sorted(set(_used(manifests)) - found.keys()):
        found[id_] = declaring.policy_kind(id_, targetables)
        if id_ not in known_kinds:
            without_rules.add(id_)
    mentioned = frozenset(found)
    found.setdefault(COLOR_POLICY.id, COLOR_POLICY)
    across = "free" if plain else COLOR_POLICY.across
    known = (
        replace(
            kind,
            rules=_rules(id_, manifests) if id_ in without_rules else kind.rules,
            across=across,
        )
        for id_, kind in found.items()
    )
    return PolicyKinds(tuple(known), mentioned, frozenset(cluster_scoped))


def declares_policies(manifest: Document) -> bool:
    """Return whether an object is the definition of a kind of policies. Raises Terminal."""
    return _read(manifest, declaring.declares_policies)


def _used(manifests: Sequence[Document]) -> Iterator[GroupKind]:
    for manifest in manifests:
        kind, spec = kind_of(manifest.object), manifest.object.get("spec")
        named = kind.kind.endswith("Policy") or kind in shipped_kinds()
        if named and isinstance(spec, dict) and any(name in spec for name in _TARGETS):
            yield kind


def _rules(id_: GroupKind, manifests: Sequence[Document]) -> tuple[str, ...]:
    """Return the map of named rules, or none if no policy of the kind has one."""
    if id_ == COLOR_POLICY.id:
        return COLOR_POLICY.rules
    specs = [m.object.get("spec") for m in manifests if kind_of(m.object) == id_]
    blocks: list[Any] = [spec for spec in specs if isinstance(spec, dict)]
    blocks += [spec[name] for spec in blocks for name in _BLOCKS if name in spec]
    named = any(isinstance(b, dict) and isinstance(b.get("rules"), dict) for b in blocks)
    return ("rules",) if named else ()


def _read(manifest: Document, read: Callable[[Any], _Value]) -> _Value:
    try:
        return read(manifest.object)
    except Malformed as error:
        msg = f"{manifest.where}: {error}"
        raise Terminal(msg) from error
