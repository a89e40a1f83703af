"""PlacementPolicies in a plan, among the policy ConfigMaps: listed, exported, read and staged.

Invariant: they are selected as the replicator selects them; an unreadable one ends the plan,
since the policy it stands for is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

import msgspec

from kube_sync.config import Policies, Resource
from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Item
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementpolicies import (
    KIND,
    PLACEMENT_POLICIES,
    PlacementPolicy,
    read_policy,
)
from kube_sync.kube.policynames import called
from kube_sync.kube.reflector import items_of
from kube_sync.kube.staging import ACTIVE
from kube_sync.objects import ObjectKey

OBJECTS: Final = Resource(
    PLACEMENT_POLICIES.group, PLACEMENT_POLICIES.version, PLACEMENT_POLICIES.resource
)


class _Kind(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - as on the wire


def is_object(item: Item) -> bool:
    """Return whether an item is a PlacementPolicy, not a ConfigMap."""
    try:
        found = msgspec.json.decode(item.body, type=_Kind)
    except NO_JSON:
        return False
    group, _, _ = found.apiVersion.partition("/")
    return (found.kind, group) == (KIND, OBJECTS.group)


def is_kind(group: str, kind: str) -> bool:
    """Return whether this is the kind of PlacementPolicies."""
    return (group, kind) == (OBJECTS.group, KIND)


def objects_among(items: Iterable[Item], policies: Policies) -> dict[ObjectKey, PlacementPolicy]:
    """Return the PlacementPolicies that decide, by key. Raises Retriable."""
    inside = [i for i in items if i.key.namespace in policies.namespaces and is_object(i)]
    read = partial(read_policy, rego_version=policies.rego_version)
    found = {policy.key: policy for policy in map(read, inside) if policy.counts}
    for key, policy in found.items():
        if policy.unreadable is not None:
            msg = f"{called(key)} cannot be read: {policy.unreadable}"
            raise Retriable(msg)
    return found


async def listed_objects(client: KubeClient, policies: Policies) -> list[Item]:
    """List the PlacementPolicies in policy namespaces, none without the kind. Raises SyncError."""
    found: list[Item] = []
    for namespace in dict.fromkeys(policies.namespaces):
        source = MaybeServed(client, PLACEMENT_POLICIES, namespace)
        found += [item async for item in items_of(source)]
    return found


def as_active(whole: dict[str, object], stages: Collection[str]) -> bool:
    """Set a PlacementPolicy of such a stage to active, in place; return whether it was changed."""
    spec = whole.get("spec")
    if not isinstance(spec, dict) or spec.get("stage", ACTIVE) not in stages:
        return False
    spec["stage"] = ACTIVE
    return True
