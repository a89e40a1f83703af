"""What is linked to what in the Gateway API, and what a link that comes to nothing says."""

from __future__ import annotations

import pytest

from kube_sync.topology import Condition, Locator, Topology
from kube_sync.topology.gateway import PLAIN, gateway_api
from tests.fakes.topologies import (
    API,
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    Object,
    gateway,
    gateway_class,
    grant,
    listener,
    namespace,
    route,
    service,
    topology,
    valid,
)

PLAINLY = gateway_api(PLAIN)
KINDS = ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute")
BACKEND = [{"backendRefs": [{"name": "service"}]}]


def of_route(name: str = "route", kind: str = "httproute") -> Locator:
    return Locator(f"{kind}.{GROUP}:{NS}/{name}")


def listeners_of(found: Topology, name: str = "route") -> list[str]:
    return [parent.partition("#")[2] for parent in found.all.parents(of_route(name))]


def reasons(found: Topology) -> list[tuple[str, str]]:
    return [(condition.type, condition.reason) for condition in found.conditions()]


def said(found: Topology) -> Condition:
    (condition,) = found.conditions()
    return condition


def one_of_each() -> list[Object]:
    routes = [route(f"{kind.lower()}-1", kind, rules=BACKEND) for kind in KINDS]
    return [gateway_class(), gateway(), *routes, service("service", 80)]


def test_without_sections_a_gateway_leads_to_routes_and_these_to_services() -> None:
    found = topology(one_of_each(), gateway_api(sections=False))
    assert found.all.roots() == (CLASS,)
    assert len(found.all.children(GATEWAY)) == len(KINDS)
    assert len(found.all.parents(Locator(f"service:{NS}/service"))) == len(KINDS)


def test_with_sections_listeners_rules_and_ports_lie_between() -> None:
    found = topology(one_of_each(), PLAINLY)
    paths = list(found.all.paths(CLASS, Locator(f"service:{NS}/service#p80")))
    assert len(paths) == len(KINDS)
    assert paths[1] == (
        CLASS,
        GATEWAY,
        f"{GATEWAY}#http",
        of_route("httproute-1"),
        f"{of_route('httproute-1')}#rule-1",
        f"service:{NS}/service",
        f"service:{NS}/service#p80",
    )


@pytest.mark.parametrize(("bound", "each"), [(False, 3), (True, 1)])
def test_a_route_lies_below_each_listener_unless_it_names_one(bound: bool, each: int) -> None:  # noqa: FBT001 - a parameter of the test
    ref = {"name": "my-gateway"} | ({"sectionName": "b"} if bound else {})
    routes = [route(f"r{n}", parentRefs=[ref]) for n in range(4)]
    found = topology([gateway_class(), gateway("my-gateway", *map(listener, "abc")), *routes])
    assert len(found.all.children(GATEWAY)) == 3
    for number in range(4):
        rule = Locator(f"{of_route(f'r{number}')}#rule-1")
        assert len(found.paths_to(rule)) == each


def test_a_backend_with_a_port_is_the_port_and_the_service_a_root() -> None:
    rules = [{"backendRefs": [{"name": "service", "port": 81}]}]
    found = topology([gateway_class(), gateway(), route(rules=rules), service("service", 80, 81)])
    own = Locator(f"service:{NS}/service")
    assert found.all.children(Locator(f"{of_route()}#rule-1")) == (f"{own}#p81",)
    assert own in found.all.roots()


def test_rules_without_a_name_are_called_by_their_place_among_all() -> None:
    rules = [{"name": "first"}, {}, {"name": "third"}]
    found = topology([route(rules=rules)], PLAINLY)
    assert [rule.partition("#")[2] for rule in found.all.children(of_route())] == [
        "first",
        "rule-2",
        "third",
    ]


def test_of_two_sections_with_one_name_the_first_counts() -> None:
    found = topology([gateway_class(), gateway("my-gateway", listener(port=1), listener(port=2))])
    assert found[Locator(f"{GATEWAY}#http")].body["port"] == 1
    assert said(found).message == 'two sections are named "http": the first counts'


def test_a_parent_in_another_namespace_is_named_with_it() -> None:
    elsewhere = gateway("my-gateway", listener(allowedRoutes={"namespaces": {"from": "All"}}))
    elsewhere["metadata"]["namespace"] = "other"
    ref = {"name": "my-gateway", "namespace": "other"}
    found = topology([gateway_class(), elsewhere, route(parentRefs=[ref]), route("lost")])
    assert listeners_of(found) == ["http"]
    assert listeners_of(found, "lost") == []
    assert reasons(found) == [("Accepted", "NoMatchingParent")]


