"""What has to be written of an object, and that nothing has to where all is right."""

from __future__ import annotations

import copy
import functools
import operator
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology import GroupKind, Locator, PolicyKind
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.raw_json import Malformed
from kube_sync.topology.status.plan import Apply, Planner, Replace, Step
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
    listener_set,
    namespace,
    overrides,
    route,
    rules,
    service,
    target,
    topology,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
BLUE: Any = {"rules": rules(a="blue")}
POLICY = Locator(f"colorpolicy.examples.kube-sync.io:{NS}/p")
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
SPACE = Locator(f"namespace:{NS}")
AFFECTED = "kube-sync.io/ColorPolicyAffected"


def stored(objects: Iterable[Object], generation: int = 1) -> list[Object]:
    """Return objects as an API server has them."""
    found = copy.deepcopy(list(objects))
    for one in found:
        name = one["metadata"]["name"]
        one["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7", "generation": generation}
    return found


BASE = stored([gateway_class(), gateway(), route(), color("p", **BLUE)])


def planner(objects: Iterable[Object], *kinds: PolicyKind, now: str = NOW) -> Planner:
    return Planner(topology(objects, API, *kinds), lambda _: True, now)


def steps(
    objects: Iterable[Object], current: Mapping[Locator, Object] | None = None, **options: Any
) -> dict[Locator, Step]:
    plan = planner(objects, **options)
    nodes = [node for node in plan.topology.nodes() if node.owner is None]
    made = [
        plan.step(node, (current or {}).get(node.locator, node.body))
        for node in nodes
        if plan.has_status(node)
    ]
    return {step.node: step for step in made if step is not None}


def written(objects: list[Object], made: Mapping[Locator, Step]) -> list[Object]:
    """Return objects as an API server would have them after steps."""
    found = topology(objects)
    result = []
    for node in found.nodes():
        if node.owner is None:
            body = copy.deepcopy(dict(node.body))
            step = made.get(node.locator)
            if step is not None:
                body["status"] = {**body.get("status", {}), **_applied(body, step)}
            result.append(body)
    return result


def _applied(body: Any, step: Step) -> dict[str, Any]:
    if isinstance(step, Replace):
        return dict(step.status)
    status = copy.deepcopy(body.get("status", {}))
    for pointer in step.removals:
        *way, index = (int(p) if p.isdigit() else p for p in pointer.split("/")[2:])
        del functools.reduce(operator.getitem, way, status)[index]
    status["conditions"] = _put(status.get("conditions", []), step.status.get("conditions", []))
    ours = {one["name"]: one["conditions"] for one in step.status.get("listeners", [])}
    for one in status.get("listeners", []):
        one["conditions"] = _put(one.get("conditions", []), ours.get(one["name"], []))
    return dict(status)


def _put(found: list[Any], wanted: list[Any]) -> list[Any]:
    types = {c["type"] for c in wanted}
    return [c for c in found if c["type"] not in types] + wanted


def conditions(step: Step) -> list[Any]:
    found: list[Any] = step.status.get("conditions", [])
    return found


def with_status(kind: Locator, status: Any, objects: list[Object] | None = None) -> list[Object]:
    """Return the objects, one of them with a status."""
    found = copy.deepcopy(objects or BASE)
    for one in found:
        if _name(one) == kind:
            one["status"] = status
    return found


def test_policies_and_what_they_affect_are_written() -> None:
    made = steps(BASE)
    assert made.keys() == {POLICY, GATEWAY, ROUTE}
    policy, at_gateway, at_route = made[POLICY], made[GATEWAY], made[ROUTE]
    assert isinstance(policy, Replace)
    assert isinstance(at_route, Replace)
    assert isinstance(at_gateway, Apply)
    assert (policy.version, str(policy.key)) == ("7", f"{NS}/p")
    assert (at_gateway.uid, at_gateway.version) == ("uid-my-gateway", "7")
    assert at_gateway.status == {
        "conditions": [
            {
                "type": AFFECTED,
                "status": "True",
                "reason": "Accepted",
                "message": f"Object affected by ColorPolicy [{NS}/p]",
                "observedGeneration": 1,
                "lastTransitionTime": NOW,
            }
        ]
    }
    (ancestor,) = policy.status["ancestors"]
    assert ancestor["ancestorRef"]["name"] == "my-gateway"
    (parent,) = at_route.status["parents"]
    assert parent["parentRef"] == {"group": GROUP, "kind": "Gateway", "name": "my-gateway"}
    assert [c["type"] for c in parent["conditions"]] == [AFFECTED]


def test_what_was_written_is_not_written_again() -> None:
    after = written(BASE, steps(BASE))
    assert steps(after, now=LATER) == {}


def test_where_no_policy_is_nothing_is_written() -> None:
    assert steps(BASE[:3]) == {}


