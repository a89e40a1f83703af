"""Only what refers to a Gateway of a class that syncs it goes to spokes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.objects import ObjectKey
from kube_sync.policysync.targets import ListenerSets, Target, Targets, resolve_targets
from tests.fakes.syncing import (
    GATEWAY,
    GATEWAY_API,
    NS,
    OTHER,
    POLICY,
    Object,
    gateway,
    hub,
    policy,
    ref,
)
from tests.fakes.topologies import grant

AUTH_POLICIES = ("kuadrant.io", "AuthPolicy", NS)
INFRA = ObjectKey("infra", "my-gateway")


def found(body: Object, *gateways: Object, **more: Any) -> Targets:
    return resolve_targets(POLICY, "AuthPolicy", body, hub(*gateways, **more))


def test_a_reference_to_a_gateway_of_the_class_counts() -> None:
    expected = Targets((Target(0, GATEWAY),), frozenset([GATEWAY]))
    assert found(policy()) == expected
    assert found(policy(ref(sectionName="http"))) == expected


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (ref("r", "HTTPRoute"), f"HTTPRoute.{GATEWAY_API} r is no Gateway and no ListenerSet"),
        (ref(group="other"), "Gateway.other my-gateway is no Gateway and no ListenerSet"),
        (ref(group=""), "Gateway my-gateway is no Gateway and no ListenerSet"),
        (ref("none"), f"Gateway {NS}/none was not found"),
        (
            ref("other-gateway"),
            f"GatewayClass other of Gateway {OTHER} does not sync AuthPolicy.kuadrant.io",
        ),
    ],
)
def test_any_other_reference_does_not_and_is_told(one: Object, why: str) -> None:
    there = [gateway(), gateway(OTHER, "other")]
    alone = found(policy(one), *there)
    assert (alone.targets, alone.others) == ((), (f"spec.targetRef: {why}",))
    among = found(policy(one, ref()), *there)
    assert among.targets == (Target(1, GATEWAY),)
    assert among.others == (f"spec.targetRefs[0]: {why}",)


def test_a_class_whose_parameters_do_not_name_the_kind_syncs_nothing() -> None:
    assert found(policy(), syncs=False).targets == ()


def test_a_class_whose_parameters_cannot_be_read_is_no_answer() -> None:
    (one,) = found(policy(), syncs=None).targets
    assert one.gateway == GATEWAY
    assert "parameters of its GatewayClass my-gateway-class cannot be read" in one.problem


def test_a_gateway_in_another_namespace_needs_a_grant() -> None:
    body, there = policy(ref(namespace="infra")), gateway(INFRA)
    assert found(body, there).others == (
        "spec.targetRef: Gateway infra/my-gateway is in a namespace that grants no reference to it",
    )
    allowed = grant("infra", AUTH_POLICIES)
    assert [one.gateway for one in found(body, there, grants=[allowed]).targets] == [INFRA]
    wrong = grant(NS, AUTH_POLICIES)
    nameless = {**allowed, "metadata": {"namespace": "infra"}}
    assert found(body, there, grants=[wrong, nameless]).targets == ()


def test_a_granted_reference_into_another_namespace_is_refused_since_the_grant_stays_here() -> None:
    body, allowed = policy(ref(), ref(namespace="infra")), grant("infra", AUTH_POLICIES)
    own, other = found(body, gateway(), gateway(INFRA), grants=[allowed]).targets
    assert own == Target(0, GATEWAY)
    assert (other.gateway, other.problem) == (INFRA, "")
    assert other.refused.startswith(
        "spec.targetRefs[1]: Gateway infra/my-gateway is in another namespace than the policy, and "
        "the ReferenceGrant that permits the reference is not brought to clusters"
    )
    assert found(policy(ref(namespace=NS))).targets == (Target(0, GATEWAY),)


def test_a_policy_of_no_namespace_may_refer_to_any_gateway() -> None:
    body = policy(ref(namespace="infra"))
    one = resolve_targets(POLICY._replace(namespace=""), "AuthPolicy", body, hub(gateway(INFRA)))
    assert one.targets == (Target(0, INFRA),)


@pytest.mark.parametrize("value", ["true", "false", ""])
def test_a_copy_is_not_copied_on_whatever_the_value_of_its_annotation(value: str) -> None:
    """A hub that is its own spoke would make copies of copies."""
    made = found(policy(annotations={"kuadrant.io/policy-synced": value}))
    assert made.targets == ()
    assert "it is a copy itself" in made.others[0]
    assert found(policy(annotations={"kuadrant.io/policies-synced": "true"})).targets


@pytest.mark.parametrize(
    "spec",
    [
        "x",
        {"targetRef": "x"},
        {"targetRef": ref(), "targetRefs": [ref()]},
        {"targetRefs": "x"},
        {"targetRefs": [1]},
        {"targetRef": ref(1)},  # type: ignore[arg-type]
        {"targetRef": ref(sectionName=1)},
        {"targetRef": ref(namespace=[])},
    ],
)
def test_a_policy_that_cannot_be_read_is_a_problem_and_not_a_policy_without_targets(
    spec: Any,
) -> None:
    made = found({**policy(), "spec": spec})
    assert made.problem.startswith("the policy cannot be read: ")
    assert made == Targets(problem=made.problem)


def test_a_gateway_that_cannot_be_read_is_a_problem() -> None:
    assert found(policy(), {**gateway(), "spec": 1}).problem


def test_the_gateways_that_a_policy_names_are_known_whether_they_count_or_not() -> None:
    body = policy(ref(), ref("none"), ref("r", "HTTPRoute"))
    assert found(body).named == {GATEWAY, ObjectKey(NS, "none")}
    assert found(body, replace_class(gateway())).named == {GATEWAY, ObjectKey(NS, "none")}


def replace_class(one: Object) -> Object:
    return {**one, "spec": {"gatewayClassName": "other"}}


def test_a_class_that_is_not_there_syncs_nothing() -> None:
    there = replace(hub(), classes={})
    assert resolve_targets(POLICY, "AuthPolicy", policy(), there).targets == ()


SET = ObjectKey(NS, "my-set")
THROUGH = ref("my-set", "ListenerSet")


def listener_set(parent: Any = None, **metadata: Any) -> Object:
    spec = {"parentRef": parent or {"name": "my-gateway"}}
    return {"metadata": {"name": "my-set", "namespace": NS, **metadata}, "spec": spec}


def allowing(one: Object, **namespaces: Any) -> Object:
    return {**one, "spec": {**one["spec"], "allowedListeners": {"namespaces": namespaces}}}


def through(
    body: Object, one: Object, *gateways: Object, labels: Object | None = None, **more: Any
) -> Targets:
    """Return the targets where the hub has one ListenerSet; labels are those of its namespace."""
    metadata = one["metadata"]
    key = ObjectKey(metadata["namespace"], metadata["name"])
    spaces = {ObjectKey("", key.namespace): {"metadata": {"name": key.namespace, "labels": labels}}}
    sets = ListenerSets({key: one}, spaces)
    known = replace(hub(*gateways, **more), listener_sets=sets)
    return resolve_targets(POLICY, "AuthPolicy", body, known)


def test_a_listenerset_leads_to_the_gateway_that_takes_it() -> None:
    taking = allowing(gateway(), **{"from": "Same"})
    expected = Targets((Target(0, GATEWAY),), frozenset([GATEWAY]), frozenset([SET]))
    assert through(policy(THROUGH), listener_set(), taking) == expected
    assert through(policy({**THROUGH, "sectionName": "http"}), listener_set(), taking) == expected


@pytest.mark.parametrize(
    ("allowed", "labels", "counts"),
    [
        ({}, {}, False),
        ({"from": "None"}, {}, False),
        ({"from": "All"}, {}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}, {"team": "a"}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}, {}, False),
    ],
)
def test_a_gateway_that_does_not_take_a_listenerset_is_not_synced_with_by_it(
    allowed: Object,
    labels: Object,
    counts: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Who may write a ListenerSet gets no policy onto the clusters of a Gateway by that alone."""
    made = through(policy(THROUGH), listener_set(), allowing(gateway(), **allowed), labels=labels)
    assert bool(made.targets) == counts
    assert made.named == {GATEWAY}
    said = f"spec.targetRef: ListenerSet {SET} is attached to no Gateway"
    assert made.others == (() if counts else (said,))


