"""What targets are told of each path to them: the effective policy, or that there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.kube.conditions import Condition
from kube_sync.topology import NAMESPACE, Kind, Locator, Topology
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.status.pathmaps import CONFIGMAP_NAMES, LIMIT, PathMaps
from tests.fakes.released import released_kind
from tests.fakes.topologies import (
    API,
    GATEWAY,
    GROUP,
    NS,
    Object,
    color,
    gateway,
    gateway_class,
    listener,
    made,
    route,
    rules,
    target,
    topology,
)

PATHS = "kube-sync.io/ColorPolicyPaths"
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
BLUE: Any = {"rules": rules(a="blue")}


def maps(found: Topology, **options: Any) -> PathMaps:
    return PathMaps(found, "kube-sync", **options)


def told(found: Topology, **options: Any) -> list[tuple[str, Condition]]:
    """Return what a route is told, by the gateway or listener that a parentRef names."""
    return [
        (f"{entry.reference['name']}#{entry.reference.get('sectionName', '')}", said)
        for entry in maps(found, **options).entries(found[ROUTE])
        for said in entry.conditions
    ]


def ids(found: Topology) -> dict[str, str | None]:
    """Return what the command says of each path."""
    return {
        " > ".join(found[name].full_name for name in one.path): one.id
        for one in found.effective(COLOR_POLICY.id)
    }


def two_gateways(*policies: Object) -> Topology:
    refs = [{"name": "one"}, {"name": "two"}]
    objects = [gateway_class(), gateway("one"), gateway("two"), route(parentRefs=refs)]
    return topology([*objects, *policies])


def test_a_route_is_told_by_parent_what_applies_on_each_path() -> None:
    rule = color("rule", target("HTTPRoute", "route", sectionName="rule-1"), **BLUE)
    found = two_gateways(color("above", target(name="one"), **BLUE), rule)
    (first, one), (second, two) = told(found)
    assert (first, second) == ("one#", "two#")
    assert json.loads(one.message) | json.loads(two.message) == ids(found)
    assert [said[:3] for said in (one, two)] == [(PATHS, "True", "Covered")] * 2


def test_paths_without_a_policy_are_told_too() -> None:
    found = two_gateways(color("above", target(name="one"), **BLUE))
    (_, one), (_, two) = told(found)
    assert (one.status, two.status, two.reason) == ("True", "False", "Uncovered")
    assert list(json.loads(two.message).values()) == [None]


def test_a_part_of_the_paths_is_told_apart() -> None:
    rule = target("HTTPRoute", "route", sectionName="rule-1")
    objects = [gateway_class(), gateway(), route(rules=[{}, {}]), color("p", rule, **BLUE)]
    ((_, said),) = told(topology(objects))
    assert (said.status, said.reason) == ("False", "PartlyCovered")


def test_nothing_is_told_of_kinds_that_no_policy_is_of() -> None:
    assert told(topology([gateway_class(), gateway(), route()])) == []


def test_a_listener_is_told_of_policies_that_take_effect_there() -> None:
    kinds = (Kind(NAMESPACE, namespaced=False), *API.kinds)
    spec = {"targetRef": target(sectionName="a"), "loadBalancing": {"weight": 1}}
    two = gateway("my-gateway", listener("a"), listener("b"))
    found = topology(
        [gateway_class(), two, made("kuadrant.io/v1/DNSPolicy", "one", spec)],
        API,
        declared(released_kind("kuadrant", "DNSPolicy"), kinds),
    )
    said = [maps(found).of(Locator(f"{GATEWAY}#{name}")) for name in "ab"]
    assert [(one.type, one.status, one.reason) for (one,) in said] == [
        ("kube-sync.io/DNSPolicyPaths", "True", "Covered"),
        ("kube-sync.io/DNSPolicyPaths", "False", "Uncovered"),
    ]
    assert maps(found).of(GATEWAY) == ()


def many(number: int = 64) -> Topology:
    listeners = [listener(f"l{n}", port=n + 1) for n in range(number)]
    return topology(
        [gateway_class(), gateway("my-gateway", *listeners), route(), color("p", **BLUE)]
    )


def test_a_map_that_is_too_long_for_a_status_is_in_a_configmap_that_is_named() -> None:
    found = many()
    ((_, said),) = told(found)
    layout = maps(found).layout()
    ((name, key, text),) = [(n, k, t) for n, texts in layout.items() for k, t in texts.items()]
    assert said.message == f"64 paths, 0 of them without: ConfigMap kube-sync/{name}, key {key}"
    assert key == f"httproute.{GROUP}_{NS}_route"
    assert json.loads(text) == {str(COLOR_POLICY.id): ids(found)}


def test_maps_that_fit_nowhere_are_said_to_be_missing() -> None:
    found = many()
    ((_, said),) = told(found, limit=100)
    assert said.message.endswith("no more of them fit into the ConfigMaps of kube-sync")
    assert all(texts == {} for texts in maps(found, limit=100).layout().values())


def test_no_configmap_is_larger_than_fits() -> None:
    names = [f"r{n}" for n in range(200)]
    listeners = [listener(f"l{n}", port=n + 1) for n in range(64)]
    objects = [gateway_class(), gateway("my-gateway", *listeners), color("p", **BLUE)]
    layout = maps(topology([*objects, *map(route, names)])).layout()
    assert layout.keys() == set(CONFIGMAP_NAMES)
    assert sum(map(len, layout.values())) == len(names)
    for texts in layout.values():
        assert sum(len(key) + len(text) for key, text in texts.items()) <= LIMIT


def test_a_key_that_is_too_long_is_a_digest() -> None:
    name = "r" * 250
    listeners = [listener(f"l{n}", port=n + 1) for n in range(64)]
    objects = [gateway_class(), gateway("my-gateway", *listeners), color("p", **BLUE), route(name)]
    layout = maps(topology(objects)).layout()
    ((key,),) = [list(texts) for texts in layout.values() if texts]
    assert len(key) == 20


@pytest.mark.parametrize("sections", [False, True])
def test_the_order_of_objects_is_nothing_to_the_maps(*, sections: bool) -> None:
    refs = [{"name": "my-gateway"} | ({"sectionName": "http"} if sections else {})]
    objects = [gateway_class(), gateway(), route(parentRefs=refs), color("p", **BLUE)]
    assert told(topology(objects)) == told(topology(objects[::-1]))
