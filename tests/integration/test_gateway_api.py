"""The real Gateway API on a real API server: what it takes is read as it was meant.

Objects are created, exported as kubectl does it and read by `kube-sync topology -f -`, so that what
the API server adds (defaults, statuses, times) has its say. Kinds of its own that a user of the
library adds have no definition there: they are tested without a server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.topology.gateway import GATEWAY as GATEWAY_KIND
from kube_sync.topology.gateway import GATEWAY_CLASS, LISTENER_SET, ROUTES
from kube_sync.topology.links import REFERENCE_GRANT
from tests.commandline import Finished, kube_sync
from tests.fakes.topologies import (
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    Object,
    allowing,
    color,
    defaults,
    gateway,
    gateway_class,
    grant,
    listener,
    listener_set,
    made,
    overrides,
    route,
    rules,
    service,
    target,
)
from tools.servers.errors import ToolError
from tools.servers.stack import RunningStack
from tools.servers.thirdparty import ensure_kinds

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "manifests/examples/topology"
_ROUTES = [f"{kind.kind.lower()}s.{GROUP}" for kind in ROUTES]
KINDS = ",".join(
    [
        *(f"gateways.{GROUP}", f"listenersets.{GROUP}", *_ROUTES, f"referencegrants.{GROUP}"),
        f"backendtlspolicies.{GROUP}",
        *("services", "colorpolicies.examples.kube-sync.io"),
    ]
)
PROTOCOLS = {"HTTPRoute": "HTTP", "TCPRoute": "TCP", "TLSRoute": "TLS", "UDPRoute": "UDP"}
BACKEND = [{"name": "service", "port": 80}]


class World:
    """A namespace of the cluster: it stands for NS, in what is written and in what is read."""

    def __init__(self, cluster: RunningStack, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.spaces = [namespace]

    def create(self, *objects: Object) -> None:
        for manifest in json.loads(json.dumps(objects).replace(NS, self.namespace)):
            self.cluster.api.create(manifest, strict=False)

    def objects(self) -> str:
        """Return what is there, with the class and every namespace of the test, as one List."""
        api, spaces = self.cluster.api, self.spaces
        found = [api.get("gatewayclasses", "my-gateway-class")]
        found += (api.get("namespaces", name) for name in spaces)
        for space in spaces:
            found += (one for kind in KINDS.split(",") for one in api.get(kind, "", space)["items"])
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": found})

    def export(self, kinds: str = KINDS, output: str = "json") -> str:
        """Return the same as kubectl prints it, whose process costs ten times as much."""
        named = ["gatewayclass/my-gateway-class", *(f"namespace/{name}" for name in self.spaces)]
        asked = [named, *([kinds, f"--namespace={name}"] for name in self.spaces)]
        answers = [self.cluster.kubectl("get", *what, f"--output={output}") for what in asked]
        return "\n---\n".join(answers)

    def read(self, *arguments: str, exported: str | None = None) -> dict[str, Any]:
        text = exported if exported is not None else self.objects()
        said = printed(text, "-o", "json", *arguments).stdout
        found: dict[str, Any] = json.loads(said.replace(self.namespace, NS))
        return found


def printed(exported: str, *arguments: str, status: int = 0) -> Finished:
    """Return what `kube-sync topology -f -` says of an export."""
    answer = kube_sync("topology", "-f", "-", *arguments, stdin=exported)
    assert answer.returncode == status, answer.stderr
    return answer


@pytest.fixture(scope="module")
def cluster(gateway_api: RunningStack) -> RunningStack:
    """The stack of all, with ColorPolicy and one class beside the Gateway API."""
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    made_class = gateway_class() | {"spec": {"controllerName": "example.com/gateway"}}
    gateway_api.api.apply(made_class)
    return gateway_api


@pytest.fixture
def world(cluster: RunningStack, namespace: str) -> Iterator[World]:
    found = World(cluster, namespace)
    yield found
    for space in found.spaces:
        for kind in KINDS.split(","):
            cluster.api.delete_all(kind, space)


@pytest.fixture
def beside(world: World) -> str:
    """Another namespace; as the report has it."""
    world.spaces.append(f"{world.namespace}-b")
    world.cluster.api.create_namespace(world.spaces[1])
    return f"{NS}-b"


def edges(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(edge["from"], edge["to"]) for edge in found["edges"]}


def conditions(found: dict[str, Any], name: str) -> set[tuple[str, str, str]]:
    """Return type, status and reason of the conditions of what is called so."""
    return {
        (said["type"], said["status"], said["reason"])
        for said in found["conditions"]
        if said["locator"].endswith(f"/{name}")
    }


def httproute(name: str, section: str = "") -> str:
    return f"httproute.{GROUP}:{NS}/{name}" + (f"#{section}" if section else "")


def stream(kind: str, name: str = "", **fields: Any) -> Object:
    """Return a route that the API server asks a backend of, bound to its own listener."""
    parents = [{"name": "my-gateway", "sectionName": kind.lower()}]
    names = {"hostnames": ["a.example.com"]} if kind == "TLSRoute" else {}
    spec = {"rules": [{"backendRefs": BACKEND}], "parentRefs": parents, **names, **fields}
    return route(name or kind.lower(), kind, **spec)


def every_protocol() -> list[Object]:
    """Return a gateway and one route of each protocol."""
    listeners = [
        listener(
            kind.lower(),
            port=100 + number,
            protocol=protocol,
            allowedRoutes={"kinds": [{"kind": kind}]},
            **({"tls": {"mode": "Passthrough"}} if protocol == "TLS" else {}),
        )
        for number, (kind, protocol) in enumerate((PROTOCOLS | {"GRPCRoute": "HTTP"}).items())
    ]
    kinds = [*PROTOCOLS, "GRPCRoute"]
    return [gateway("my-gateway", *listeners), service("service", 80), *map(stream, kinds)]


def test_every_kind_of_the_library_is_served(cluster: RunningStack) -> None:
    served = cluster.kubectl("api-resources", f"--api-group={GROUP}", "--no-headers")
    names = {line.split()[-1] for line in served.splitlines()}
    gateways = (GATEWAY_CLASS, GATEWAY_KIND, LISTENER_SET)
    ours = {kind.kind for kind in (*gateways, *ROUTES, REFERENCE_GRANT.id)}
    assert ours <= names


def test_no_kind_that_is_fetched_goes_unread() -> None:
    definitions = yaml.safe_load_all(ensure_kinds("gateway-api").read_text(encoding="utf-8"))
    fetched = {definition["spec"]["names"]["plural"] for definition in definitions}
    assert fetched == {"gatewayclasses"} | {
        name.partition(".")[0] for name in KINDS.split(",") if GROUP in name
    }


def test_nothing_is_an_empty_report(cluster: RunningStack) -> None:
    nothing = cluster.kubectl("get", KINDS, "--namespace=kube-public", "--output=json")
    found = json.loads(printed(nothing, "-o", "json").stdout)
    assert not any(found.values())
    assert printed(nothing, "-o", "dot").stdout.count("label") == 0


def test_every_protocol_is_linked_from_class_to_port(world: World) -> None:
    world.create(*every_protocol())
    found = world.read()
    assert found["roots"] == [CLASS, f"namespace:{NS}", f"service:{NS}/service"]
    for kind in [*PROTOCOLS, "GRPCRoute"]:
        section, name = kind.lower(), f"{kind.lower()}.{GROUP}:{NS}/{kind.lower()}"
        assert {
            (CLASS, GATEWAY),
            (GATEWAY, f"{GATEWAY}#{section}"),
            (f"{GATEWAY}#{section}", name),
            (name, f"{name}#rule-1"),
            (f"{name}#rule-1", f"service:{NS}/service#p80"),
        } <= edges(found)
    assert found["conditions"] == []


@pytest.mark.slow
def test_the_version_that_is_asked_for_changes_nothing(world: World) -> None:
    world.create(*every_protocol())
    older = KINDS
    for plural, version in (("tcproutes", "v1alpha2"), ("tlsroutes", "v1alpha3"),
                            ("udproutes", "v1alpha2"), ("gateways", "v1beta1"),
                            ("httproutes", "v1beta1"), ("referencegrants", "v1")):  # fmt: skip
        older = older.replace(f"{plural}.{GROUP}", f"{plural}.{version}.{GROUP}")
    exported = world.export(older)
    assert f'"{GROUP}/v1alpha2"' in exported
    assert world.read(exported=exported) == world.read()


@pytest.mark.slow
def test_as_yaml_and_in_another_order_it_is_the_same_bytes(world: World) -> None:
    world.create(*every_protocol(), color("one", rules=rules(sky="blue")))
    turned = ",".join(reversed(KINDS.split(",")))
    exports = [world.export(), world.export(output="yaml"), world.export(turned)]
    assert len(set(exports)) == len(exports)
    for output in ("json", "dot"):
        told = {printed(exported, "-o", output).stdout for exported in exports}
        assert len(told) == 1


@pytest.mark.parametrize(("bound", "each"), [(False, 4), (True, 1)])
def test_paths_are_listeners_times_routes_unless_these_are_bound(
    world: World,
    bound: bool,  # noqa: FBT001 - a parameter of the test
    each: int,
) -> None:
    listeners = [listener(f"l{number}", port=81 + number) for number in range(4)]
    parent = {"name": "my-gateway"} | ({"sectionName": "l2"} if bound else {})
    routes = [route(f"r{number}", parentRefs=[parent]) for number in range(3)]
    world.create(gateway("my-gateway", *listeners), *routes)
    for number in range(3):
        to = httproute(f"r{number}", "rule-1").replace(NS, world.namespace)
        paths = world.read("--from", CLASS, "--to", to)["paths"]
        assert len(paths) == each
        assert all(path[0] == CLASS for path in paths)


@pytest.mark.slow
def test_a_service_whose_ports_are_named_is_a_root(world: World) -> None:
    backends = [{"name": "service", "port": 80}, {"name": "service", "port": 81}]
    world.create(
        gateway(), service("service", 80, 81), route(rules=[{"backendRefs": backends}])
    )  # fmt: skip
    found = world.read()
    assert f"service:{NS}/service" in found["roots"]
    rule = httproute("route", "rule-1")
    assert {child for parent, child in edges(found) if parent == rule} == {
        f"service:{NS}/service#p80",
        f"service:{NS}/service#p81",
    }


@pytest.mark.slow
def test_rules_without_a_name_are_called_by_their_place(world: World) -> None:
    named = [{"name": "first"}, {}, {"name": "third"}]
    world.create(gateway(), route(rules=named))
    nodes = {node["locator"] for node in world.read()["nodes"]}
    assert {httproute("route", name) for name in ("first", "rule-2", "third")} <= nodes


def test_policies_attach_to_sections_and_stay_without_a_target(world: World) -> None:
    listeners = [listener("http"), listener("more", port=81)]
    world.create(
        gateway("my-gateway", *listeners),
        color("a", target(sectionName="http"), rules=rules(sky="blue")),
        color("b", target(sectionName="no-such"), rules=rules(sky="blue")),
        color("c", target(name="no-such"), rules=rules(sky="blue")),
    )
    found = world.read()
    policies = f"colorpolicy.examples.kube-sync.io:{NS}"
    assert {edge for edge in edges(found) if edge[0].startswith("colorpolicy")} == {
        (f"{policies}/a", f"{GATEWAY}#http")
    }
    assert ("Accepted", "True", "Accepted") in conditions(found, "a")
    for name in ("b", "c"):
        assert ("Accepted", "False", "TargetNotFound") in conditions(found, name)
        assert f"{policies}/{name}" in {node["locator"] for node in found["nodes"]}


def test_a_parent_elsewhere_is_named_with_its_namespace_and_has_to_take_it(
    world: World, beside: str
) -> None:
    parents = [{"name": "my-gateway", "namespace": NS}]
    world.create(
        gateway(
            "my-gateway",
            listener("own"),
            listener("all", port=81, allowedRoutes={"namespaces": {"from": "All"}}),
            listener("some", port=82, allowedRoutes={"namespaces": {
                "from": "Selector",
                "selector": {"matchLabels": {"kubernetes.io/metadata.name": beside}},
            }}),
        ),
        route("there", parentRefs=parents, NAMESPACE=beside),
        route("lost", NAMESPACE=beside),
    )  # fmt: skip
    found = world.read()
    there = f"httproute.{GROUP}:{beside}/there"
    assert {parent for parent, child in edges(found) if child == there} == {
        f"{GATEWAY}#all",
        f"{GATEWAY}#some",
    }
    assert conditions(found, "lost") == {("Accepted", "False", "NoMatchingParent")}
    plain = edges(world.read("--plain"))
    assert {parent for parent, child in plain if child == there} == {
        f"{GATEWAY}#{name}" for name in ("own", "all", "some")
    }


def test_listenersets_are_read_as_the_api_server_stores_them(world: World, beside: str) -> None:
    """It fills in what nobody said: that a Gateway takes none, and what a parent is."""
    parent = {"name": "my-gateway", "namespace": NS}
    through = [{"kind": "ListenerSet", "name": "mine"}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": beside}}
    world.create(
        allowing(gateway(), "Selector", selector=selector),
        gateway("closed"),
        listener_set("mine", listener("more", port=81), parent=parent, namespace=beside),
        listener_set("same", listener("more", port=81), parent=parent, namespace=beside),
        listener_set("here"),
        listener_set("refused", parent={"name": "closed"}),
        route("route", parentRefs=through, NAMESPACE=beside),
        color("p", target("ListenerSet", "mine"), namespace=beside, rules=rules(sky="blue")),
    )
    found = world.read()
    mine, to = f"listenerset.{GROUP}:{beside}/mine", f"httproute.{GROUP}:{beside}/route"
    assert {(GATEWAY, mine), (mine, f"{mine}#more"), (f"{mine}#more", to)} <= edges(found)
    (effective,) = found["effective"].values()
    assert effective["path"] == [CLASS, GATEWAY, mine, f"{mine}#more", to, f"{to}#rule-1"]
    for name in ("here", "refused"):
        assert conditions(found, name) == {("Accepted", "False", "NotAllowed")}
    # Made in the same second or after it: by the name.
    assert conditions(found, "same#more") == {("Conflicted", "True", "HostnameConflict")}


def test_a_backend_elsewhere_needs_a_grant(world: World, beside: str) -> None:
    refs = [{"name": "service", "namespace": beside, "port": 80}]
    world.create(
        gateway(), route(rules=[{"backendRefs": refs}]), service("service", 80, namespace=beside)
    )
    rule, port = httproute("route", "rule-1"), f"service:{beside}/service#p80"
    assert (rule, port) not in edges(before := world.read())
    assert ("ResolvedRefs", "False", "RefNotPermitted") in conditions(before, "route#rule-1")
    world.create(grant(beside, (GROUP, "HTTPRoute", NS)))
    assert (rule, port) in edges(after := world.read())
    assert conditions(after, "route#rule-1") == set()


def test_hostnames_of_listener_and_route_have_to_meet(world: World) -> None:
    listeners = [
        listener("wild", hostname="*.example.com"),
        listener("other", hostname="*.example.org", port=81),
    ]
    world.create(
        gateway("my-gateway", *listeners),
        route("met", hostnames=["a.example.com"]),
        route("unmet", hostnames=["a.example.net"]),
    )
    found = world.read()
    parents = {parent for parent, child in edges(found) if child == httproute("met")}
    assert parents == {f"{GATEWAY}#wild"}
    assert conditions(found, "unmet") == {("Accepted", "False", "NoMatchingListenerHostname")}


def three_levels() -> list[Object]:
    return [
        gateway(),
        route(),
        color("gw", **overrides("merge", a="1")),
        color("rt", target("HTTPRoute", "route"), **defaults("merge", a="2", b="2")),
        color("rl", target("HTTPRoute", "route", sectionName="rule-1"), rules=rules(c="3")),
    ]


@pytest.mark.slow
def test_three_levels_keep_the_source_of_each_rule(world: World) -> None:
    world.create(*three_levels())
    (entry,) = world.read()["effective"].values()
    source = f"colorpolicy.examples.kube-sync.io:{NS}"
    assert entry["spec"] == {"rules": rules(a="1", b="2", c="3")}
    assert entry["sources"] == {"a": f"{source}/gw", "b": f"{source}/rt", "c": f"{source}/rl"}


@pytest.mark.slow
def test_a_status_that_was_written_changes_nothing(world: World) -> None:
    world.create(*three_levels())
    before = world.read()
    patch = {"status": {"conditions": [{
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}}  # fmt: skip
    world.cluster.kubectl(
        "patch", f"gateways.{GROUP}", "my-gateway", "--subresource=status", "--type=merge",
        f"--patch={json.dumps(patch)}", f"--namespace={world.namespace}",
    )  # fmt: skip
    assert '"2026-01-01T00:00:00Z"' in world.export()
    assert world.read() == before


def test_of_two_of_one_target_the_server_knows_the_older(world: World) -> None:
    world.create(gateway(), route(), color("b", rules=rules(sky="b")))
    world.create(color("a", rules=rules(sky="a")))
    kind = "colorpolicies.examples.kube-sync.io"
    exported = world.cluster.api.get(kind, namespace=world.namespace)
    metadata = [policy["metadata"] for policy in exported["items"]]
    ordered = sorted(metadata, key=lambda one: (one["creationTimestamp"], one["name"]))
    (entry,) = world.read()["effective"].values()
    # Bare rules are atomic defaults: the newer one replaces the older.
    assert entry["spec"]["rules"]["sky"]["color"] == ordered[-1]["name"]
    assert len(world.read()["conflicts"]) == 1


def test_the_policy_of_the_gateway_api_itself_attaches_to_its_service(world: World) -> None:
    validation = {"wellKnownCACertificates": "System", "hostname": "a.example.com"}
    spec = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "service", "sectionName": "p80"}],
        "validation": validation,
    }
    world.create(service("service", 80), made(f"{GROUP}/v1/BackendTLSPolicy", "tls", spec))
    found = world.read()
    policy = f"backendtlspolicy.{GROUP}:{NS}/tls"
    assert (policy, f"service:{NS}/service#p80") in edges(found)
    definition = world.cluster.api.get("customresourcedefinitions", f"backendtlspolicies.{GROUP}")
    declared = world.read(exported=f"{world.objects()}\n---\n{json.dumps(definition)}")
    assert edges(declared) == edges(found)


def test_what_comes_to_nothing_is_said_and_harms_no_other(world: World) -> None:
    world.create(
        gateway(),
        gateway("classless") | {"spec": gateway()["spec"] | {"gatewayClassName": "no-such"}},
        route(),
        route("lost", parentRefs=[{"name": "no-such"}]),
        route("astray", parentRefs=[{"name": "my-gateway", "sectionName": "no-such"}]),
        route("foreign", parentRefs=[{"name": "a", "group": "", "kind": "Service"}]),
        route("backless", rules=[{"backendRefs": [{"name": "no-such", "port": 80}]}]),
        stream("UDPRoute", "wrong", parentRefs=[{"name": "my-gateway"}]),
    )
    found = world.read()
    refused = {"lost": "NoMatchingParent", "astray": "NoMatchingParent"}
    for name, reason in (refused | {"wrong": "NotAllowedByListeners"}).items():
        assert conditions(found, name) == {("Accepted", "False", reason)}
    assert conditions(found, "classless") == {("Accepted", "Unknown", "Pending")}
    assert conditions(found, "backless#rule-1") == {("ResolvedRefs", "False", "BackendNotFound")}
    assert conditions(found, "foreign") == set()
    taken = {child for parent, child in edges(found) if parent == f"{GATEWAY}#http"}
    assert taken == {httproute("route"), httproute("backless")}


@pytest.mark.slow
def test_strict_fails_for_what_a_cluster_has_and_still_prints(world: World) -> None:
    world.create(gateway(), color("c", target(name="no-such"), rules=rules(sky="blue")))
    answer = printed(world.export(), "--strict", "-o", "json", status=1)
    assert "TargetNotFound" in answer.stderr
    assert json.loads(answer.stdout)["nodes"]


TWICE = [listener("http"), listener("http", port=81)]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (gateway("gw", *TWICE), "Duplicate value|Listener name must be unique"),
        (gateway("gw", listener("a"), listener("b")), "Combination of port, protocol and hostname"),
        (gateway("gw") | {"spec": {"gatewayClassName": "a", "listeners": "x"}}, "listeners"),
        (gateway("gw", listener(hostname="a.*.com")), "spec.listeners.*hostname"),
        (gateway("gw", listener("")), "spec.listeners.*name"),
        (route(rules=[{"name": "a"}, {"name": "a"}]), "Rule name must be unique"),
        (route(parentRefs=[{"name": "my-gateway"}] * 2), "sectionName or port must be"),
        (route(parentRefs=[{"namespace": "a"}]), "spec.parentRefs.*name.*Required"),
        (route(rules=[{"backendRefs": [{"name": "a"}]}]), "Must have port for Service reference"),
        (stream("UDPRoute", rules=[{}]), "spec.rules.*backendRefs"),
        (stream("TLSRoute", hostnames=[]), "spec.hostnames"),
        (grant(NS, (GROUP, "HTTPRoute", NS)) | {"spec": {"from": [], "to": []}}, "spec.from"),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_is_nothing_that_a_cluster_can_export(
    cluster: RunningStack, broken: Object, said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        World(cluster, "default").create(broken)


def test_a_table_comes_straight_out_of_the_pipe(world: World) -> None:
    world.create(*three_levels())
    answer = printed(world.export(), "--effective", "ColorPolicy")
    rows = [line.split() for line in answer.stdout.splitlines() if "#rule-1" in line]
    assert [(row[-3], row[-1].rpartition("/")[2]) for row in rows] == [
        ("a", "gw"),
        ("b", "rt"),
        ("c", "rl"),
    ]


def test_the_example_applies_and_is_read_as_from_its_files(cluster: RunningStack) -> None:
    try:
        cluster.kubectl("apply", "--server-side", "-f", str(EXAMPLE))
        exported = [
            cluster.kubectl("get", *what, "--output=json")
            for what in (
                ("gatewayclasses", "lab"),
                ("namespaces", "infra", "shop"),
                (KINDS, "--namespace=infra"),
                (KINDS, "--namespace=shop"),
            )
        ]
    finally:  # the namespaces stay: nobody here would ever empty them
        cluster.kubectl("delete", "gatewayclass", "lab", "--ignore-not-found")
        for namespace in ("infra", "shop"):
            cluster.kubectl("delete", KINDS, "--all", f"--namespace={namespace}")
    live = json.loads(printed("\n---\n".join(exported), "-o", "json").stdout)
    files = "\n---\n".join(file.read_text(encoding="utf-8") for file in EXAMPLE.glob("*.yaml"))
    offline = json.loads(printed(files, "-o", "json").stdout)
    assert live == offline
    assert len(live["effective"]) == 4
