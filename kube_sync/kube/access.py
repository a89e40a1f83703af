"""Check this process's own permissions by SelfSubjectAccessReview (authorization.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource

REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")


class _Status(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _Status


async def allowed(
    client: KubeClient, gvr: GroupVersionResource, verbs: Iterable[str]
) -> frozenset[str]:
    """Return which of these verbs the API server allows this process for a resource, cluster-wide.

    `verbs`: a verb, or a verb and a subresource, as `patch status`. Raises SyncError.
    """
    return frozenset([verb for verb in verbs if await _may(client, gvr, verb)])


async def _may(client: KubeClient, gvr: GroupVersionResource, verb: str) -> bool:
    what, _, subresource = verb.partition(" ")
    attributes = {
        "group": gvr.group,
        "version": gvr.version,
        "resource": gvr.resource,
        **({"subresource": subresource} if subresource else {}),
        "verb": what,
    }
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", REVIEWS.path(), body=msgspec.json.encode(body))
    try:
        return msgspec.json.decode(answer, type=_Review).status.allowed
    except NO_JSON as error:
        msg = f"what answers is no SelfSubjectAccessReview: {error}"
        raise Retriable(msg) from error
