"""Which references of a policy lead to Gateways that it goes to the spokes with.

Keeps true: only a reference to a Gateway of a class that syncs the kind of policy counts, and only
where the policy may refer to it (a ReferenceGrant, from another namespace, as in the topology).
What does not count is told, and is left out of the copies. A reference into another namespace is
refused, since its ReferenceGrant does not go to the spokes. A copy is not copied on, so that a hub
that is its own spoke makes no second generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kube_sync.errors import Terminal
from kube_sync.objects import ObjectKey
from kube_sync.policysync.bodies import TOO_DEEP
from kube_sync.policysync.copies import SYNCED, PolicyId
from kube_sync.topology import GroupKind, View
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.grants import REFERENCE_GRANT, granted
from kube_sync.topology.nodes import Body, Node, node_of
from kube_sync.topology.shapes import UNREADABLE, Malformed, items, mapping, reason, text
from kube_sync.topology.synced import is_synced


@dataclass(frozen=True, slots=True)
class Target:
    """One reference that counts."""

    index: int  # among the references; 0 for `targetRef`
    gateway: ObjectKey
    problem: str = ""  # why nobody knows whether its class syncs the policy
    refused: str = ""  # why no more copies are made for it


@dataclass(frozen=True, slots=True)
class Targets:
    """What the references of one policy come to."""

    targets: tuple[Target, ...] = ()
    named: frozenset[ObjectKey] = frozenset()  # every Gateway that it refers to
    others: tuple[str, ...] = ()  # references that do not count, and why
    problem: str = ""  # why nothing of the policy is known


@dataclass(frozen=True, slots=True)
class Hub:
    """What is known of the hub where references are looked up."""

    gateways: Mapping[ObjectKey, Body]
    # Whether a GatewayClass syncs the kind of the policy; None: its parameters cannot be read.
    classes: Mapping[str, bool | None]
    grants: Iterable[Body] = field(default=())  # ReferenceGrants


def targets(policy: PolicyId, kind: str, body: Body, hub: Hub) -> Targets:
    """Look up what a policy refers to; one that cannot be read is a problem."""
    own = GroupKind(policy.gvr.group, kind)
    if body.get("spec") == TOO_DEEP:
        return Targets(problem=f"the policy cannot be read: spec: {TOO_DEEP}")
    try:
        is_copy = is_synced(body)
        found = [_looked_up(place, ref, policy, own, hub) for place, ref in _refs(body)]
    except UNREADABLE as error:
        return Targets(problem=f"the policy cannot be read: {reason(error)}")
    named = frozenset(one.gateway for one in found if one.gateway.name)
    if is_copy:
        return Targets((), named, (f"it is a copy itself, as its annotation {SYNCED} says",))
    return Targets(
        tuple(one.target(index) for index, one in enumerate(found) if one.counts),
        named,
        tuple(one.problem for one in found if not one.counts),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    gateway: ObjectKey
    problem: str
    counts: bool
    refused: str = ""

    def target(self, index: int) -> Target:
        return Target(index, self.gateway, self.problem, self.refused)


def _refs(body: Body) -> Iterator[tuple[str, Body]]:
    spec = mapping(body, "spec")
    if spec.get("targetRef") is not None and spec.get("targetRefs") is not None:
        msg = "spec.targetRef: not together with spec.targetRefs"
        raise Malformed(msg)
    if spec.get("targetRefs") is not None:
        for index, ref in enumerate(items(body, "spec", "targetRefs")):
            yield f"spec.targetRefs[{index}]", ref
    else:
        yield "spec.targetRef", mapping(body, "spec", "targetRef")


def _looked_up(place: str, ref: Body, policy: PolicyId, own: GroupKind, hub: Hub) -> _Found:
    kind, name = GroupKind(text(ref, "group"), text(ref, "kind")), text(ref, "name")
    if kind != GATEWAY:
        return _Found(ObjectKey("", ""), f"{place}: {kind} {name} is no Gateway", counts=False)
    gateway = ObjectKey(text(ref, "namespace", default=policy.namespace), name)
    text(ref, "sectionName")  # it goes with the reference, and has to be one
    return _judged(place, gateway, policy, own, hub)


def _judged(place: str, key: ObjectKey, policy: PolicyId, own: GroupKind, hub: Hub) -> _Found:
    gateway = hub.gateways.get(key)
    if not _permitted(key, policy, own, hub):
        # Said first: whoever may not refer to it does not learn whether it is there.
        why = f"{place}: Gateway {key} is in a namespace that grants no reference to it"
        return _Found(key, why, counts=False)
    if gateway is None:
        return _Found(key, f"{place}: Gateway {key} was not found", counts=False)
    name = text(gateway, "spec", "gatewayClassName")
    syncs = hub.classes.get(name, False)
    if syncs is None:
        why = f"the parameters of its GatewayClass {name} cannot be read"
        return _Found(key, f"{place}: Gateway {key}: {why}", counts=True)
    if not syncs:
        why = f"{place}: GatewayClass {name} of Gateway {key} does not sync {own}"
        return _Found(key, why, counts=False)
    return _Found(key, "", counts=True, refused=_refused(place, key, policy))


def _refused(place: str, key: ObjectKey, policy: PolicyId) -> str:
    """Return why copies of a policy could not refer to a Gateway, "" where they can."""
    if policy.namespace in ("", key.namespace):
        return ""
    return (
        f"{place}: Gateway {key} is in another namespace than the policy, and the ReferenceGrant"
        " that permits the reference is not brought to clusters, which would refuse the copy: move"
        f" the policy into namespace {key.namespace}"
    )


def _permitted(key: ObjectKey, policy: PolicyId, own: GroupKind, hub: Hub) -> bool:
    if policy.namespace in ("", key.namespace):
        return True
    nodes = {node.locator: node for node in _grants(hub) if node.namespace == key.namespace}
    view = View({}, {}, {REFERENCE_GRANT.id: {key.namespace: nodes}})
    by, of = (own, policy.namespace), (GATEWAY, key.namespace, key.name)
    return granted(view, by, of)


def _grants(hub: Hub) -> Iterator[Node]:
    for one in hub.grants:
        with suppress(Terminal):  # what has no name grants nothing
            yield node_of(REFERENCE_GRANT, one)
