"""Copies of policies for tests: made as the hub makes them."""

from __future__ import annotations

from typing import Any

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Copy, PolicyId
from kube_sync.policysync.downstream import Downstream, Source, copied
from kube_sync.policysync.feedback_fields import FIELDS

AUTH = GroupVersionResource("kuadrant.io", "v1", "authpolicies")
PLACE = ObjectKey("kuadrant-shop", "login")  # of the copy on a spoke


def policy(name: str = "login", gvr: GroupVersionResource = AUTH) -> PolicyId:
    return PolicyId(gvr, "shop", name)


def source(name: str = "login", gvr: GroupVersionResource = AUTH, **spec: Any) -> Source:
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    body = {
        "apiVersion": f"{gvr.group}/{gvr.version}",
        "kind": "AuthPolicy",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-of-{name}"},
        "spec": {"targetRef": target, **spec},
    }
    return Source(policy(name, gvr), "AuthPolicy", body, FIELDS)


def copy(
    cluster: str = "east",
    name: str = "login",
    *,
    gvr: GroupVersionResource = AUTH,
    downstream: Downstream | None = None,
    **spec: Any,
) -> Copy:
    gateways = [ObjectKey("shop", "web")]
    found = source(name, gvr, **spec)
    return copied(found, [0], gateways, [cluster], downstream or Downstream())[cluster]
