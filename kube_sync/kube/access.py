"""Check this process's own permissions by SelfSubjectAccessReview (authorization.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kube_sync.errors import decoded
from kube_sync.kube.client import KubeClient
from kube_sync.objects import GroupVersionResource

REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")


_WHO = GroupVersionResource("authentication.k8s.io", "v1", "selfsubjectreviews")


class _User(msgspec.Struct):
    username: str


class _WhoStatus(msgspec.Struct, rename="camel"):
    user_info: _User


class _WhoReview(msgspec.Struct):
    status: _WhoStatus


class _Status(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _Status


async def allowed(
    client: KubeClient,
    gvr: GroupVersionResource,
    verbs: Iterable[str],
    namespace: str | None = None,
) -> frozenset[str]:
    """Return which of these verbs the API server allows this process for a resource.

    `verbs`: a verb, or a verb and a subresource, as `patch status`. They are cluster-wide, or of
    one namespace. Raises SyncError.
    """
    return frozenset([verb for verb in verbs if await _may(client, gvr, verb, namespace)])


async def user_name(client: KubeClient) -> str:
    """Return who the API server takes this process for (SelfSubjectReview). Raises SyncError."""
    body = {"apiVersion": _WHO.api_version, "kind": "SelfSubjectReview"}
    answer = await client.request("POST", _WHO.path(), body=msgspec.json.encode(body))
    found = decoded(answer, _WhoReview, "what answers is no SelfSubjectReview")
    return found.status.user_info.username


async def _may(
    client: KubeClient, gvr: GroupVersionResource, verb: str, namespace: str | None
) -> bool:
    what, _, subresource = verb.partition(" ")
    attributes = {
        "group": gvr.group,
        "version": gvr.version,
        "resource": gvr.resource,
        **({"subresource": subresource} if subresource else {}),
        **({"namespace": namespace} if namespace else {}),
        "verb": what,
    }
    body = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", REVIEWS.path(), body=msgspec.json.encode(body))
    found = decoded(answer, _Review, "what answers is no SelfSubjectAccessReview")
    return found.status.allowed
