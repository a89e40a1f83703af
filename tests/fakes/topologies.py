"""Objects of the Gateway API and policies, as short as tests want to say them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kube_sync.topology import GroupKind, Kind, Link, Locator, PolicyKind, Topology
from kube_sync.topology.gateway import GatewayApi, Validity, gateway_api
from kube_sync.topology.hints import COLOR_POLICY

Object = dict[str, Any]

GROUP = "gateway.networking.k8s.io"
NS = "my-namespace"
CLASS = Locator(f"gatewayclass.{GROUP}:my-gateway-class")
GATEWAY = Locator(f"gateway.{GROUP}:{NS}/my-gateway")
API = gateway_api()
# Of a kind whose definition says that policies of a namespace may target what lies in none.
WIDE = replace(COLOR_POLICY, cluster_scoped_targets=True)


def made(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Object:
    """Return an object of a kind such as `v1/Service`."""
    api, _, kind = kind.rpartition("/")
    namespace = {} if metadata.get("namespace", NS) is None else {"namespace": NS}
    metadata = {k: v for k, v in metadata.items() if v is not None}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name} | namespace | metadata,
        "spec": dict(spec),
    }


def gateway_class(name: str = "my-gateway-class") -> Object:
    return made(f"{GROUP}/v1/GatewayClass", name, {}, namespace=None)


def gateway(name: str = "my-gateway", *listeners: Mapping[str, Any], **metadata: Any) -> Object:
    """Return a gateway, by default with one listener that takes HTTP from its namespace."""
    spec = {
        "gatewayClassName": "my-gateway-class",
        "listeners": [{"port": 80, "protocol": "HTTP", **listener} for listener in listeners]
        or [listener()],
    }
    return made(f"{GROUP}/v1/Gateway", name, spec, **metadata)


def allowing(one: Object, spaces: str = "Same", **namespaces: Any) -> Object:
    """Return a gateway that takes ListenerSets from some namespaces."""
    allowed = {"namespaces": {"from": spaces, **namespaces}}
    return one | {"spec": one["spec"] | {"allowedListeners": allowed}}


def listener_set(
    name: str = "my-set", *listeners: Mapping[str, Any], parent: Any = None, **metadata: Any
) -> Object:
    """Return a ListenerSet of that gateway, by default with one listener on a port of its own."""
    spec = {
        "parentRef": parent or {"name": "my-gateway"},
        "listeners": list(listeners) or [listener("more", port=81)],
    }
    return made(f"{GROUP}/v1/ListenerSet", name, spec, **metadata)


def listener(name: str = "http", **fields: Any) -> Object:
    return {"name": name, "port": 80, "protocol": "HTTP", **fields}


def route(name: str = "route", kind: str = "HTTPRoute", **fields: Any) -> Object:
    """Return a route of one rule to that gateway; fields in capitals are of the metadata."""
    metadata = {k.lower(): fields.pop(k) for k in list(fields) if k.isupper()}
    spec = {"parentRefs": [{"name": "my-gateway"}], "rules": [{}], **fields}
    return made(f"{GROUP}/v1/{kind}", name, spec, **metadata)


def service(name: str = "service", *ports: int, **metadata: Any) -> Object:
    spec = {"ports": [{"name": f"p{port}", "port": port} for port in ports]}
    return made("v1/Service", name, spec, **metadata)


def namespace(name: str, **labels: str) -> Object:
    found = made("v1/Namespace", name, {}, namespace=None)
    found["metadata"]["labels"] = labels
    return found


def grant(of: str, by: tuple[str, str, str], name: str | None = None) -> Object:
    """Return a grant in namespace `of` for Services, Gateways and HTTPRoutes."""
    group, kind, space = by
    to = [{"group": "", "kind": "Service"}, {"group": GROUP, "kind": "Gateway"}]
    spec = {
        "from": [{"group": group, "kind": kind, "namespace": space}],
        "to": [entry | ({"name": name} if name else {}) for entry in to],
    }
    return made(f"{GROUP}/v1beta1/ReferenceGrant", "grant", spec, namespace=of)


def target(kind: str = "Gateway", name: str = "my-gateway", **fields: str) -> Object:
    group = "" if kind in ("Service", "Namespace") else GROUP
    return {"group": group, "kind": kind, "name": name} | fields


def color(name: str, ref: Object | list[Object] | None = None, **spec: Any) -> Object:
    """Return a ColorPolicy; `age` is a year.

    `synced` makes it a copy of a hub's policy: True, or when that was created.
    """
    metadata: dict[str, Any] = {"namespace": spec.pop("namespace", NS)}
    if synced := spec.pop("synced", False):
        origin = {} if synced is True else {"kuadrant.io/origin-creation": synced}
        metadata["annotations"] = {"kuadrant.io/policy-synced": "true"} | origin
    if "age" in spec:
        metadata["creationTimestamp"] = f"{spec.pop('age')}-01-01T00:00:00Z"
    refs = {"targetRefs": ref} if isinstance(ref, list) else {"targetRef": ref or target()}
    return made("examples.kube-sync.io/v1alpha1/ColorPolicy", name, refs | spec, **metadata)


def rules(**colors: str) -> Object:
    """Return rules by name."""
    return {name: {"color": value} for name, value in colors.items()}


def defaults(strategy: str = "atomic", **colors: str) -> Object:
    return {"defaults": {"strategy": strategy, "rules": rules(**colors)}}


def overrides(strategy: str = "atomic", **colors: str) -> Object:
    return {"overrides": {"strategy": strategy, "rules": rules(**colors)}}


def topology(objects: Iterable[Object], api: GatewayApi = API, *policies: PolicyKind) -> Topology:
    """Build a topology of the Gateway API and of ColorPolicies."""
    return Topology.of(objects, api.kinds, api.links, policies or (COLOR_POLICY,))


def valid(**validity: bool) -> GatewayApi:
    """Return the Gateway API with some of its rules turned off."""
    return gateway_api(Validity(**validity))


def effective(found: Topology, kind: GroupKind = COLOR_POLICY.id) -> dict[str, dict[str, Any]]:
    """Return the colours of each path that has some, by the names on the path."""
    return {
        named(found, one.path): {
            rule: value["color"] if isinstance(value, dict) and set(value) == {"color"} else value
            for rule, value in one.spec.items()
        }
        for one in found.effective(kind)
        if one.combined
    }


def named(found: Topology, path: Iterable[Locator]) -> str:
    """Return the names on a path, without their namespaces."""
    return "|".join(found[locator].name for locator in path)


def fruit(kind: str, name: str, *parents: str) -> Object:
    """Return an object of a kind that no API knows; parents are `kind:name`."""
    return made(f"v1/{kind}", name, {"parents": list(parents)}, namespace=None)


FRUITS = [GroupKind("", kind) for kind in ("Apple", "Orange", "Banana", "Peach")]
FRUIT_KINDS = [Kind(kind) for kind in FRUITS]
FRUIT_LINKS = [
    Link(parent, child, parents=lambda node, _: map(Locator, node.body["spec"]["parents"]))
    for parent, child in zip(FRUITS, [*FRUITS[1:], FRUITS[0]], strict=True)
]


def world(listeners: int, routes: int, *, bound: bool) -> Iterator[Object]:
    """Yield one gateway with routes, each with a rule and a policy, one policy above all."""
    yield gateway_class()
    yield gateway("my-gateway", *({"name": f"l{n}", "port": n + 1} for n in range(listeners)))
    yield color("gateway", **overrides("merge", sky="blue"))
    ref = {"name": "my-gateway"} | ({"sectionName": "l0"} if bound else {})
    for number in range(routes):
        name = f"route-{number}"
        yield route(name, parentRefs=[ref], hostnames=[f"{name}.example.com"])
        yield color(name, target("HTTPRoute", name), rules=rules(sky="grey", grass="green"))