def test_parents_of_another_kind_are_none_of_ours() -> None:
    refs = [{"name": "my-gateway", "kind": "Service", "group": ""}]
    found = topology([gateway_class(), gateway(), route(parentRefs=refs)])
    assert (listeners_of(found), found.conditions()) == ([], [])


def test_the_port_of_a_parent_chooses_among_its_listeners() -> None:
    two = gateway("my-gateway", listener("a", port=1), listener("b", port=2))
    bound = route(parentRefs=[{"name": "my-gateway", "port": 2}])
    assert listeners_of(topology([two, bound])) == ["b"]
    assert listeners_of(topology([two, bound], valid(ports=False))) == ["a", "b"]


def test_a_listener_that_is_not_there_is_said() -> None:
    ref = {"name": "my-gateway", "sectionName": "none"}
    found = topology([gateway_class(), gateway(), route(parentRefs=[ref])])
    assert said(found) == Condition(
        of_route(),
        "Accepted",
        "False",
        "NoMatchingParent",
        f"spec.parentRefs[0]: {GATEWAY} has no such listener",
    )


@pytest.mark.parametrize(
    ("own", "wanted", "meet"),
    [
        ("", ["a.example.com"], True),
        ("a.example.com", [], True),
        ("a.example.com", ["A.example.com"], True),
        ("a.example.com", ["b.example.com"], False),
        ("*.example.com", ["b.example.com"], True),
        ("*.example.com", ["a.b.example.com"], True),
        ("*.example.com", ["example.com"], False),
        ("a.example.com", ["*.example.com"], True),
        ("a.example.org", ["*.example.com"], False),
        ("*.example.com", ["*.b.example.com"], True),
        ("*.b.example.com", ["*.example.com"], True),
        ("*.example.com", ["*.example.org"], False),
        ("a.example.com", ["b.example.com", "a.example.com"], True),
    ],
)
def test_hostnames_of_listener_and_route_have_to_meet(
    own: str,
    wanted: list[str],
    meet: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    objects = [
        gateway_class(),
        gateway("my-gateway", listener(hostname=own)),
        route(hostnames=wanted),
    ]
    found = topology(objects)
    assert listeners_of(found) == (["http"] if meet else [])
    assert reasons(found) == ([] if meet else [("Accepted", "NoMatchingListenerHostname")])
    assert listeners_of(topology(objects, valid(hostnames=False))) == ["http"]


def test_routes_without_hostnames_of_their_own_take_any() -> None:
    tcp = gateway("my-gateway", listener(protocol="TCP", hostname="a.example.com"))
    found = topology([tcp, route("route", "TCPRoute")])
    assert found.all.parents(of_route(kind="tcproute")) == (f"{GATEWAY}#http",)


@pytest.mark.parametrize(
    ("protocol", "kinds", "taken"),
    [
        ("HTTP", None, ["grpcroute", "httproute"]),
        ("HTTPS", None, ["grpcroute", "httproute"]),
        ("TLS", None, ["tcproute", "tlsroute"]),
        ("TCP", None, ["tcproute"]),
        ("UDP", None, ["udproute"]),
        ("example.com/own", None, [kind.lower() for kind in sorted(KINDS)]),
        ("HTTP", [{"kind": "GRPCRoute"}], ["grpcroute"]),
        ("HTTP", [{"group": "example.com", "kind": "GRPCRoute"}], []),
    ],
)
def test_a_listener_takes_the_routes_of_its_protocol_or_of_its_choice(
    protocol: str, kinds: list[Object] | None, taken: list[str]
) -> None:
    allowed = {"kinds": kinds} if kinds else {}
    one = gateway("my-gateway", listener(protocol=protocol, allowedRoutes=allowed))
    routes = [route("route", kind) for kind in KINDS]
    found = topology([gateway_class(), one, *routes])
    children = found.all.children(Locator(f"{GATEWAY}#http"))
    assert [child.partition(".")[0] for child in children] == taken
    refused = len(KINDS) - len(taken)
    assert reasons(found) == [("Accepted", "NotAllowedByListeners")] * refused
    plain = topology([one, *routes], valid(allowed_routes=False))
    assert len(plain.all.children(Locator(f"{GATEWAY}#http"))) == len(KINDS)


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spaces", "taken"),
    [
        ({}, False),
        ({"from": "Same"}, False),
        ({"from": "None"}, False),
        ({"from": "All"}, True),
        ({"from": "Selector"}, False),
        ({"from": "Selector", "selector": None}, False),
        ({"from": "Selector", "selector": {}}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}, False),
        ({"from": "Selector", "selector": expression("team", "In", "a", "b")}, True),
        ({"from": "Selector", "selector": expression("team", "NotIn", "a")}, False),
        ({"from": "Selector", "selector": expression("team", "Exists")}, True),
        ({"from": "Selector", "selector": expression("team", "DoesNotExist")}, False),
        (
            {
                "from": "Selector",
                "selector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}},
            },
            True,
        ),
    ],
)
def test_a_listener_takes_routes_of_the_namespaces_that_it_says(
    spaces: Object,
    taken: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    one = gateway("my-gateway", listener(allowedRoutes={"namespaces": spaces}))
    ref = {"name": "my-gateway", "namespace": NS}
    found = topology([one, namespace("apps", team="a"), route(NAMESPACE="apps", parentRefs=[ref])])
    assert bool(found.all.children(Locator(f"{GATEWAY}#http"))) == taken


def test_a_label_that_a_namespace_gets_lets_its_routes_in() -> None:
    spaces = {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}
    one = gateway("my-gateway", listener(allowedRoutes={"namespaces": spaces}))
    ref = {"name": "my-gateway", "namespace": NS}
    found = topology([one, route(NAMESPACE="apps", parentRefs=[ref])])
    assert found.all.children(Locator(f"{GATEWAY}#http")) == ()
    found.update([namespace("apps", team="a")])
    assert len(found.all.children(Locator(f"{GATEWAY}#http"))) == 1


def test_a_selector_that_means_nothing_is_said_of_the_route() -> None:
    spaces = {"from": "Selector", "selector": expression("team", "Like", "a")}
    one = gateway("my-gateway", listener(allowedRoutes={"namespaces": spaces}))
    found = topology([gateway_class(), one, route()])
    assert said(found).message == 'matchExpressions.operator: "Like" is none'


def test_a_backend_in_another_namespace_needs_a_grant() -> None:
    rules = [{"backendRefs": [{"name": "service", "namespace": "other"}]}]
    objects = [gateway_class(), gateway(), route(rules=rules)]
    objects.append(service("service", namespace="other"))
    rule, other = Locator(f"{of_route()}#rule-1"), (Locator("service:other/service"),)
    found = topology(objects)
    assert found.all.children(rule) == ()
    assert reasons(found) == [("ResolvedRefs", "RefNotPermitted")]
    assert topology(objects, valid(reference_grants=False)).all.children(rule) == other
    found.update([grant("other", (GROUP, "HTTPRoute", NS))])
    assert (found.all.children(rule), found.conditions()) == (other, [])


@pytest.mark.parametrize(
    "useless",
    [
        grant("other", (GROUP, "GRPCRoute", NS)),
        grant("other", (GROUP, "HTTPRoute", "third")),
        grant("other", (GROUP, "HTTPRoute", NS), "another"),
        grant(NS, (GROUP, "HTTPRoute", NS)),
        grant("other", (GROUP, "HTTPRoute", NS)) | {"spec": {"from": "all"}},
    ],
)
def test_a_grant_to_others_of_others_or_elsewhere_is_none(useless: Object) -> None:
    rules = [{"backendRefs": [{"name": "service", "namespace": "other"}]}]
    found = topology([gateway(), route(rules=rules), service(namespace="other"), useless])
    assert found.all.children(Locator(f"{of_route()}#rule-1")) == ()


def test_a_grant_by_name_is_for_that_one() -> None:
    rules = [{"backendRefs": [{"name": "service", "namespace": "other"}]}]
    named = grant("other", (GROUP, "HTTPRoute", NS), "service")
    found = topology([gateway(), route(rules=rules), service(namespace="other"), named])
    assert len(found.all.children(Locator(f"{of_route()}#rule-1"))) == 1


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ({"name": "none"}, f"service:{NS}/none is not there"),
        ({"name": "none", "port": 80}, f"service:{NS}/none is not there"),
        ({"name": "service", "port": 81}, f"service:{NS}/service has no port 81"),
    ],
)
def test_a_backend_that_is_not_there_is_said(ref: Object, message: str) -> None:
    found = topology(
        [gateway_class(), gateway(), route(rules=[{"backendRefs": [ref]}]), service("service", 80)]
    )
    condition = said(found)
    assert (condition.type, condition.reason) == ("ResolvedRefs", "BackendNotFound")
    assert condition.message == message


