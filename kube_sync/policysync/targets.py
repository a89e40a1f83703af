"""Resolves the references of a policy to the Gateways that it is synced with.

Invariant: only a reference to a Gateway of a class that syncs the kind of policy counts, or to a
ListenerSet that such a Gateway accepts, and only if the policy may refer to the object (a
ReferenceGrant, from another namespace, as in the topology).
Other references are reported, and left out of the copies. A reference into another namespace is
refused, since its ReferenceGrant does not go to the spokes. A copy is not copied on, so that a hub
that is its own spoke makes no second generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from kube_sync.errors import Terminal
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.object_cache import TOO_DEEP
from kube_sync.topology import NAMESPACE, GroupKind, Kind, Locator, View
from kube_sync.topology.gateway import GATEWAY, LISTENER_SET
from kube_sync.topology.gateway.listenersets import parents_named
from kube_sync.topology.gateway.validity import accepts
from kube_sync.topology.links import REFERENCE_GRANT, is_granted
from kube_sync.topology.nodes import Body, Node, node_of
from kube_sync.topology.raw_json import UNREADABLE, Malformed, items, mapping, reason, text
from kube_sync.topology.synced_policies import SYNCED, is_synced

_KINDS: Final = {kind: Kind(kind) for kind in (GATEWAY, LISTENER_SET)}
_NAMESPACE_KIND: Final = Kind(NAMESPACE, namespaced=False)


@dataclass(frozen=True, slots=True)
class ListenerSets:
    """The ListenerSets of the hub, and their namespaces."""

    objects: Mapping[ObjectKey, Body] = field(default_factory=dict)
    namespaces: Mapping[ObjectKey, Body] = field(default_factory=dict)
    unknown: str = ""  # which of both is unknown


def named_gateway(one: Body) -> ObjectKey | None:
    """Return the Gateway that a ListenerSet names, None for another kind. Raises Malformed."""
    for gateway in parents_named(node_of(_KINDS[LISTENER_SET], one)):
        namespace, _, name = gateway.partition(":")[2].partition("/")
        return ObjectKey(namespace, name)
    return None


def is_attached(one: Body, gateway: Body, known: ListenerSets) -> bool:
    """Return whether a Gateway accepts a ListenerSet that names it (Gateway API, AllowedListeners).

    The right to write ListenerSets alone brings no policy onto the clusters of a Gateway.
    Raises Malformed.
    """
    node = node_of(_KINDS[LISTENER_SET], one)
    namespaces = _namespace_nodes(known.namespaces.get(ObjectKey("", node.namespace)))
    return accepts(node_of(_KINDS[GATEWAY], gateway), node, View(namespaces, {}, {}))


def _namespace_nodes(namespace: Body | None) -> dict[Locator, Node]:
    if namespace is None:
        return {}
    node = node_of(_NAMESPACE_KIND, namespace)
    return {node.locator: node}


_NOWHERE: Final = ObjectKey("", "")


@dataclass(frozen=True, slots=True)
class Target:
    """One reference that counts."""

    index: int  # among the references; 0 for `targetRef`
    gateway: ObjectKey
    problem: str = ""  # why it is unknown whether its class syncs the policy
    refused: str = ""  # why it gets no new copies


@dataclass(frozen=True, slots=True)
class Targets:
    """The resolved references of one policy."""

    targets: tuple[Target, ...] = ()
    named: frozenset[ObjectKey] = frozenset()  # every Gateway that it refers to
    listener_sets: frozenset[ObjectKey] = frozenset()  # likewise
    others: tuple[str, ...] = ()  # references that do not count, and why
    problem: str = ""  # why nothing about the policy is known


@dataclass(frozen=True, slots=True)
class HubObjects:
    """The caches in which references are looked up."""

    gateways: Mapping[ObjectKey, Body]
    # Whether a GatewayClass syncs the kind of the policy; None: its parameters cannot be read.
    classes: Mapping[str, bool | None]
    grants: Iterable[Body] = field(default=())  # ReferenceGrants
    listener_sets: ListenerSets = field(default_factory=ListenerSets)


def resolve_targets(policy: PolicyId, kind: str, body: Body, hub: HubObjects) -> Targets:
    """Resolve the references of a policy; one that cannot be read is a problem."""
    own = GroupKind(policy.gvr.group, kind)
    if body.get("spec") == TOO_DEEP:
        return Targets(problem=f"the policy cannot be read: spec: {TOO_DEEP}")
    try:
        is_copy = is_synced(body)
        found = [_resolve(place, ref, policy, own, hub) for place, ref in _refs(body)]
    except UNREADABLE as error:
        return Targets(problem=f"the policy cannot be read: {reason(error)}")
    resolved = Targets(
        named=frozenset(one.gateway for one in found if one.gateway.name),
        listener_sets=frozenset(one.listener_set for one in found if one.listener_set),
    )
    if is_copy:
        others = (f"it is a copy itself, as its annotation {SYNCED} says",)
        return replace(resolved, others=others)
    if resolved.listener_sets and (unknown := hub.listener_sets.unknown):
        return replace(resolved, problem=f"it names a ListenerSet, and {unknown}")
    return replace(
        resolved,
        targets=tuple(one.target(index) for index, one in enumerate(found) if one.counts),
        others=tuple(one.problem for one in found if not one.counts),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    gateway: ObjectKey
    problem: str
    counts: bool
    refused: str = ""
    listener_set: ObjectKey | None = None  # through which it leads to the Gateway

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


def _resolve(place: str, ref: Body, policy: PolicyId, own: GroupKind, hub: HubObjects) -> _Found:
    kind, name = GroupKind(text(ref, "group"), text(ref, "kind")), text(ref, "name")
    if kind not in (GATEWAY, LISTENER_SET):
        why = f"{place}: {kind} {name} is no Gateway and no ListenerSet"
        return _Found(_NOWHERE, why, counts=False)
    key = ObjectKey(text(ref, "namespace", default=policy.namespace), name)
    text(ref, "sectionName")  # it is copied with the reference, and must be a string
    listener_set = key if kind == LISTENER_SET else None
    if not _is_permitted(key, kind, policy, own, hub):
        # First: without a grant nobody learns whether the object exists.
        why = f"{place}: {kind.kind} {key} is in a namespace that grants no reference to it"
        return _Found(
            key if listener_set is None else _NOWHERE, why, counts=False, listener_set=listener_set
        )
    resolve = _resolve_gateway if listener_set is None else _resolve_listener_set
    found = replace(resolve(place, key, own, hub), listener_set=listener_set)
    if not found.counts or found.problem:
        return found
    return replace(found, refused=_refusal(place, kind, key, policy))


def _resolve_listener_set(place: str, key: ObjectKey, own: GroupKind, hub: HubObjects) -> _Found:
    """Resolve a ListenerSet to the Gateway that accepts it."""
    one = hub.listener_sets.objects.get(key)
    if one is None:
        return _Found(_NOWHERE, f"{place}: ListenerSet {key} was not found", counts=False)
    named = named_gateway(one) or _NOWHERE
    gateway = hub.gateways.get(named)
    if gateway is None or not is_attached(one, gateway, hub.listener_sets):
        why = f"{place}: ListenerSet {key} is attached to no Gateway"
        return _Found(named, why, counts=False)
    return _resolve_gateway(place, named, own, hub)


def _resolve_gateway(place: str, key: ObjectKey, own: GroupKind, hub: HubObjects) -> _Found:
    gateway = hub.gateways.get(key)
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
    return _Found(key, "", counts=True)


def _refusal(place: str, kind: GroupKind, key: ObjectKey, policy: PolicyId) -> str:
    """Return why copies of a policy could not refer to an object, "" if they can."""
    if policy.namespace in ("", key.namespace):
        return ""
    return (
        f"{place}: {kind.kind} {key} is in another namespace than the policy, and the"
        " ReferenceGrant that permits the reference is not brought to clusters, which would refuse"
        f" the copy: move the policy into namespace {key.namespace}"
    )


def _is_permitted(
    key: ObjectKey, kind: GroupKind, policy: PolicyId, own: GroupKind, hub: HubObjects
) -> bool:
    if policy.namespace in ("", key.namespace):
        return True
    nodes = {node.locator: node for node in _grants(hub) if node.namespace == key.namespace}
    view = View({}, {}, {REFERENCE_GRANT.id: {key.namespace: nodes}})
    by, of = (own, policy.namespace), (kind, key.namespace, key.name)
    return is_granted(view, by, of)


def _grants(hub: HubObjects) -> Iterator[Node]:
    for one in hub.grants:
        with suppress(Terminal):  # a grant without a name grants nothing
            yield node_of(REFERENCE_GRANT, one)
