"""Digest of all fields of a pod that scheduling rules read, the key for shared verdicts. Pure.

Invariant: two pods for which the rules could decide differently have different digests. It covers
the user, the namespace, the labels, the owning DaemonSet, and of the spec what says how the pod is
scheduled, its service account and the resources it requests. Pods of one template have the same
digest, although the API server gives each a volume with a name of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kube_sync.admission.review import Review
from kube_sync.admission.verdict import Operation
from kube_sync.errors import NO_JSON

# As `kube_sync.scheduling.pods` reads them.
READ: Final = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
)
# Resolved by the API server from the class's name, between the mutating and the validating webhook;
# a patch that changes the name has to remove them.
RESOLVED: Final = ("priority", "preemptionPolicy")


class _Object(msgspec.Struct):
    spec: dict[str, Any]
    metadata: dict[str, Any] = {}


class _Request(msgspec.Struct, rename="camel"):
    object: _Object
    user_info: msgspec.Raw = msgspec.Raw(b"null")


def question(
    review: Review, patch: Iterable[Operation] = (), *, resolved: bool = True
) -> bytes | None:
    """Return the digest of a pod with a patch applied.

    With or without the fields `resolved` from its priority class. None for all but the creation of
    a pod, and if the pod cannot be decoded.
    """
    kind = review.kind
    if review.operation != "CREATE" or review.subresource or (kind.group, kind.kind) != ("", "Pod"):
        return None
    try:
        request = msgspec.json.decode(review.request, type=_Request)
        spec = request.object.spec
        for operation in patch:
            _apply(spec, operation)
    except (*NO_JSON, LookupError, TypeError, ValueError):
        return None
    fields = (*READ, *RESOLVED) if resolved else READ
    read = {name: spec[name] for name in fields if name in spec}
    metadata = request.object.metadata
    about = (metadata.get("labels"), _daemonset(metadata), _requested(spec))
    asked = (review.namespace, request.user_info, *about, read)
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).digest()


def _daemonset(metadata: dict[str, Any]) -> list[Any]:
    """Return the owners of a pod that are DaemonSets: rules read their templates too."""
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list):
        return []
    return [one for one in owners if isinstance(one, dict) and one.get("kind") == "DaemonSet"]


def _requested(spec: dict[str, Any]) -> list[str]:
    """Return the names of resources that containers request, as far as they can be read."""
    containers = [one for field in ("initContainers", "containers") for one in _list(spec, field)]
    resources = [one["resources"] for one in containers if isinstance(one.get("resources"), dict)]
    amounts = [found for one in resources for found in one.values() if isinstance(found, dict)]
    return sorted({name for found in amounts for name in found})


def _list(spec: dict[str, Any], field: str) -> list[dict[str, Any]]:
    found = spec.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _apply(spec: dict[str, Any], operation: Operation) -> None:
    """Apply one operation below /spec (RFC 6902, section 4). Raises LookupError and its like."""
    empty, root, *parents, leaf = operation.path.split("/")
    if (empty, root) != ("", "spec") or operation.op not in ("add", "remove", "replace"):
        raise ValueError(operation.path)
    below: Any = spec
    for part in parents:
        below = below[int(part)] if isinstance(below, list) else below[_plain(part)]
    if operation.op == "remove":
        del below[int(leaf) if isinstance(below, list) else _plain(leaf)]
        return
    if operation.value is msgspec.UNSET:
        raise ValueError(operation.path)
    value = msgspec.json.decode(operation.value)
    if not isinstance(below, list):
        below[_plain(leaf)] = value
    elif operation.op == "replace":
        below[int(leaf)] = value
    else:
        below.insert(len(below) if leaf == "-" else int(leaf), value)


def _plain(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
