"""A hub with policies, Gateways and placements, as JSON, and what spokes say of copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, Feedback, Placed, PolicyId
from kube_sync.policysync.desired import PLACEMENT
from kube_sync.policysync.downstream import Downstream, Source, copied
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.targets import HubObjects

Object = dict[str, Any]

AUTH = GroupVersionResource("kuadrant.io", "v1", "authpolicies")
NS = "my-namespace"
POLICY = PolicyId(AUTH, NS, "p")
CLASS = "my-gateway-class"
GATEWAY = ObjectKey(NS, "my-gateway")
OTHER = ObjectKey(NS, "other-gateway")
GATEWAY_API = "gateway.networking.k8s.io"
CREATED = "2026-01-02T03:04:05Z"


def ref(name: str = "my-gateway", kind: str = "Gateway", **more: Any) -> Object:
    return {"group": GATEWAY_API, "kind": kind, "name": name, **more}


def policy(*refs: Object, name: str = "p", **metadata: Any) -> Object:
    """Return an AuthPolicy as the hub's API server has it; several references are plural."""
    targets: Object = {"targetRefs": list(refs)} if len(refs) > 1 else {}
    return {
        "apiVersion": "kuadrant.io/v1",
        "kind": "AuthPolicy",
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": "u-1",
            "resourceVersion": "42",
            "generation": 3,
            "creationTimestamp": CREATED,
            **metadata,
        },
        "spec": {"rules": {"a": 1}, **(targets or {"targetRef": refs[0] if refs else ref()})},
    }


def gateway(
    key: ObjectKey = GATEWAY, gateway_class: str = CLASS, placement: str | None = "web"
) -> Object:
    labels = {} if placement is None else {PLACEMENT: placement}
    return {
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": labels},
        "spec": {"gatewayClassName": gateway_class},
    }


def decision(*clusters: str, placement: str = "web") -> Object:
    return {
        "metadata": {"labels": {PLACEMENT: placement}},
        "status": {"decisions": [{"clusterName": name, "reason": ""} for name in clusters]},
    }


def hub(*gateways: Object, syncs: bool | None = True, grants: Iterable[Object] = ()) -> HubObjects:
    found = {
        ObjectKey(one["metadata"]["namespace"], one["metadata"]["name"]): one
        for one in gateways or (gateway(),)
    }
    return HubObjects(found, {CLASS: syncs}, tuple(grants))


def source(body: Object | None = None) -> Source:
    return Source(POLICY, "AuthPolicy", policy() if body is None else body, FIELDS)


def copies(*clusters: str, body: Object | None = None) -> dict[str, Copy]:
    return copied(source(body), [0], [GATEWAY], clusters, Downstream())


def said(copy: Copy, **values: Any) -> Feedback:
    """Return the feedback of a spoke that has the copy, at generation 1 of it."""
    found: Mapping[str, Any] = {"digest": copy.digest, "generation": 1, **values}
    return Feedback(applied=True, values=found)


def there(
    copy: Copy, feedback: Feedback | None = None, remove_after: float | None = None
) -> Placed:
    return Placed(copy.key, copy.digest, feedback, remove_after, frozenset([GATEWAY]))
