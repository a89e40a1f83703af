"""What the story is made of: a Gateway on a hub and two spokes, and policies that colour it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tools.demo.fleet import Manifest, namespace

SPACE, ON_SPOKES = "infra", "kuadrant-infra"
CLASS, GATEWAY, LISTENER = "edge", "web", "public"
POLICY, NATIVE = "house", "own"
PLACEMENT = "shops"
_PARAMETERS = f"{CLASS}-parameters"
SPOKES = ("paris", "tokyo")
CONTROLLER = "example.com/hub"

_GATEWAY_API = "gateway.networking.k8s.io"
_PLACEMENT = "cluster.open-cluster-management.io/placement"
_CLUSTERS = "cluster.open-cluster-management.io"
# Of a policy on a spoke: with respect to its Gateway, what has become of it, and why.
_SAID = '.status.ancestors[0].conditions[?(@.type=="Programmed")]'
STANDING, WHY = "standing", "why"
PARAMETERS = {
    "policiesToSync": [
        {
            "group": "examples.kube-sync.io",
            "version": "v1alpha1",
            "resource": "colorpolicies",
            "statusFields": [
                {"name": STANDING, "path": f"{_SAID}.reason"},
                {"name": WHY, "path": f"{_SAID}.message"},
            ],
        }
    ]
}


def hub_objects() -> list[Manifest]:
    """Return what a hub has before any policy: two clusters, a Gateway and its class."""
    return [
        *map(namespace, ("kube-sync", SPACE, *SPOKES)),
        *map(managed_cluster, SPOKES),
        parameters(),
        gateway_class(parameters=True),
        gateway(SPACE, placed=True),
        decision(),
    ]


def spoke_objects() -> list[Manifest]:
    """Return what a spoke has before any policy: the Gateway, and a route to it."""
    return [
        *map(namespace, ("kube-sync", ON_SPOKES)),
        gateway_class(),
        gateway(ON_SPOKES),
        _made(
            f"{_GATEWAY_API}/v1/HTTPRoute",
            "shop",
            namespace=ON_SPOKES,
            spec={"parentRefs": [{"name": GATEWAY}], "rules": [{"name": "pages"}]},
        ),
    ]


def managed_cluster(name: str) -> Manifest:
    """Return a cluster as it registers with a hub."""
    spec = {"hubAcceptsClient": True}
    return _made(f"{_CLUSTERS}/v1/ManagedCluster", name, namespace=None, spec=spec)


def parameters() -> Manifest:
    """Return the ConfigMap that says which policies are synced."""
    return _made("v1/ConfigMap", _PARAMETERS, data={"params": json.dumps(PARAMETERS)})


def gateway_class(*, parameters: bool = False) -> Manifest:
    """Return the class of the Gateways, with or without its parameters."""
    spec: dict[str, Any] = {"controllerName": CONTROLLER}
    if parameters:
        ref = {"group": "", "kind": "ConfigMap", "name": _PARAMETERS, "namespace": SPACE}
        spec["parametersRef"] = ref
    return _made(f"{_GATEWAY_API}/v1/GatewayClass", CLASS, namespace=None, spec=spec)


def gateway(space: str, *, placed: bool = False) -> Manifest:
    """Return the Gateway in a namespace; `placed`: on the clusters of the decisions."""
    listener = {"name": LISTENER, "port": 80, "protocol": "HTTP"}
    made = _made(
        f"{_GATEWAY_API}/v1/Gateway",
        GATEWAY,
        namespace=space,
        spec={"gatewayClassName": CLASS, "listeners": [listener]},
    )
    made["metadata"]["labels"] = {_PLACEMENT: PLACEMENT} if placed else {}
    return made


def decision(number: int = 1) -> Manifest:
    """Return a PlacementDecision of the Gateway, without what was decided."""
    made = _made(f"{_CLUSTERS}/v1beta1/PlacementDecision", f"{PLACEMENT}-decision-{number}")
    made["metadata"]["labels"] = {_PLACEMENT: PLACEMENT}
    return made


def decided(clusters: Iterable[str], number: int = 1) -> Manifest:
    """Return the decision that the Gateway is placed on these clusters, and those of the others."""
    listed = [{"clusterName": name, "reason": ""} for name in clusters]
    return decision(number) | {"status": {"decisions": listed}}


def color_policy(name: str, space: str, sky: str) -> Manifest:
    """Return a policy that says, at the Gateway's listener, which colour the sky has."""
    ref = {"group": _GATEWAY_API, "kind": "Gateway", "name": GATEWAY, "sectionName": LISTENER}
    return _made(
        "examples.kube-sync.io/v1alpha1/ColorPolicy",
        name,
        namespace=space,
        spec={"targetRef": ref, "rules": {"sky": {"color": sky}}},
    )


def _made(kind: str, name: str, *, namespace: str | None = SPACE, **rest: Any) -> Manifest:
    """Return an object of a kind such as `v1/Service`."""
    api, _, kind = kind.rpartition("/")
    where = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name} | where, **rest}
