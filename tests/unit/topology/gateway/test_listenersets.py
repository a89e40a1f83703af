"""ListenerSets while objects come and go, as written wrongly, and where rules are turned off."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kube_sync.topology import Locator, Topology
from kube_sync.topology.gateway import PLAIN, gateway_api
from tests.fakes.topologies import (
    GATEWAY,
    GROUP,
    NS,
    Object,
    allowing,
    gateway,
    gateway_class,
    listener,
    listener_set,
    namespace,
    route,
    topology,
)

SET = Locator(f"listenerset.{GROUP}:{NS}/my-set")
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
TO_SET = {"kind": "ListenerSet", "name": "my-set"}
OPEN = allowing(gateway())
TAKEN = {"name": "taken", "port": 80, "protocol": "HTTP"}  # what the gateway has already


def said(found: Topology) -> list[tuple[str, ...]]:
    return [(one.locator.partition("/")[2], *one[1:4]) for one in found.conditions()]


def test_a_listenerset_is_between_its_gateway_and_its_listeners() -> None:
    found = topology([gateway_class(), OPEN, listener_set(), route(parentRefs=[TO_SET])])
    (path,) = found.paths_to(ROUTE)
    assert path[1:] == (GATEWAY, SET, f"{SET}#more", ROUTE)
    assert found.conditions() == []


def test_without_sections_a_route_is_below_the_listenerset_itself() -> None:
    api = gateway_api(sections=False)
    bound = route(parentRefs=[TO_SET])
    found = topology([gateway_class(), OPEN, listener_set(), bound], api)
    assert found.all.parents(ROUTE) == (SET,)
    assert (
        topology([gateway_class(), gateway(), listener_set(), bound], api).all.parents(ROUTE) == ()
    )


def test_plainly_every_listenerset_that_names_a_gateway_is_taken_whole() -> None:
    objects = [
        gateway_class(),
        gateway(),
        listener_set("my-set", TAKEN),
        route(parentRefs=[TO_SET]),
    ]
    found = topology(objects, gateway_api(PLAIN))
    assert found.all.parents(ROUTE) == (f"{SET}#taken",)
    assert found.conditions() == []


def test_a_listener_that_conflicts_takes_routes_when_the_earlier_one_has_gone() -> None:
    first = listener_set("first", TAKEN | {"port": 81}, creationTimestamp="2026-01-01T00:00:00Z")
    found = topology([gateway_class(), OPEN, first, listener_set(), route(parentRefs=[TO_SET])])
    assert found.all.parents(ROUTE) == ()
    assert said(found) == [
        ("route", "Accepted", "False", "NoMatchingParent"),
        ("my-set", "Accepted", "False", "ListenersNotValid"),
        ("my-set#more", "Conflicted", "True", "HostnameConflict"),
    ]
    gone = Locator(f"listenerset.{GROUP}:{NS}/first")
    assert ROUTE in found.update(deleted=[gone])
    assert found.all.parents(ROUTE) == (f"{SET}#more",)
    assert found.conditions() == []
    found.update([first])
    assert found.all.parents(ROUTE) == ()


def test_a_conflict_does_not_tell_what_lies_in_other_namespaces() -> None:
    other = listener_set(
        "secret",
        TAKEN | {"port": 81},
        parent={"name": "my-gateway", "namespace": NS},
        namespace="x",
    )
    found = topology([gateway_class(), allowing(gateway(), "All"), other, listener_set("y")])
    loser = listener_set("y")["metadata"]["namespace"]
    assert loser == NS
    messages = [one.message for one in found.conditions()]
    assert messages
    assert not [one for one in messages if "secret" in one]


def test_a_namespace_that_gets_a_label_lets_its_listenersets_in() -> None:
    chosen = allowing(gateway(), "Selector", selector={"matchLabels": {"team": "a"}})
    found = topology([gateway_class(), chosen, listener_set(), route(parentRefs=[TO_SET])])
    assert found.all.parents(SET) == ()
    found.update([namespace(NS, team="a")])
    assert (found.all.parents(SET), len(found.all.parents(ROUTE))) == ((GATEWAY,), 1)
    found.update([namespace(NS)])
    assert (found.all.parents(SET), len(found.all.parents(ROUTE))) == ((), 0)


def test_a_gateway_that_comes_later_takes_the_listenersets_that_wait_for_it() -> None:
    found = topology([gateway_class(), listener_set(), route(parentRefs=[TO_SET])])
    assert said(found)[1] == ("my-set", "Accepted", "Unknown", "Pending")
    found.update([OPEN])
    assert len(found.paths_to(ROUTE)) == 1
    assert found.conditions() == []


@pytest.mark.parametrize("spaces", [{"from": "Selector"}, {}, {"from": "Everywhere"}])
def test_what_a_gateway_does_not_allow_in_words_it_does_not_take(spaces: Object) -> None:
    one = gateway()
    one["spec"]["allowedListeners"] = {"namespaces": spaces}
    found = topology([gateway_class(), one, listener_set()])
    assert said(found) == [("my-set", "Accepted", "False", "NotAllowed")]


def test_a_parent_of_another_kind_is_none_of_ours() -> None:
    other = listener_set(parent={"group": "example.com", "kind": "Gateway", "name": "my-gateway"})
    found = topology([gateway_class(), OPEN, other, route(parentRefs=[TO_SET])])
    assert found.all.parents(SET) == ()
    assert said(found) == [("route", "Accepted", "False", "NoMatchingParent")]


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ({"name": 7}, "name: expected text, found a number"),
        ("my-gateway", "spec.parentRef: expected a mapping, found text"),
    ],
)
def test_a_parent_that_cannot_be_read_is_said_of_the_listenerset(parent: Any, message: str) -> None:
    bound = route(parentRefs=[TO_SET, {"name": "my-gateway"}])
    sets = [listener_set(parent=parent), listener_set("other")]
    found = topology([gateway_class(), OPEN, *sets, bound])
    assert found.all.parents(ROUTE) == (f"{GATEWAY}#http",)
    mine = [one for one in found.conditions() if one.locator == SET]
    assert [(one.reason, one.message) for one in mine] == [("Invalid", message)]
    assert found.all.children(GATEWAY)[1:] == (f"listenerset.{GROUP}:{NS}/other",)


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ("all", "spec.allowedListeners: expected a mapping, found text"),
        (
            {
                "namespaces": {
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
                }
            },
            'matchExpressions.operator: "Like" is none',
        ),
    ],
)
def test_allowed_listeners_that_mean_nothing_let_nobody_in_and_hinder_no_other_parent(
    allowed: Any, message: str
) -> None:
    broken = gateway()
    broken["spec"]["allowedListeners"] = allowed
    bound = route(parentRefs=[TO_SET, {"name": "my-gateway"}])
    found = topology([gateway_class(), broken, listener_set(), bound])
    assert found.all.parents(ROUTE) == (f"{GATEWAY}#http",)
    assert said(found) == [
        ("route", "Accepted", "False", "NoMatchingParent"),
        ("my-set", "Accepted", "False", "NotAllowed"),
    ]
    assert found.conditions()[1].message == (
        f"spec.parentRef: {GATEWAY} takes no ListenerSets: its {message}"
    )
    found.update([OPEN])
    assert found.conditions() == []


def test_a_listener_that_cannot_be_read_conflicts_with_nothing() -> None:
    sets = [
        listener_set("a", {"name": "more", "port": "81", "protocol": "HTTP"}),
        listener_set("b", listener("more", port=81)),
    ]
    assert topology([gateway_class(), OPEN, *sets]).conditions() == []


def test_a_thousand_listenersets_are_weighed_once_for_all_routes() -> None:
    """Each change of one of them counts for all: to weigh them for every route took a minute."""
    chosen = allowing(gateway(), "Selector", selector={"matchLabels": {"team": "a"}})
    names = [f"s{number}" for number in range(1000)]
    sets = [
        listener_set(name, listener(hostname=f"{name}.example.com", port=443)) for name in names
    ]
    routes = [route(name, parentRefs=[{"kind": "ListenerSet", "name": name}]) for name in names]
    found = topology([gateway_class(), chosen, namespace(NS, team="a"), *sets, *routes])
    begin = time.process_time()
    found.update([sets[0] | {"spec": sets[0]["spec"] | {"listeners": [listener(port=8443)]}}])
    assert time.process_time() - begin < 2.0
    assert len(found.paths_to(Locator(f"httproute.{GROUP}:{NS}/s0"))) == 1
