"""Keys by which policy ConfigMaps and PlacementPolicies share one namespace of names.

Invariant: no two policies share a key, and messages name the kind of the object. The key of a
ConfigMap is its own; that of a PlacementPolicy has a name that no ConfigMap can have (those are
lower case: RFC 1123, subdomain). A module's id has three parts in both cases, since OPA's
authorization policy lets the replicator write no others.
"""

from __future__ import annotations

from typing import Final

from kube_sync.objects import ObjectKey

_SUFFIX: Final = ".PlacementPolicy"


def policy_key(key: ObjectKey) -> ObjectKey:
    """Return the policy key of a PlacementPolicy."""
    return ObjectKey(key.namespace, key.name + _SUFFIX)


def is_object(key: ObjectKey) -> bool:
    """Return whether a policy key is that of a PlacementPolicy."""
    return key.name.endswith(_SUFFIX)


def object_key(key: ObjectKey) -> ObjectKey:
    """Return the object key of a policy key."""
    return ObjectKey(key.namespace, key.name.removesuffix(_SUFFIX))


def named(key: ObjectKey) -> str:
    """Return the name for a status: with its kind unless it is a ConfigMap."""
    return called(key) if is_object(key) else str(key)


def called(key: ObjectKey) -> str:
    """Return kind and name of a policy's object, for messages."""
    return f"{'PlacementPolicy' if is_object(key) else 'ConfigMap'} {object_key(key)}"