def test_what_holds_no_more_is_taken_away_from_everywhere() -> None:
    listeners = {"listeners": [{"name": "http", "attachedRoutes": 1, "conditions": []}]}
    before = with_status(GATEWAY, listeners)
    after = [one for one in written(before, steps(before)) if one["kind"] != "ColorPolicy"]
    made = steps(after)
    assert made.keys() == {GATEWAY, ROUTE}
    step = made[GATEWAY]
    assert isinstance(step, Apply)
    assert step.removals == ("/status/conditions/0", "/status/listeners/0/conditions/0")
    assert step.status == {}
    assert steps(written(after, made)) == {}
    assert made[ROUTE].status == {"parents": []}


def test_a_listener_is_told_in_its_entry_if_it_has_one() -> None:
    (entry,) = steps(
        with_status(GATEWAY, {"listeners": [{"name": "http", "attachedRoutes": 1}, {"name": "x"}]})
    )[GATEWAY].status["listeners"]
    assert entry["name"] == "http"
    assert entry.keys() == {"name", "conditions"}
    assert [c["type"] for c in entry["conditions"]] == [AFFECTED]


def test_only_the_listener_that_a_policy_is_for_says_so() -> None:
    two = gateway("my-gateway", {"name": "a"}, {"name": "b"})
    objects = stored([gateway_class(), two, color("p", target(sectionName="b"), **BLUE), route()])
    status = {"listeners": [{"name": "a"}, {"name": "b"}]}
    step = steps(with_status(GATEWAY, status, objects))[GATEWAY]
    assert [entry["name"] for entry in step.status["listeners"]] == ["b"]
    assert conditions(step) == []


def test_a_listenerset_and_its_listeners_say_so_in_its_own_status() -> None:
    place = Locator(f"listenerset.{GROUP}:{NS}/my-set")
    bound = route(parentRefs=[{"kind": "ListenerSet", "name": "my-set"}])
    world = [gateway_class(), allowing(gateway()), listener_set(), bound, color("p", **BLUE)]
    listeners = {"listeners": [{"name": "more", "attachedRoutes": 1, "conditions": []}]}
    before = with_status(place, listeners, stored(world))
    made = steps(before)
    step = made[place]
    assert isinstance(step, Apply)
    assert [c["type"] for c in conditions(step)] == [AFFECTED]
    (entry,) = step.status["listeners"]
    assert (entry["name"], [c["type"] for c in entry["conditions"]]) == ("more", [AFFECTED])
    assert steps(written(before, made)) == {}


def test_a_place_that_comes_is_filled_on_the_newest_state() -> None:
    after = written(BASE, steps(BASE))
    newest = next(one for one in after if one["kind"] == "Gateway")
    newest["status"]["listeners"] = [{"name": "http"}]
    made = steps(after, {GATEWAY: newest})
    assert made.keys() == {GATEWAY}


def test_what_is_known_of_an_older_generation_is_said_of_that() -> None:
    newest = stored(BASE, generation=2)
    current = {GATEWAY: newest[1], POLICY: newest[3]}
    made = steps(BASE, current)
    assert conditions(made[GATEWAY])[0]["observedGeneration"] == 1


def test_a_newer_generation_that_was_observed_is_not_overwritten() -> None:
    newest = stored(BASE, generation=5)
    after = written(newest, steps(newest))
    current = {_name(one): one for one in after}
    without = [one for one in stored(BASE, 4) if one["kind"] != "ColorPolicy"]
    assert steps(without, current) == {}
    other = color("p", rules=rules(b="red"), defaults={"rules": {}})  # that is not accepted
    assert steps([*without, *stored([other], 4)], current) == {}


def _name(one: Object) -> Locator:
    found = topology([one])
    return next((node.locator for node in found.nodes() if node.owner is None), Locator(""))


def test_conditions_of_others_are_not_ours_to_apply() -> None:
    others = [{"type": "Accepted", "status": "True"}, {"type": "example.com/XAffected"}]
    step = steps(with_status(GATEWAY, {"conditions": others}))[GATEWAY]
    assert [c["type"] for c in conditions(step)] == [AFFECTED]


def test_a_namespace_has_no_generation_to_tell() -> None:
    objects = stored([*BASE[:3], namespace(NS), color("p", target("Namespace", NS), **BLUE)])
    (condition,) = conditions(steps(objects)[SPACE])
    assert "observedGeneration" not in condition


def test_a_class_is_told_that_it_is_affected() -> None:
    above = color("p", target("GatewayClass", "my-gateway-class"), **BLUE)
    objects = stored([*BASE[:3], above])
    plan = planner(objects, WIDE)
    assert plan.step(plan.topology[CLASS], plan.topology[CLASS].body) is not None


def test_what_is_on_its_way_out_is_left_alone() -> None:
    leaving = copy.deepcopy(BASE)
    for one in leaving:
        one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert steps(leaving) == {}


def test_another_object_of_the_name_is_left_alone() -> None:
    another = copy.deepcopy(BASE[1])
    another["metadata"]["uid"] = "another"
    assert GATEWAY not in steps(BASE, {GATEWAY: another})


