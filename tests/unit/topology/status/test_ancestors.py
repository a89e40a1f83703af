"""What is said of policies, and with respect to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.topology import GroupKind, Locator, PolicyKind
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.status.ancestors import Ancestors
from tests.fakes.topologies import (
    API,
    NS,
    WIDE,
    Object,
    allowing,
    color,
    gateway,
    gateway_class,
    listener_set,
    namespace,
    overrides,
    route,
    rules,
    service,
    target,
    topology,
)

KIND = "colorpolicy.examples.kube-sync.io"
BLUE: Any = {"rules": rules(a="blue")}
ROUTE = target("HTTPRoute", "route")
BASE: list[Object] = [gateway_class(), gateway(), route()]
TWO = [{"name": "my-gateway"}, {"name": "other"}]


def reference(kind: str = "Gateway", name: str = "my-gateway", **fields: str) -> Object:
    return target(kind, name, namespace=NS, **fields)


def entries(objects: list[Object], name: str = "p") -> list[Any]:
    return Ancestors(topology(objects, API, WIDE)).of(Locator(f"{KIND}:{NS}/{name}"))


def ancestors(objects: list[Object], name: str = "p") -> list[Any]:
    return [entry.reference for entry in entries(objects, name)]


def said(objects: list[Object], name: str = "p") -> dict[str, dict[str, tuple[str, str]]]:
    """Return status and reason of each condition, by the name of the ancestor."""
    return {
        entry.reference["name"]: {c.type: (c.status, c.reason) for c in entry.conditions}
        for entry in entries(objects, name)
    }


def test_the_gateway_is_the_ancestor_of_what_targets_it_or_something_below() -> None:
    refs = [target(), target(sectionName="http"), ROUTE, ROUTE | {"sectionName": "rule-1"}]
    for ref in refs:
        assert ancestors([*BASE, color("p", ref, **BLUE)]) == [reference()]
    assert ancestors([*BASE, color("p", refs, **BLUE)]) == [reference()]


def test_a_service_has_the_gateways_that_send_to_it() -> None:
    backend = [{"backendRefs": [{"name": "service", "port": 80}]}]
    objects = [*BASE, route("to", rules=backend), service("service", 80)]
    port = target("Service", "service", sectionName="p80")
    assert ancestors([*objects, color("p", port, **BLUE)]) == [reference()]


def test_where_no_gateway_is_above_the_target_is_its_own_ancestor() -> None:
    world = [*BASE, service("service", 80), namespace(NS)]
    one = target("Service", "service")
    assert ancestors([*world, color("p", one, **BLUE)]) == [reference("Service", "service")]
    port = one | {"sectionName": "p80"}
    assert ancestors([*world, color("p", port, **BLUE)]) == [
        reference("Service", "service", sectionName="p80")
    ]
    for ref in (target("Namespace", NS), target("GatewayClass", "my-gateway-class")):
        assert ancestors([*world, color("p", ref, **BLUE)]) == [ref]


def test_a_listenerset_has_the_gateway_that_takes_it_and_otherwise_itself() -> None:
    refs = [target("ListenerSet", "my-set"), target("ListenerSet", "my-set", sectionName="more")]
    for ref in refs:
        world = [gateway_class(), listener_set(), color("p", ref, **BLUE)]
        assert ancestors([*world, allowing(gateway())]) == [reference()]
        assert ancestors([*world, gateway()]) == [ref | {"namespace": NS}]


def test_a_policy_without_a_target_is_told_where_it_should_be() -> None:
    for ref in (target(name="none"), target("Bucket", "b", sectionName="s")):
        objects = [*BASE, color("p", ref, **BLUE)]
        assert ancestors(objects) == [ref | {"namespace": NS}]
        assert said(objects)[ref["name"]] == {"Accepted": ("False", "TargetNotFound")}
    missing = target("Namespace", "none")
    assert ancestors([*BASE, color("p", missing, **BLUE)]) == [missing]


def test_a_reference_that_is_not_granted_is_told_too() -> None:
    elsewhere = target(name="g", namespace="other")
    objects = [*BASE, gateway("g", namespace="other"), color("p", elsewhere, **BLUE)]
    assert ancestors(objects) == [elsewhere]
    assert said(objects)["g"] == {"Accepted": ("False", "RefNotPermitted")}


def test_of_many_targets_those_that_are_there_are_ancestors() -> None:
    objects = [*BASE, color("p", [ROUTE, target(name="none")], **BLUE)]
    assert said(objects) == {
        "my-gateway": {
            "Accepted": ("True", "Accepted"),
            "Programmed": ("True", "Programmed"),
            "ResolvedRefs": ("False", "TargetNotFound"),
        }
    }


def test_a_copy_of_a_hubs_policy_gives_way_at_one_ancestor_and_not_at_another() -> None:
    objects = [
        *(gateway_class(), gateway(), gateway("other"), route(), route("r2", parentRefs=TWO[1:])),
        color("p", [target(), target(name="other")], synced=True, **BLUE),
        color("native", **BLUE),
    ]
    accepted = {"Accepted": ("True", "Accepted")}
    assert said(objects) == {
        "my-gateway": accepted | {"Programmed": ("False", "Overridden")},
        "other": accepted | {"Programmed": ("True", "Programmed")},
    }


def test_a_policy_that_names_nothing_readable_is_its_own_ancestor() -> None:
    broken = color("p", **BLUE)
    broken["spec"]["targetRef"] = "gateway"
    assert said([*BASE, broken]) == {"p": {"Accepted": ("False", "Invalid")}}
    (entry,) = entries([*BASE, broken])
    assert entry.reference["group"] == "examples.kube-sync.io"


@pytest.mark.parametrize(
    "ref",
    [
        target(name="n" * 254),
        target(sectionName="Two Words"),
        target(namespace="Elsewhere"),
        target("No-Kind-"),
        target() | {"group": "UPPER.example.com", "name": "none"},
    ],
)
def test_a_reference_that_no_status_takes_is_told_at_the_policy_itself(ref: Object) -> None:
    broken = [*BASE, color("p", ref, **BLUE)]
    assert ancestors(broken) == [
        {"group": "examples.kube-sync.io", "kind": "ColorPolicy", "namespace": NS, "name": "p"}
    ]
    fine = target(name="none")
    both = [*BASE, color("p", [ref, fine], **BLUE)]
    assert ancestors(both) == [fine | {"namespace": NS}]


def test_a_policy_that_means_nothing_is_told_at_its_target() -> None:
    broken = color("p", **BLUE, defaults={"rules": {}})
    assert said([*BASE, broken]) == {"my-gateway": {"Accepted": ("False", "Invalid")}}


def test_each_gateway_has_what_is_so_on_its_own_paths() -> None:
    objects = [
        gateway_class(),
        gateway(),
        gateway("other"),
        route(parentRefs=TWO),
        color("p", ROUTE, **BLUE),
        color("above", target(name="other"), **overrides(a="red")),
    ]
    assert said(objects) == {
        "my-gateway": {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")},
        "other": {"Accepted": ("True", "Accepted"), "Programmed": ("False", "Overridden")},
    }
    assert said(objects, "above")["other"]["Programmed"] == ("True", "Programmed")


def test_a_target_without_a_path_is_not_in_force_through_another_target() -> None:
    refs = [target("Service", "service"), ROUTE]
    objects = [*BASE, service(), color("p", refs, **BLUE)]
    found = said(objects)
    assert found["my-gateway"]["Programmed"] == ("True", "Programmed")
    assert found["service"]["Programmed"] == ("False", "Unknown")


def test_a_namespace_and_a_class_have_the_paths_that_lead_through_them() -> None:
    for ref in (target("Namespace", NS), target("GatewayClass", "my-gateway-class")):
        found = said([*BASE, namespace(NS), color("p", ref, **BLUE)])
        assert found[ref["name"]]["Programmed"] == ("True", "Programmed")
    empty = [*BASE, namespace("empty")]
    there = color("p", target("Namespace", "empty"), namespace="empty", **BLUE)
    (entry,) = Ancestors(topology([*empty, there])).of(Locator(f"{KIND}:empty/p"))
    assert {c.type: c.reason for c in entry.conditions}["Programmed"] == "Unknown"


def test_a_conflict_is_told_where_it_is() -> None:
    alone = replace(COLOR_POLICY, merges=False)
    objects = [
        gateway_class(),
        gateway(),
        gateway("other"),
        color("first", target(), age=2020, **BLUE),
        color("p", [target(), target(name="other")], age=2021, **BLUE),
    ]
    found = Ancestors(topology(objects, API, alone)).of(Locator(f"{KIND}:{NS}/p"))
    accepted = {e.reference["name"]: e.conditions[0] for e in found}
    assert accepted["my-gateway"].reason == "Conflicted"
    assert accepted["my-gateway"].message.endswith(f"[{NS}/first]")
    assert accepted["other"].reason == "Accepted"


@pytest.mark.parametrize("group", ["gateway.networking.k8s.io", "gateway.networking.x-k8s.io"])
def test_whether_a_policy_of_the_gateway_api_is_in_force_is_not_ours_to_say(group: str) -> None:
    """Whoever implements the Gateway API carries it out, and tells in an entry of its own."""
    kind = PolicyKind(GroupKind(group, "BackendTLSPolicy"), merges=False)
    one = {**color("p", target(), **BLUE), "apiVersion": f"{group}/v1", "kind": kind.id.kind}
    found = Ancestors(topology([gateway_class(), gateway(), one], API, kind))
    (entry,) = found.of(Locator(f"backendtlspolicy.{group}:{NS}/p"))
    assert [(c.type, c.status) for c in entry.conditions] == [("Accepted", "True")]
    lost = topology([one], API, kind)
    (entry,) = Ancestors(lost).of(Locator(f"backendtlspolicy.{group}:{NS}/p"))
    assert [(c.type, c.reason) for c in entry.conditions] == [("Accepted", "TargetNotFound")]