def test_a_listenerset_that_leads_nowhere_is_told() -> None:
    there = allowing(gateway(), **{"from": "All"})
    other = policy(ref("other", "ListenerSet"))
    assert through(other, listener_set(), there).others == (
        f"spec.targetRef: ListenerSet {NS}/other was not found",
    )
    for parent in ({"name": "none"}, {"kind": "Service", "group": "", "name": "my-gateway"}):
        made = through(policy(THROUGH), listener_set(parent), there)
        assert made.others == (f"spec.targetRef: ListenerSet {SET} is attached to no Gateway",)
    unsynced = through(policy(THROUGH), listener_set(), there, syncs=False)
    assert "does not sync AuthPolicy.kuadrant.io" in unsynced.others[0]


def test_a_listenerset_in_another_namespace_needs_a_grant_of_its_own() -> None:
    there = allowing(gateway(INFRA), **{"from": "Same"})
    one = listener_set(namespace="infra")
    body = policy({**THROUGH, "namespace": "infra"})
    refused = through(body, one, there)
    assert refused.others == (
        "spec.targetRef: ListenerSet infra/my-set is in a namespace that grants no reference to it",
    )
    gateways = grant("infra", ("kuadrant.io", "AuthPolicy", NS))
    assert through(body, one, there, grants=[gateways]).targets == ()
    to = [{"group": GATEWAY_API, "kind": "ListenerSet"}]
    sets = {**gateways, "spec": {**gateways["spec"], "to": to}}
    (found,) = through(body, one, there, grants=[sets]).targets
    assert (found.gateway, found.problem) == (INFRA, "")
    assert "ListenerSet infra/my-set is in another namespace than the policy" in found.refused


def test_while_listenersets_are_not_known_what_names_one_is_kept_as_it_is() -> None:
    known = replace(hub(), listener_sets=ListenerSets(unknown="the hub's ListenerSets are away"))
    made = resolve_targets(POLICY, "AuthPolicy", policy(THROUGH, ref()), known)
    assert made.problem == "it names a ListenerSet, and the hub's ListenerSets are away"
    assert (made.targets, made.listener_sets) == ((), frozenset([SET]))
    assert resolve_targets(POLICY, "AuthPolicy", policy(), known).targets == (Target(0, GATEWAY),)
