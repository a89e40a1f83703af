"""Policies whose status has conditions and no ancestors, as all of Kuadrant's have it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube_sync.kube.definitions import Version, definition_of
from kube_sync.objects import GroupVersionResource
from kube_sync.processes.topology import address_of
from kube_sync.topology import NAMESPACE, Kind, Locator
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.status.plan import Planner, Replace
from tests.fakes.released import released_kind, with_targets
from tests.fakes.topologies import (
    API,
    NS,
    Object,
    gateway,
    gateway_class,
    made,
    route,
    target,
    topology,
)

NOW = "2026-01-01T00:00:00Z"
KINDS = (Kind(NAMESPACE, namespaced=False), *API.kinds)
OTHERS = {"type": "example.com/Counted", "status": "True", "reason": "Counted", "message": ""}


def policy(kind: str, name: str, ref: Object | None = None, age: int = 2020, **spec: Any) -> Object:
    metadata = {"uid": name, "resourceVersion": "7", "generation": 1}
    metadata |= {"creationTimestamp": f"{age}-01-01T00:00:00Z"}
    return made(f"kuadrant.io/v1/{kind}", name, {"targetRef": ref or target()} | spec, **metadata)


def planner(kind: str, *objects: Object, ours: bool = True) -> Planner:
    found = topology(
        [gateway_class(), gateway(), route(), *objects],
        API,
        declared(released_kind("kuadrant", kind), KINDS),
    )
    return Planner(found, lambda _: False, NOW, owns_conditions=lambda _: ours)


def said(plan: Planner, kind: str, name: str) -> list[Any] | None:
    """Return the conditions that a policy is to have, None: those that it has are right."""
    node = plan.topology[Locator(f"{kind.lower()}.kuadrant.io:{NS}/{name}")]
    assert plan.has_status(node)
    step = plan.step(node, node.body)
    if step is None:
        return None
    assert isinstance(step, Replace)
    assert (step.version, list(step.status)) == ("7", ["conditions"])
    found: list[Any] = step.status["conditions"]
    return found


def reasons(conditions: list[Any] | None) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in conditions or ()}


def test_a_policy_hears_in_its_conditions_where_it_stands() -> None:
    limits: Any = {"limits": {"all": {"rates": []}}}
    above = policy("RateLimitPolicy", "above", **limits)
    below = policy("RateLimitPolicy", "below", target("HTTPRoute", "route"), **limits)
    plan = planner("RateLimitPolicy", above, below)
    assert reasons(said(plan, "RateLimitPolicy", "below")) == {
        "Accepted": ("True", "Accepted"),
        "Enforced": ("True", "Enforced"),
    }
    assert reasons(said(plan, "RateLimitPolicy", "above")) == {
        "Accepted": ("True", "Accepted"),
        "Enforced": ("False", "Overridden"),
    }


def test_a_policy_in_conflict_is_not_enforced_any_more() -> None:
    newer = policy("DNSPolicy", "newer", age=2021)
    newer["status"] = {
        "conditions": [
            OTHERS,
            {"type": "Enforced", "status": "True", "reason": "Enforced", "message": ""},
        ]
    }
    plan = planner("DNSPolicy", policy("DNSPolicy", "older"), newer)
    conditions = said(plan, "DNSPolicy", "newer")
    assert conditions is not None
    assert conditions[0] == OTHERS
    assert reasons(conditions[1:]) == {"Accepted": ("False", "Conflicted")}


def test_what_is_right_is_not_written_again() -> None:
    one = policy("TLSPolicy", "one", issuerRef={"name": "i"})
    one["status"] = {"conditions": [OTHERS]}
    right = copy.deepcopy(one)
    right["status"]["conditions"] = said(planner("TLSPolicy", one), "TLSPolicy", "one")
    assert said(planner("TLSPolicy", right), "TLSPolicy", "one") is None


def test_a_kind_that_is_not_named_is_left_to_its_operator() -> None:
    plan = planner("AuthPolicy", policy("AuthPolicy", "one"), ours=False)
    node = plan.topology[Locator(f"authpolicy.kuadrant.io:{NS}/one")]
    assert not plan.has_status(node)


def served(body: Object) -> tuple[GroupVersionResource, Version]:
    """Return how an API server serves what is defined."""
    conditions = [{"type": "Established", "status": "True"}]
    definition = definition_of({**body, "status": {"conditions": conditions}})
    assert definition.gvr is not None
    return definition.gvr, definition.versions[0]


@pytest.mark.parametrize("named", [False, True])
def test_released_kinds_are_written_as_their_schemas_let_them(*, named: bool) -> None:
    def heard(project: str) -> set[tuple[bool, bool]]:
        found = set()
        for body in with_targets(project):
            gvr, version = served(body)
            address = address_of(gvr, version, named=named)
            found.add((address.ancestors, address.conditions))
        return found

    assert heard("kuadrant") == heard("istio") == {(False, named)}
    assert heard("envoy-gateway") == {(True, False)}


def test_why_a_policy_hears_nothing_is_said() -> None:
    gvr, version = served(released_kind("kuadrant", "AuthPolicy"))
    lacking = address_of(gvr, version, named=False).lacking
    assert lacking.endswith("topology.statuses does not name it")
