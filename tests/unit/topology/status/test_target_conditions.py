"""What is said of targets, and where there is a place for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.topology import GroupKind, Locator
from kube_sync.topology.gateway import gateway_api
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.raw_json import Malformed
from kube_sync.topology.status.target_conditions import Affected
from tests.fakes.topologies import (
    API,
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    WIDE,
    Object,
    allowing,
    color,
    gateway,
    gateway_class,
    listener,
    listener_set,
    namespace,
    route,
    rules,
    service,
    target,
    topology,
)

ROUTE = target("HTTPRoute", "route")
AT_ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
BLUE: Any = {"rules": rules(a="blue")}
BASE: list[Object] = [gateway_class(), gateway(), route()]
DEFAULTS: Object = {"group": GROUP, "kind": "Gateway"}


def said(objects: list[Object], name: Locator) -> list[str]:
    found = Affected(topology(objects, API, WIDE))
    return [condition.message for condition in found.of(name)]


def through(objects: list[Object], name: Locator = AT_ROUTE) -> list[tuple[Any, list[str]]]:
    found = topology(objects)
    entries = Affected(found).entries(found[name])
    return [(entry.reference, [c.message for c in entry.conditions]) for entry in entries]


def by(*names: str) -> list[str]:
    return [f"Object affected by ColorPolicy [{' '.join(f'{NS}/{name}' for name in names)}]"]


def test_an_affected_gateway_and_all_below_it_say_so() -> None:
    objects = [*BASE, color("p", **BLUE)]
    assert said(objects, GATEWAY) == said(objects, Locator(f"{GATEWAY}#http")) == by("p")
    assert said(objects, AT_ROUTE) == by("p")
    assert said(objects, CLASS) == []


def test_the_condition_is_named_after_the_kind_of_policies() -> None:
    (condition,) = Affected(topology([*BASE, color("p", **BLUE)])).of(GATEWAY)
    assert condition[:3] == ("kube-sync.io/ColorPolicyAffected", "True", "Accepted")


def test_what_has_no_status_of_its_own_is_said_of_what_it_is_in() -> None:
    rule = color("p", ROUTE | {"sectionName": "rule-1"}, **BLUE)
    assert said([*BASE, rule], AT_ROUTE) == by("p")
    assert through([*BASE, rule]) == [(DEFAULTS | {"name": "my-gateway"}, by("p"))]
    assert said([*BASE, rule], GATEWAY) == []


def test_namespaces_and_classes_say_so_where_they_are_targeted() -> None:
    world = [*BASE, namespace(NS)]
    space = Locator(f"namespace:{NS}")
    assert said([*world, color("p", target("Namespace", NS), **BLUE)], space) == by("p")
    above = color("p", target("GatewayClass", "my-gateway-class"), **BLUE)
    assert said([*world, above], CLASS) == by("p")


def test_services_say_so_where_policies_take_effect_at_them() -> None:
    backend = [{"backendRefs": [{"name": "service", "port": 80}]}]
    kind = replace(COLOR_POLICY, level=frozenset({GroupKind("", "ServicePort")}))
    objects = [*BASE[:2], route(rules=backend), service("service", 80), color("p", **BLUE)]
    found = Affected(topology(objects, API, kind)).of(Locator(f"service:{NS}/service"))
    assert [condition.message for condition in found] == by("p")


def test_a_route_says_so_for_each_parent_that_it_is_affected_through() -> None:
    refs: list[Object] = [
        {"name": "my-gateway"},
        {"name": "other", "sectionName": "http", "port": 80},
    ]
    objects = [
        gateway_class(),
        gateway(),
        gateway("other"),
        route(parentRefs=refs),
        color("p", target(name="other"), **BLUE),
    ]
    assert through(objects) == [(DEFAULTS | refs[1], by("p"))]
    both = [*objects, color("q", ROUTE, rules=rules(b="red"))]
    assert through(both) == [
        (DEFAULTS | refs[0], by("q")),
        (DEFAULTS | refs[1], by("q")),  # its rules come first, and it is atomic
    ]


@pytest.mark.parametrize(
    ("ref", "affected"),
    [
        ({"name": "my-gateway"}, True),
        ({"name": "my-gateway", "sectionName": "one"}, True),
        ({"name": "my-gateway", "sectionName": "two"}, False),
        ({"name": "my-gateway", "port": 1}, True),
        ({"name": "my-gateway", "port": 2}, False),
        ({"name": "my-gateway", "namespace": NS, "kind": "Gateway", "group": GROUP}, True),
        ({"name": "my-gateway", "namespace": "other"}, False),
        ({"name": "none"}, False),
        ({"name": "my-gateway", "kind": "Service", "group": ""}, False),
    ],
)
def test_a_parent_is_the_listeners_that_it_means(ref: Object, affected: bool) -> None:  # noqa: FBT001
    two = gateway("my-gateway", listener("one", port=1), listener("two", port=2))
    policy = color("p", target(sectionName="one"), **BLUE)
    found = through([gateway_class(), two, route(parentRefs=[ref]), policy])
    assert [reference for reference, _ in found] == ([DEFAULTS | ref] if affected else [])


def test_a_route_is_affected_through_the_listenerset_that_it_names() -> None:
    """It may have the name of its Gateway."""
    own = listener_set("my-gateway", listener("http", port=81))
    refs: list[Object] = [
        {"name": "my-gateway"},
        {"kind": "ListenerSet", "name": "my-gateway", "port": 81},
    ]
    world = [gateway_class(), allowing(gateway()), own, route(parentRefs=refs)]
    place = Locator(f"listenerset.{GROUP}:{NS}/my-gateway")
    for section in ({}, {"sectionName": "http"}):
        objects = [*world, color("p", target("ListenerSet", **section), **BLUE)]
        assert through(objects) == [(DEFAULTS | refs[1], by("p"))]
        assert said(objects, place) == ([] if section else by("p"))
        assert said(objects, Locator(f"{place}#http")) == by("p")
        assert said(objects, GATEWAY) == []
    assert [ref for ref, _ in through([*world, color("p", **BLUE)])] == [
        DEFAULTS | ref for ref in refs
    ]


def test_without_sections_a_parent_is_the_gateway() -> None:
    kind = replace(COLOR_POLICY, level=frozenset({GroupKind(GROUP, "HTTPRoute")}))
    api = gateway_api(sections=False)
    found = topology([*BASE, color("p", **BLUE)], api, kind)
    (entry,) = Affected(found).entries(found[AT_ROUTE])
    assert entry.reference == DEFAULTS | {"name": "my-gateway"}


def test_a_route_that_is_a_root_is_affected_through_nobody() -> None:
    kind = replace(COLOR_POLICY, origins=frozenset())
    found = topology([route(), color("p", ROUTE, **BLUE)], API, kind)
    assert Affected(found).entries(found[AT_ROUTE]) == []


def test_kinds_of_one_name_share_a_condition() -> None:
    other = replace(COLOR_POLICY, id=GroupKind("z.example.com", "ColorPolicy"))
    twin = color("q", **BLUE) | {"apiVersion": "z.example.com/v1"}
    found = topology([*BASE, color("p", **BLUE), twin], API, COLOR_POLICY, other)
    (condition,) = Affected(found).of(GATEWAY)
    assert condition.message == "; ".join([*by("p"), *by("q")])


def test_a_parent_that_cannot_be_read_is_said_to_be() -> None:
    found = topology([*BASE, color("p", **BLUE)])
    found.update([route(parentRefs=[{"name": "my-gateway"}, 7])])
    with pytest.raises(Malformed, match="parentRefs"):
        Affected(found).entries(found[AT_ROUTE])