def test_backends_of_other_kinds_are_none_of_ours() -> None:
    ref = {"name": "bucket", "kind": "Bucket", "group": "example.com"}
    found = topology([gateway_class(), gateway(), route(rules=[{"backendRefs": [ref]}])])
    assert found.conditions() == []


def test_a_class_that_is_not_there_is_waited_for() -> None:
    found = topology([gateway()])
    assert said(found)[1:4] == ("Accepted", "Unknown", "Pending")
    found.update([gateway_class()])
    assert found.conditions() == []


@pytest.mark.parametrize("sections", [False, True])
def test_a_gateway_that_is_not_there_harms_no_other(sections: bool) -> None:  # noqa: FBT001 - a parameter of the test
    refs = [{"name": "none"}, {"name": "my-gateway"}]
    found = topology(
        [gateway_class(), gateway(), route(parentRefs=refs)], gateway_api(sections=sections)
    )
    assert len(found.all.parents(of_route())) == 1
    assert said(found).message == f"spec.parentRefs[0]: gateway.{GROUP}:{NS}/none is not there"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"rules": {}}, "spec.rules: expected a list, found a mapping"),
        ({"rules": ["all"]}, "spec.rules[0]: expected a mapping, found text"),
        ({"rules": [{"name": 7}]}, "name: expected text, found a number"),
        ({"parentRefs": "gw"}, "spec.parentRefs: expected a list, found text"),
        ({"hostnames": [True]}, "spec.hostnames[0]: expected text, found true or false"),
        (
            {"parentRefs": [{"name": "my-gateway", "port": "80"}]},
            "port: expected a number, found text",
        ),
    ],
)
def test_what_is_malformed_is_said_of_the_object_and_harms_no_other(
    broken: Object, message: str
) -> None:
    one = gateway("my-gateway", listener(hostname="a.example.com"))
    found = topology([gateway_class(), one, route("other"), route(**broken)])
    assert said(found)[:4] == (of_route(), "Accepted", "False", "Invalid")
    assert said(found).message == message
    assert of_route("other") in found.all.children(Locator(f"{GATEWAY}#http"))


