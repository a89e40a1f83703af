"""What policies go by where ConfigMaps and PlacementPolicies are held together.

Keeps true: no two policies go by one name, and a person is told which object is meant. A ConfigMap
goes by its own name, a PlacementPolicy by one that no ConfigMap can have (those are lower case:
RFC 1123, subdomain). A module's id has three parts in both cases, since OPA's authorization lets
the replicator write no others.
"""

from __future__ import annotations

from typing import Final

from kube_sync.objects import ObjectKey

_SUFFIX: Final = ".PlacementPolicy"


def policy_key(key: ObjectKey) -> ObjectKey:
    """Return what a PlacementPolicy goes by among all policies."""
    return ObjectKey(key.namespace, key.name + _SUFFIX)


def is_object(key: ObjectKey) -> bool:
    """Tell whether a policy that goes by this is a PlacementPolicy."""
    return key.name.endswith(_SUFFIX)


def object_key(key: ObjectKey) -> ObjectKey:
    """Return where the object is that goes by this."""
    return ObjectKey(key.namespace, key.name.removesuffix(_SUFFIX))


def named(key: ObjectKey) -> str:
    """Return what a status calls it: the kind is told where it is no ConfigMap."""
    return called(key) if is_object(key) else str(key)


def called(key: ObjectKey) -> str:
    """Return kind and name of the object that goes by this, for people."""
    return f"{'PlacementPolicy' if is_object(key) else 'ConfigMap'} {object_key(key)}"
