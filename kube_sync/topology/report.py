"""A topology as JSON, in the shape of report.schema.json.

Invariant: the same objects give the same bytes. Fields may be added; none is removed or changes its
meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kube_sync.topology.affected import affected
from kube_sync.topology.effective import EffectivePolicy
from kube_sync.topology.graph import Path
from kube_sync.topology.nodes import GroupKind, Role
from kube_sync.topology.topology import Topology


class NodeRecord(msgspec.Struct, frozen=True):
    """An object, or a section of one."""

    locator: str
    kind: str
    group: str
    namespace: str
    name: str
    role: Role


class EdgeRecord(msgspec.Struct, frozen=True):
    """An edge: a parent to its child, a policy to its target."""

    parent: str = msgspec.field(name="from")
    child: str = msgspec.field(name="to")


class EffectiveRecord(msgspec.Struct, frozen=True):
    """The effective policy of one path, of one kind."""

    id: str
    kind: str
    path: Sequence[str]
    policies: Sequence[str]
    spec: Mapping[str, Any]
    sources: Mapping[str, str]
    parts: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, str]


class PathRecord(msgspec.Struct, frozen=True):
    """What applies on one path to a targetable: an id of `effective`, or null for none."""

    locator: str
    kind: str
    path: Sequence[str]
    effective: str | None


class ConditionRecord(msgspec.Struct, frozen=True):
    """A condition of a node."""

    locator: str
    type: str
    status: str
    reason: str
    message: str


class ConflictRecord(msgspec.Struct, frozen=True):
    """A policy, and another of the same target that has its way there instead."""

    policy: str
    other: str
    target: str
    rules: Sequence[str]


class Report(msgspec.Struct, frozen=True):
    """All that there is to say of a topology."""

    nodes: Sequence[NodeRecord]
    edges: Sequence[EdgeRecord]
    roots: Sequence[str]
    paths: Sequence[Sequence[str]]
    effective: Mapping[str, EffectiveRecord]
    targetables: Sequence[PathRecord]
    conditions: Sequence[ConditionRecord]
    conflicts: Sequence[ConflictRecord]


def report(
    topology: Topology, kinds: Iterable[GroupKind] | None = None, paths: Iterable[Path] = ()
) -> Report:
    """Return a report, with the effective policies of `kinds` (None: all) and with `paths`."""
    chosen = sorted(topology.policy_kinds if kinds is None else kinds)
    found = [one for kind in chosen for one in topology.effective(kind)]
    return Report(
        [
            NodeRecord(n.locator, n.kind.kind, n.kind.group, n.namespace, n.name, n.role)
            for n in topology.nodes()
        ],
        [EdgeRecord(*edge) for edge in topology.all.edges()],
        topology.targetables.roots(),
        list(paths),
        {one.path_id: _effective(topology, one) for one in found if one.combined},
        [_path(one) for one in found],
        [
            ConditionRecord(*c)
            for c in sorted([*topology.conditions(), *affected(topology, chosen)])
        ],
        [ConflictRecord(*conflict) for conflict in topology.conflicts()],
    )


def as_json(found: Report) -> bytes:
    """Return a report as indented JSON that ends with a line feed."""
    return msgspec.json.format(msgspec.json.encode(found, order="deterministic"), indent=2) + b"\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a report."""
    found = msgspec.json.schema(Report)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _effective(topology: Topology, one: EffectivePolicy) -> EffectiveRecord:
    assert one.combined is not None  # noqa: S101 - what has none is no effective policy
    kind = topology.policy_kinds[one.kind]
    return EffectiveRecord(
        one.id or "",
        one.kind.kind,
        one.path,
        [policy.node.locator for policy in one.combined.policies],
        kind.spec(one.spec),
        one.sources,
        one.combined.rules.parts,
        one.rule_ids,
    )


def _path(one: EffectivePolicy) -> PathRecord:
    applies = one.path_id if one.combined else None
    return PathRecord(one.path[-1], one.kind.kind, one.path, applies)