def test_only_statuses_that_are_ours_have_a_place() -> None:
    found = topology([*BASE, service()])
    plan = Planner(found, lambda _: False, NOW)
    placed = {
        node.locator for node in found.nodes() if node.owner is None and plan.has_status(node)
    }
    assert placed == {CLASS, GATEWAY, ROUTE, Locator(f"service:{NS}/service")}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (GATEWAY, 7),
        (GATEWAY, {"conditions": "none"}),
        (GATEWAY, {"conditions": ["none"]}),
        (GATEWAY, {"listeners": [{"name": 7}]}),
        (GATEWAY, {"listeners": {}}),
        (POLICY, {"ancestors": {}}),
        (POLICY, {"ancestors": ["none"]}),
        (ROUTE, "none"),
    ],
)
def test_a_status_that_cannot_be_read_is_said_to_be(kind: Locator, status: Any) -> None:
    with pytest.raises(Malformed, match=r"status|name"):
        steps(with_status(kind, status))


def test_two_places_are_left_to_others() -> None:
    """They write all their conditions at once, and the ninth would be refused."""
    kinds = [
        replace(COLOR_POLICY, id=GroupKind(f"g{n}.example.com", f"K{n}Policy")) for n in range(4)
    ]
    policies = [
        color("p", **BLUE) | {"apiVersion": f"{kind.id.group}/v1", "kind": kind.id.kind}
        for kind in kinds
    ]
    objects = stored([*BASE[:3], *policies])
    others = [{"type": f"O{n}"} for n in range(3)]
    status = {"conditions": others, "listeners": [{"name": "http", "conditions": others * 3}]}
    found = topology(with_status(GATEWAY, status, objects), API, *kinds)
    plan = Planner(found, lambda _: True, NOW)
    step = plan.step(found[GATEWAY], found[GATEWAY].body)
    assert step is not None
    types = [condition["type"] for condition in conditions(step)]
    assert types == [f"kube-sync.io/K{n}PolicyAffected" for n in range(3)]
    assert "listeners" not in step.status
    assert plan.problems == {
        GATEWAY: "1 conditions do not fit",
        f"{GATEWAY}#http": "4 conditions do not fit",
    }


def test_ancestors_that_do_not_fit_are_complained_of() -> None:
    """Where others have all places there is none to say it in."""
    full = {"ancestors": [{"ancestorRef": {"name": str(n)}} for n in range(16)]}
    plan = planner(with_status(POLICY, full))
    assert plan.step(plan.topology[POLICY], plan.topology[POLICY].body) is None
    assert plan.problems == {POLICY: "status.ancestors: 1 do not fit"}


def test_what_is_to_go_is_named_from_the_last_to_the_first() -> None:
    """Each is removed before the next."""
    stale, theirs = {"type": "kube-sync.io/OldAffected"}, {"type": "Accepted"}
    status = {
        "conditions": [stale, theirs, stale],
        "listeners": [
            {"name": "gone", "conditions": [{"type": AFFECTED}]},
            {"name": "http", "conditions": [theirs, stale]},
        ],
    }
    step = steps(with_status(GATEWAY, status))[GATEWAY]
    assert isinstance(step, Apply)
    assert step.removals == (
        "/status/conditions/2",
        "/status/conditions/0",
        "/status/listeners/0/conditions/0",
        "/status/listeners/1/conditions/1",
    )
    assert [entry["name"] for entry in step.status["listeners"]] == ["http"]


def test_where_something_is_only_to_go_nothing_is_applied() -> None:
    after = written(BASE, steps(BASE))
    at_gateway = next(one for one in after if one["kind"] == "Gateway")
    at_gateway["status"]["conditions"].append({"type": "kube-sync.io/OldAffected"})
    step = steps(after)[GATEWAY]
    assert isinstance(step, Apply)
    assert (step.removals, step.status) == (("/status/conditions/1",), {})


WORLD = stored(
    [
        gateway_class(),
        gateway("my-gateway", {"name": "a"}, {"name": "b"}),
        gateway("other"),
        route(parentRefs=[{"name": "my-gateway"}, {"name": "other"}]),
        route("second", kind="GRPCRoute"),
        service("service", 80),
        namespace(NS),
        color("p", **overrides("merge", a="red")),
        color("q", target("HTTPRoute", "route"), rules=rules(a="blue", b="green")),
        color("r", [target("Namespace", NS), target(name="none")], rules=rules(c="grey")),
        color("s", target(name="missing"), **BLUE),
    ]
)


@given(st.integers(0, 2**32))
def test_the_order_of_objects_is_nothing_to_what_is_written(seed: int) -> None:
    shuffled = WORLD[:]
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - nobody is to be surprised
    made = steps(shuffled)
    assert made == steps(WORLD)
    assert steps(written(shuffled, made), now=LATER) == {}
