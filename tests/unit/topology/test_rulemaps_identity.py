"""Whether rules of one name in two policies are one thing: a limit that is split over two rules."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.topology import NAMESPACE, GroupKind, Kind, PolicyKind, Topology
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.records import EffectiveRecord, Records
from tests.fakes.released import Object, released_kind
from tests.fakes.topologies import (
    API,
    gateway,
    gateway_class,
    made,
    route,
    target,
    topology,
)

NAME = "kube-sync.io/rule-identity"
LIMITS = GroupKind("kuadrant.io", "RateLimitPolicy")
KINDS = (Kind(NAMESPACE, namespaced=False), *API.kinds)
LISTENER = {"name": "http", "allowedRoutes": {"namespaces": {"from": "All"}}}
TWO: dict[str, Any] = {"rules": [{"name": "read"}, {"name": "write"}]}
ELSEWHERE: dict[str, Any] = {
    "parentRefs": [{"name": "my-gateway", "namespace": "my-namespace"}],
    **TWO,
}
WORLD = [
    gateway_class(),
    gateway("my-gateway", LISTENER),
    route("web", **TWO),
    route("app", **TWO),
    route("web", NAMESPACE="other", **ELSEWHERE),
]


def kind(identity: str = "") -> PolicyKind:
    body = released_kind("kuadrant", "RateLimitPolicy")
    metadata = body["metadata"]
    notes = metadata["annotations"] | ({NAME: identity} if identity else {})
    return declared({**body, "metadata": metadata | {"annotations": notes}}, KINDS)


def limited(
    name: str, route_name: str, rule: str, *, identity: str = "", **metadata: Any
) -> Object:
    limit = {"rates": [{"limit": 5, "window": "1m"}]}
    spec = {
        "targetRef": target("HTTPRoute", route_name, sectionName=rule),
        "limits": {"peruser": limit},
    }
    notes = {"annotations": {NAME: identity}} if identity else {}
    return made("kuadrant.io/v1/RateLimitPolicy", name, spec, **notes, **metadata)


def ids(*policies: Object, of: PolicyKind | None = None) -> dict[str, str]:
    """Return the identifier of the limit on each rule that has one, by namespace and locator."""
    found = topology([*WORLD, *policies], API, of or kind())
    return {
        one.path[-1].partition(":")[2]: one.rule_ids["peruser"]
        for one in found.effective(LIMITS)
        if one.combined
    }


def split(identity: str = "", **metadata: Any) -> list[Object]:
    return [
        limited("reads", "web", "read", identity=identity, **metadata),
        limited("writes", "web", "write", identity=identity, **metadata),
    ]


@pytest.mark.parametrize("said", ["", "policy", "Policy"])
def test_a_limit_of_two_policies_is_two_limits_unless_somebody_says_otherwise(said: str) -> None:
    found = ids(*split(said))
    assert len(found) == len(set(found.values())) == 2


@pytest.mark.parametrize("said", ["name", "namespace", "target", "Target"])
def test_a_limit_that_is_split_over_two_rules_is_one_limit_where_policies_say_so(said: str) -> None:
    found = ids(*split(said))
    assert (len(found), len(set(found.values()))) == (2, 1)


@pytest.mark.parametrize("said", ["name", "namespace", "target"])
def test_a_kind_may_say_so_of_all_its_policies(said: str) -> None:
    found = ids(*split(), of=kind(said))
    assert (len(found), len(set(found.values()))) == (2, 1)


def test_a_policy_comes_before_its_kind() -> None:
    found = ids(*split("policy"), of=kind("name"))
    assert len(set(found.values())) == 2


@pytest.mark.parametrize(
    ("said", "same_namespace", "other_namespace"),
    [("name", True, True), ("namespace", True, False), ("target", False, False)],
)
def test_limits_of_other_routes_are_the_same_within_what_is_said(
    said: str, *, same_namespace: bool, other_namespace: bool
) -> None:
    found = ids(
        limited("one", "web", "read", identity=said),
        limited("two", "app", "read", identity=said),
        limited("three", "web", "read", identity=said, namespace="other"),
    )
    first = found["my-namespace/web#read"]
    assert (found["my-namespace/app#read"] == first) is same_namespace
    assert (found["other/web#read"] == first) is other_namespace


def test_a_limit_is_the_same_only_where_both_policies_say_so() -> None:
    found = ids(limited("reads", "web", "read", identity="name"), limited("writes", "web", "write"))
    assert len(set(found.values())) == 2


def test_effective_policies_of_other_policies_are_others_though_their_rules_are_the_same() -> None:
    found = topology([*WORLD, *split("name")], API, kind())
    assert len({one.id for one in found.effective(LIMITS) if one.combined}) == 2


def test_a_word_that_means_nothing_is_said_of_the_policy_and_does_not_count() -> None:
    found = topology([*WORLD, *split("everything")], API, kind())
    said = [c for c in found.conditions() if c.type == "Accepted" and "ratelimit" in c.locator]
    assert [condition.status for condition in said] == ["True", "True"]
    assert all('rule-identity: "everything" is none of policy, ' in c.message for c in said)
    assert len(set(ids(*split("everything")).values())) == 2


def test_records_have_the_new_identifier_when_a_policy_says_another() -> None:
    found = topology([*WORLD, *split()], API, kind())
    records = Records()
    for changes in records.replace(found):
        assert changes
    assert len(of_records(records)) == 2
    changed = split("name")
    touched = found.update(changed)
    for changes in records.update(found, touched):
        assert changes is not None
    assert len(of_records(records)) == 1
    assert of_records(records) == of_topology(topology([*WORLD, *changed], API, kind()))


def of_records(records: Records) -> set[str]:
    found = (record for _, record in records.all() if isinstance(record, EffectiveRecord))
    return {record.rules["peruser"] for record in found}


def of_topology(found: Topology) -> set[str]:
    return {one.rule_ids["peruser"] for one in found.effective(LIMITS) if one.combined}
