"""Roots and links that a configuration names, for kinds that no code knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.config import PolicyTopology
from kube_sync.topology import NAMESPACE, Kind, Locator, PolicyKind, Topology
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.shape import Shape, topology_shape
from tests.fakes.released import released_kind
from tests.fakes.topologies import (
    API,
    CLASS,
    NS,
    WIDE,
    Object,
    color,
    effective,
    gateway,
    gateway_class,
    made,
    named,
    route,
    rules,
    service,
    target,
)

KUADRANT = "Kuadrant.kuadrant.io"
ROOT = Locator(f"kuadrant.kuadrant.io:{NS}/kuadrant")
WORLD = [gateway_class(), gateway(), route()]
PATH = "my-gateway-class|my-gateway|my-gateway#http|route|route#rule-1"
BLUE: Any = {"rules": rules(a="blue")}


def shape(**said: Any) -> Shape:
    return topology_shape(API, msgspec.convert(said, PolicyTopology))


def built(found: Shape, *objects: Object, policies: tuple[PolicyKind, ...] = (WIDE,)) -> Topology:
    return Topology.of(objects, found.kinds, found.links, policies, roots=found.roots)


def kuadrant() -> Object:
    group = released_kind("kuadrant", "Kuadrant")["spec"]["group"]
    return made(f"{group}/v1beta1/Kuadrant", "kuadrant", {})


def test_paths_begin_at_an_object_of_a_root() -> None:
    found = built(shape(roots=[KUADRANT]), *WORLD, kuadrant(), color("p", **BLUE))
    assert found.targetables.roots() == (ROOT,)
    assert effective(found) == {f"kuadrant|{PATH}": {"a": "blue"}}


def test_without_an_object_of_a_root_paths_begin_where_they_did() -> None:
    found = built(shape(roots=[KUADRANT]), *WORLD, color("p", **BLUE))
    assert effective(found) == {PATH: {"a": "blue"}}


def test_a_root_that_comes_later_is_above_what_is_there() -> None:
    found = built(shape(roots=[KUADRANT]), *WORLD, color("p", **BLUE))
    before = {one.id for one in found.effective(COLOR_POLICY.id)}
    found.update([kuadrant()])
    assert effective(found) == {f"kuadrant|{PATH}": {"a": "blue"}}
    assert {one.id for one in found.effective(COLOR_POLICY.id)} == before
    found.update([gateway_class("other")])
    assert found.targetables.parents(Locator(CLASS.replace("my-gateway-class", "other"))) == (ROOT,)
    found.update(deleted=[ROOT])
    assert effective(found) == {PATH: {"a": "blue"}}


def test_a_policy_of_a_root_is_the_least_specific_one() -> None:
    ref = {"group": "kuadrant.io", "kind": "Kuadrant", "name": "kuadrant"}
    above = color("above", ref, defaults={"strategy": "merge", "rules": rules(a="red", b="red")})
    found = built(shape(roots=[KUADRANT]), *WORLD, kuadrant(), above, color("p", **BLUE))
    assert effective(found) == {f"kuadrant|{PATH}": {"a": "blue", "b": "red"}}


def test_policies_of_listeners_begin_at_the_root_too() -> None:
    kinds = (Kind(NAMESPACE, namespaced=False), *API.kinds)
    dns = declared(released_kind("kuadrant", "DNSPolicy"), kinds)
    policy = made("kuadrant.io/v1/DNSPolicy", "one", {"targetRef": target()})
    found = built(shape(roots=[KUADRANT]), *WORLD, kuadrant(), policy, policies=(dns,))
    (one,) = found.effective(dns.id)
    assert named(found, one.path) == "kuadrant|my-gateway-class|my-gateway|my-gateway#http"
    assert one.combined is not None


def test_links_of_a_root_take_the_place_of_those_to_all_classes() -> None:
    link = {"from": KUADRANT, "to": "GatewayClass.gateway.networking.k8s.io"}
    link |= {"kind": KUADRANT, "field": "spec.classes"}
    found = built(
        shape(roots=[KUADRANT], links=[link]),
        *[gateway_class(), gateway_class("other")],
        kuadrant() | {"spec": {"classes": ["my-gateway-class"]}},
    )
    assert found.targetables.children(ROOT) == (CLASS,)


STORE, BACKUP = "Store.example.com", "Backup.example.com"


def store(name: str) -> Object:
    return made("example.com/v1/Store", name, {})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("spec.store", {"store": "one"}),
        ("spec.stores", {"stores": ["one", "none"]}),
        ("spec.store", {"store": {"name": "one"}}),
        ("spec.refs", {"refs": [{"kind": "Store", "name": "one", "namespace": NS}]}),
        ("spec.refs", {"refs": [{"kind": "Shop", "name": "two"}, {"name": "one"}]}),
        ("spec.copies.store", {"copies": [{"store": "one"}, {}]}),
    ],
)
def test_a_field_refers_to_what_is_above(field: str, said: Any) -> None:
    backup = made("example.com/v1/Backup", "b", said)
    found = shape(links=[{"from": STORE, "to": BACKUP, "field": field}])
    topology = built(found, store("one"), store("two"), backup)
    parents = topology.targetables.parents(Locator(f"backup.example.com:{NS}/b"))
    assert parents == (f"store.example.com:{NS}/one",)


def test_a_field_of_what_is_above_refers_to_what_is_below() -> None:
    link = {"from": "Service", "to": BACKUP, "kind": BACKUP, "field": "spec.service"}
    backup = made("example.com/v1/Backup", "b", {"service": "service"})
    found = built(shape(links=[link]), service(), backup)
    (child,) = found.targetables.children(Locator(f"service:{NS}/service"))
    assert child == f"backup.example.com:{NS}/b"


def test_what_is_no_reference_is_said_of_the_object() -> None:
    backup = made("example.com/v1/Backup", "b", {"store": 3})
    link = {"from": STORE, "to": BACKUP, "field": "spec.store"}
    found = built(shape(links=[link]), store("one"), backup)
    (condition,) = found.conditions()
    assert condition[1:] == (
        "Accepted",
        "False",
        "Invalid",
        "spec.store: expected a name or a reference",
    )


def test_a_reference_that_comes_to_nothing_is_found_when_it_is_there() -> None:
    backup = made("example.com/v1/Backup", "b", {"store": "one"})
    found = built(shape(links=[{"from": STORE, "to": BACKUP, "field": "spec.store"}]), backup)
    where = Locator(f"backup.example.com:{NS}/b")
    assert found.targetables.parents(where) == ()
    found.update([store("one")])
    assert found.targetables.parents(where) == (f"store.example.com:{NS}/one",)
