"""Computes the desired copies of one policy from its targets and their placements.

A Gateway names its placement by a label; the decisions of Open Cluster Management are all
PlacementDecisions of its namespace with the same label, one for every 100 clusters. A Gateway
without the label has no cluster, which is known.

Invariant: if the clusters of a Gateway are unknown, or the reference to it is refused, its placed
copies stay, and are kept up to date. So a deleted or unreadable PlacementDecision, or unreadable
parameters, remove nothing, also after a restart: a copy has the Gateways that it is there for as an
annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, Placed
from kube_sync.policysync.downstream import Downstream, Source, copied
from kube_sync.policysync.naming import is_label
from kube_sync.policysync.targets import Target, Targets
from kube_sync.topology.raw_json import UNREADABLE, Malformed, items, reason, text, text_if_any

_GROUP: Final = "cluster.open-cluster-management.io"
PLACEMENT_DECISIONS: Final = GroupVersionResource(_GROUP, "v1beta1", "placementdecisions")
PLACEMENT: Final = f"{_GROUP}/placement"  # label of the Gateway, and of its decisions


@dataclass(frozen=True, slots=True)
class Placement:
    """The clusters of a Gateway; unknown if there is a problem."""

    clusters: frozenset[str] = frozenset()
    problem: str = ""


def placement_of(body: Mapping[str, Any] | None) -> str:
    """Return the placement that a Gateway or a PlacementDecision names, "" if none."""
    return text_if_any(body, "metadata", "labels", PLACEMENT)


def placement(gateway: Mapping[str, Any], decisions: Iterable[Mapping[str, Any]]) -> Placement:
    """Return the clusters of a Gateway by the PlacementDecisions of its namespace."""
    try:
        wanted = text(gateway, "metadata", "labels", PLACEMENT)
        if not wanted:
            return Placement()
        found = [one for one in decisions if placement_of(one) == wanted]
        if not found:
            return Placement(problem=f'there is no PlacementDecision of placement "{wanted}"')
        return Placement(frozenset(name for one in found for name in _names(one)))
    except UNREADABLE as error:
        return Placement(problem=f"its placement cannot be read: {reason(error)}")


def _names(decision: Mapping[str, Any]) -> Iterator[str]:
    for one in items(decision, "status", "decisions"):
        name = text(one, "clusterName")
        # It becomes a namespace in a URL.
        if not is_label(name):
            msg = f'status.decisions: "{name}" is the name of no cluster'
            raise Malformed(msg)
        yield name


_UNKNOWN = Placement(problem="its placement is not known yet")


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired copies of one policy, and what is unknown."""

    copies: Mapping[str, Copy] = field(default_factory=dict)  # by cluster
    uncertain: frozenset[str] = frozenset()  # clusters whose need is unknown; copies stay
    abandoned: frozenset[str] = frozenset()  # clusters of Gateways that it does not refer to now
    problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # references that get no new copies, and why
    concerned: bool = False  # it refers to a Gateway that it is synced with


def desired(
    source: Source,
    found: Targets,
    placements: Mapping[ObjectKey, Placement],
    placed: Mapping[str, Placed],
    downstream: Downstream,
) -> Desired:
    """Return the desired copies of a policy; `placed` are its current ones, by cluster."""
    if found.problem:
        return _unchanged(found.problem, placed)
    known = {one: _placement(one, placements) for one in found.targets}
    try:
        copies = _copies(source, known, placed, downstream)
    except (*UNREADABLE, RecursionError) as error:
        return _unchanged(f"the policy cannot be read: {reason(error)}", placed)
    # A copy without Gateways on it may belong to one of the unknown Gateways.
    nameless = any(one.problem for one in known.values())
    return Desired(
        copies,
        frozenset(c for c, one in placed.items() if nameless and not one.gateways) - copies.keys(),
        frozenset(c for c, one in placed.items() if _is_abandoned(one, found)),
        tuple(dict.fromkeys(_problems(known))),
        tuple(one.refused for one in found.targets if one.refused),
        concerned=bool(found.targets),
    )


def _unchanged(problem: str, placed: Mapping[str, Placed]) -> Desired:
    return Desired(uncertain=frozenset(placed), problems=(problem,), concerned=bool(placed))


def _placement(target: Target, placements: Mapping[ObjectKey, Placement]) -> Placement:
    if target.problem:
        return Placement(problem=target.problem)
    found = placements.get(target.gateway, _UNKNOWN)
    if not found.problem:
        return found
    return Placement(problem=f"Gateway {target.gateway}: {found.problem}")


def _problems(known: Mapping[Target, Placement]) -> Iterator[str]:
    yield from (one.problem for one in known.values() if one.problem)


def _copies(
    source: Source,
    known: Mapping[Target, Placement],
    placed: Mapping[str, Placed],
    downstream: Downstream,
) -> dict[str, Copy]:
    wanted: dict[str, list[Target]] = {}
    for target, where in known.items():
        for cluster in _clusters(target, where, placed):
            wanted.setdefault(cluster, []).append(target)
    alike: dict[tuple[Target, ...], list[str]] = {}
    for cluster, group in wanted.items():
        alike.setdefault(tuple(group), []).append(cluster)
    copies: dict[str, Copy] = {}
    for same, clusters in alike.items():
        indices, gateways = [one.index for one in same], {one.gateway for one in same}
        copies |= copied(source, indices, gateways, clusters, downstream)
    return dict(sorted(copies.items()))


def _clusters(target: Target, where: Placement, placed: Mapping[str, Placed]) -> frozenset[str]:
    if not (where.problem or target.refused):
        return where.clusters
    # Copies with a removal mark were unwanted already.
    kept = {c: one for c, one in placed.items() if one.remove_after is None}
    existing = frozenset(c for c, one in kept.items() if target.gateway in one.gateways)
    return existing if where.problem else existing & where.clusters


def _is_abandoned(one: Placed, found: Targets) -> bool:
    return bool(one.gateways) and not one.gateways & found.named