def test_a_listener_without_a_name_and_what_comes_after_it_are_no_nodes() -> None:
    found = topology(
        [gateway_class(), gateway("my-gateway", listener(), {"name": ""}, listener("c"))]
    )
    assert found.all.children(GATEWAY) == (f"{GATEWAY}#http",)
    assert said(found).message == "spec.listeners[1].name: a listener needs one"


def test_a_spec_that_is_no_mapping_is_said() -> None:
    broken = gateway() | {"spec": "none"}
    found = topology([broken])
    assert [c.message for c in found.conditions()] == ["spec: expected a mapping, found text"]


def test_a_port_without_a_name_is_called_by_its_number() -> None:
    plain = service()
    plain["spec"]["ports"] = [{"port": 80}]
    found = topology([plain])
    assert found.all.children(Locator(f"service:{NS}/service")) == (f"service:{NS}/service#80",)


def test_a_route_that_names_a_listener_twice_lies_below_it_once() -> None:
    refs = [{"name": "my-gateway"}, {"name": "my-gateway", "sectionName": "http"}]
    found = topology([gateway_class(), gateway(), route(parentRefs=refs)], API)
    assert len(list(found.all.paths(GATEWAY, of_route()))) == 1


def test_what_was_malformed_and_is_right_again_has_no_condition_any_more() -> None:
    found = topology([gateway_class(), gateway("my-gateway", {"name": ""}), route(rules="none")])
    assert reasons(found) == [("Accepted", "Invalid")] * 2 + [("Accepted", "NoMatchingParent")]
    found.update([gateway(), route()])
    assert found.conditions() == []


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        ([], ["HTTPRoute", "GRPCRoute"]),
        ([{"kind": "GRPCRoute"}, {"kind": "TCPRoute"}], ["GRPCRoute"]),
        ([{"kind": "TCPRoute"}], []),
    ],
)
def test_the_kinds_of_a_listener_narrow_those_of_its_protocol(
    kinds: list[Object], taken: list[str]
) -> None:
    one = gateway("my-gateway", listener(allowedRoutes={"kinds": kinds}))
    for kind in ("HTTPRoute", "GRPCRoute", "TCPRoute"):
        found = topology([one, route("route", kind)])
        assert bool(found.all.children(Locator(f"{GATEWAY}#http"))) == (kind in taken)


def test_a_protocol_of_ones_own_carries_the_kinds_that_are_said() -> None:
    own = listener(protocol="example.com/own", allowedRoutes={"kinds": [{"kind": "TCPRoute"}]})
    found = topology([gateway("my-gateway", own), route("route", "TCPRoute")])
    assert found.all.children(Locator(f"{GATEWAY}#http"))
