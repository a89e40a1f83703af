"""Hints on a kind of policies: its label and annotations, and the shipped table of released kinds.

Invariant: a hint that a definition lacks is taken from `policykinds.json`, which has hints on kinds
of other projects in the same words; without either, the default of GEP-713 applies: inherited, in
effect at the rules of routes. Our own worked example, ColorPolicy, is known here
(manifests/examples/colorpolicy/colorpolicies.yaml).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Final, TypeVar

import msgspec

from kube_sync.topology.conditions import EFFECTS
from kube_sync.topology.gateway.kinds import (
    GATEWAY,
    GATEWAY_CLASS,
    LISTENER,
    LISTENER_SET,
    ROUTES,
    RULES,
)
from kube_sync.topology.nodes import GroupKind, Kind
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.raw_json import Malformed
from kube_sync.topology.rulemaps import IDENTITIES, IDENTITY, Identity

Hints = Mapping[str, str]  # a label and annotations, by their names

LABEL: Final = "gateway.networking.k8s.io/policy"  # label: Direct or Inherited, in any case
LEVEL: Final = "kube-sync.io/takes-effect-at"  # kinds, separated by commas
EFFECT: Final = "kube-sync.io/effect-condition"  # Programmed or Enforced
WIDE: Final = "kube-sync.io/targets-cluster-scoped"  # true or false
NAMED: Final = "kube-sync.io/rules"  # paths of maps of named rules; "": each field is a rule
NO_RULES: Final = "kube-sync.io/no-rules"  # fields of the spec that are no rules
IN_EFFECT: Final = "kube-sync.io/in-effect"  # of direct ones on a path: Nearest or All
MERGE_TYPE: Final = "kube-sync.io/merge-type"  # field: JSONMerge, StrategicMerge, or neither
ANNOTATIONS: Final = (LEVEL, EFFECT, WIDE, NAMED, NO_RULES, IN_EFFECT, MERGE_TYPE, IDENTITY)

_BELOW_GATEWAYS = frozenset({GATEWAY_CLASS, GATEWAY, LISTENER_SET, LISTENER, *ROUTES, *RULES})
_BOOLEANS = {"true": True, "false": False}
_EFFECTS = dict(sorted(EFFECTS.items()))
_ALL = {"nearest": False, "all": True}
_Value = TypeVar("_Value")


def shipped(id_: GroupKind) -> Hints:
    """Return the shipped hints on a kind of another project, none if it is not in the table."""
    return _table().get(str(id_), {})


def shipped_kinds() -> frozenset[GroupKind]:
    """Return the kinds of other projects in the shipped table."""
    names = (name.partition(".") for name in _table())
    return frozenset(GroupKind(group, kind) for kind, _, group in names)


def policy_kind_of(id_: GroupKind, hints: Hints, kinds: Iterable[Kind]) -> PolicyKind:
    """Build a kind of policies from hints. Raises Malformed.

    `kinds` are those that it may take effect at. Without `NAMED` its named rules are `rules`.
    """
    direct = hints.get(LABEL, "").lower() == "direct"
    all_apply = _one_of(hints, IN_EFFECT, _ALL, default=False)
    kind = PolicyKind(id_, merges=all_apply) if direct else replace(COLOR_POLICY, id=id_)
    kind = replace(
        kind,
        rules=_paths(hints.get(NAMED, "rules")),
        no_rules=frozenset(_names(hints.get(NO_RULES, ""))),
        merge_type=hints.get(MERGE_TYPE, "") if direct else "",
        all_apply=direct and all_apply,
        identity=_one_of(hints, IDENTITY, IDENTITIES, default=Identity.POLICY),
        effect=_one_of(hints, EFFECT, _EFFECTS, default=None),
        cluster_scoped_targets=_one_of(hints, WIDE, _BOOLEANS, default=False),
    )
    return _with_level(kind, hints.get(LEVEL, ""), kinds)


def _with_level(kind: PolicyKind, names: str, kinds: Iterable[Kind]) -> PolicyKind:
    if not names:
        return kind
    level = frozenset(_level(names, {id_.kind: id_ for kind in kinds for id_ in _nodes_of(kind)}))
    # Levels below gateways take effect on the paths through these, others by themselves.
    below = level <= _BELOW_GATEWAYS
    return replace(kind, level=level, origins=COLOR_POLICY.origins if below else frozenset())


def _level(names: str, known: Mapping[str, GroupKind]) -> Iterator[GroupKind]:
    for name in _names(names):
        if name not in known:
            raise _malformed(LEVEL, f"{name} is no targetable kind")
        yield known[name]


def _nodes_of(kind: Kind) -> Iterator[GroupKind]:
    yield kind.id
    if kind.sections is not None:
        yield kind.sections.kind


def _paths(value: str) -> tuple[str, ...]:
    paths = _names(value)
    for path in paths:
        if "#" in path or not all(path.split(".")):
            raise _malformed(NAMED, f'"{path}" is no path of fields')
        if any(other.startswith(f"{path}.") for other in paths):
            raise _malformed(NAMED, f"{path} has another of the maps in it")
    return paths


def _names(value: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in value.split(",")} - {""}))


def _one_of(hints: Hints, name: str, known: Mapping[str, _Value], *, default: _Value) -> _Value:
    value = hints.get(name, "")
    if not value:
        return default
    words = {word.lower(): meaning for word, meaning in known.items()}
    if value.lower() not in words:
        raise _malformed(name, f'"{value}" is not {" or ".join(known)}')
    return words[value.lower()]


def _malformed(name: str, what: str) -> Malformed:
    return Malformed(f"metadata.annotations: {name}: {what}")


@cache
def _table() -> Mapping[str, Hints]:
    text = files("kube_sync.topology").joinpath("policykinds.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


COLOR_POLICY = PolicyKind(
    GroupKind("examples.kube-sync.io", "ColorPolicy"),
    level=frozenset(RULES),
    origins=frozenset({GATEWAY_CLASS, GATEWAY}),
)
