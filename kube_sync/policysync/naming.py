"""Encodes names of the hub for use in a spoke's objects, works and annotations.

Invariant: two things never get one name. A name that is cut ends with a digest of the whole.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import PolicyId

_DIGITS: Final = 16
_CUT: Final = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def is_label(name: str) -> bool:
    """Return whether a name is valid for a namespace, cluster or resource (RFC 1123, a label)."""
    return _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return whether a name is valid for an object or an API group (RFC 1123, a subdomain)."""
    return _SUBDOMAIN.fullmatch(name) is not None


def shorten(name: str, limit: int, *, always: str = "") -> str:
    """Return a name of at most `limit` characters.

    It ends with a digest if it would be longer, or could be taken for a cut one; with a digest of
    `always`, if that is given.
    """
    if len(name) <= limit and not always and _CUT.fullmatch(name) is None:
        return name
    tail = hashlib.sha256((always or name).encode()).hexdigest()[:_DIGITS]
    return f"{name[: limit - _DIGITS - 1].rstrip('-.')}-{tail}"


def format_policy(policy: PolicyId) -> str:
    """Format a policy as text: `kuadrant.io/v1/authpolicies:namespace/name`."""
    gvr = policy.gvr
    return f"{gvr.group}/{gvr.version}/{gvr.resource}:{policy.namespace}/{policy.name}"


def parse_policy(text: str) -> PolicyId | None:
    """Parse the text of a policy, None if it is not one."""
    kind, _, where = text.partition(":")
    match (*kind.split("/"), *where.split("/")):
        case (group, version, resource, namespace, name):
            found = PolicyId(GroupVersionResource(group, version, resource), namespace, name)
        case _:
            return None
    return found if _is_url_safe(found) else None


def parse_keys(text: str) -> frozenset[ObjectKey]:
    """Parse a list such as `namespace/name,namespace/name`, to nothing if one entry is no key."""
    found = frozenset(
        ObjectKey(namespace, name)
        for namespace, _, name in (one.partition("/") for one in text.split(","))
    )
    are_valid = all(is_label(key.namespace) and is_subdomain(key.name) for key in found)
    return found if are_valid else frozenset()


def _is_url_safe(policy: PolicyId) -> bool:
    """Return whether its parts are safe in a URL."""
    gvr = policy.gvr
    return (
        (not gvr.group or is_subdomain(gvr.group))
        and is_label(gvr.version)
        and is_label(gvr.resource)
        and (not policy.namespace or is_label(policy.namespace))
        and is_subdomain(policy.name)
    )
