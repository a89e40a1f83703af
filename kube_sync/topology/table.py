"""A topology as text tables: nodes, paths, conditions, effective policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kube_sync.observability.printing import table as aligned
from kube_sync.topology.conditions import ACCEPTED, EFFECTS, Condition
from kube_sync.topology.effective import EffectivePolicy
from kube_sync.topology.graph import Path
from kube_sync.topology.nodes import GroupKind, Role
from kube_sync.topology.topology import Topology

_Row = tuple[str, ...]


def table(topology: Topology, paths: Sequence[Path] = ()) -> str:
    """Return the nodes with their parents, the paths if any, and conditions."""
    rows: list[_Row] = [("KIND", "NAME", "ROLE", "BELOW")]
    for node in topology.nodes():
        graph = topology.all
        above = [p for p in graph.parents(node.locator) if topology[p].role is not Role.POLICY]
        names = [topology[parent].full_name for parent in above]
        if node.role is Role.POLICY:
            names = [f"→ {topology[n].full_name}" for n in graph.children(node.locator)]
        rows.append((node.kind.kind, node.full_name, node.role, ", ".join(names) or "-"))
    parts = [_aligned(rows)]
    if paths:
        parts.append(_aligned([("PATH",), *((_names(topology, path),) for path in paths)]))
    parts += _condition_table(topology)
    return "\n".join(parts)


def effective_table(topology: Topology, kind: GroupKind) -> str:
    """Return each path, each rule in force on it, and the policy that it is from."""
    rows: list[_Row] = [("PATH", "RULE", "VALUE", "FROM")]
    for one in topology.effective(kind):
        rows += _rules(topology, one)
    return "\n".join([_aligned(rows), *_condition_table(topology)])


def _rules(topology: Topology, one: EffectivePolicy) -> Iterator[_Row]:
    path = _names(topology, one.path)
    if one.combined is None:
        yield path, "-", "-", f"no {one.kind.kind}"
        return
    if not one.spec:
        yield path, "-", "-", ", ".join(policy.node.full_name for policy in one.combined.policies)
    parts = one.combined.rules.parts
    for rule, value in sorted(one.spec.items()):
        sources = [one.sources[rule], *sorted(set(parts.get(rule, {}).values()))]
        names = ", ".join(topology[source].full_name for source in sources)
        yield path, rule, msgspec.json.encode(value, order="sorted").decode(), names


def _condition_table(topology: Topology) -> list[str]:
    found = [condition for condition in topology.conditions() if _is_notable(condition)]
    if not found:
        return []
    rows: list[_Row] = [("OF", "CONDITION", "STATUS", "REASON", "MESSAGE")]
    return [_aligned([*rows, *found])]


def _is_notable(condition: Condition) -> bool:
    """Return whether a condition reports more than the usual success."""
    usual = {ACCEPTED: "Accepted"} | {name: effect.whole for name, effect in EFFECTS.items()}
    as_usual = condition.status == "True" and condition.reason == usual.get(condition.type)
    # Additional remarks follow a colon or semicolon in the message, whatever the reason.
    return not as_usual or any(mark in condition.message for mark in (";", ": "))


def _names(topology: Topology, path: Path) -> str:
    return " > ".join(topology[locator].full_name for locator in path)


def _aligned(rows: Sequence[_Row]) -> str:
    return "".join(f"{line}\n" for line in aligned(rows))
