"""What is known of other projects' kinds, beside the definitions that these projects release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kube_sync.topology import NAMESPACE, GroupKind, Kind, PolicyKind
from kube_sync.topology.hints import shipped_kinds
from kube_sync.topology.policy_definitions import declared
from tests.fakes.released import Object, released, released_kind, with_targets
from tests.fakes.topologies import (
    API,
    GROUP,
    gateway,
    gateway_class,
    listener,
    made,
    named,
    route,
    target,
    topology,
)

PROJECTS = ["kuadrant", "envoy-gateway", "istio"]
KINDS = (Kind(NAMESPACE, namespaced=False), *API.kinds)
ROUTE = target("HTTPRoute", "route")
BASE = [gateway_class(), gateway(), route()]
# Not in the release that is tried here: as the operator's newer releases have it.
NEWER = {GroupKind("kuadrant.io", "TokenRateLimitPolicy")}
OF_THE_GATEWAY_API = {GroupKind(GROUP, "BackendTLSPolicy")}


def id_of(body: Object) -> GroupKind:
    return GroupKind(body["spec"]["group"], body["spec"]["names"]["kind"])


def specs(body: Object) -> Iterator[Object]:
    for version in body["spec"]["versions"]:
        if version["served"]:
            yield version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def maps(schema: Object, path: str = "") -> Iterator[str]:
    """Yield the outermost fields that hold entries by name."""
    for name, field in schema.get("properties", {}).items():
        place = f"{path}.{name}".removeprefix(".")
        if isinstance(field.get("additionalProperties"), dict):
            yield place
        else:
            yield from maps(field, place)


def test_every_released_kind_with_a_target_is_known() -> None:
    found = {id_of(body) for project in PROJECTS for body in with_targets(project)}
    assert found == shipped_kinds() - NEWER - OF_THE_GATEWAY_API


@pytest.mark.parametrize("project", PROJECTS)
def test_fields_that_are_named_are_fields_of_the_released_schemas(project: str) -> None:
    for body in with_targets(project):
        kind = declared(body, KINDS)
        for spec in specs(body):
            assert set(kind.rules) <= set(maps(spec)), kind.id
            fields = {*kind.no_rules, *filter(None, [kind.merge_type])}
            assert fields <= spec["properties"].keys(), kind.id


@pytest.mark.parametrize("kind", ["AuthPolicy", "RateLimitPolicy"])
def test_every_map_of_a_kuadrant_policy_is_one_of_named_rules(kind: str) -> None:
    body = released_kind("kuadrant", kind)
    denials = ("rules.response.unauthenticated.", "rules.response.unauthorized.")
    for spec in specs(body):
        blocks = {name: spec["properties"].pop(name) for name in ("defaults", "overrides")}
        try:
            for one in (spec, *blocks.values()):
                found = {path for path in maps(one) if not path.startswith(denials)}
                assert found == set(declared(body, KINDS).rules)
        finally:
            spec["properties"] |= blocks


def test_a_newer_kind_has_its_limits_where_its_sister_has_them() -> None:
    sister = released_kind("kuadrant", "RateLimitPolicy")
    newer = {**sister, "spec": sister["spec"] | {"names": {"kind": "TokenRateLimitPolicy"}}}
    assert declared(newer, KINDS).rules == declared(sister, KINDS).rules == ("limits",)


def envoy(kind: str) -> PolicyKind:
    return declared(released_kind("envoy-gateway", kind), KINDS)


def traffic(name: str, ref: Object, age: int = 2020, **spec: Any) -> Object:
    made_at = {"creationTimestamp": f"{age}-01-01T00:00:00Z"}
    kind = "gateway.envoyproxy.io/v1alpha1/BackendTrafficPolicy"
    return made(kind, name, {"targetRefs": [ref]} | spec, **made_at)


def test_a_traffic_policy_of_a_route_replaces_that_of_its_gateway() -> None:
    above = traffic("above", target(), retry={"numRetries": 5}, timeout={"tcp": {}})
    below = traffic("below", ROUTE, retry={"numRetries": 1})
    found = topology([*BASE, above, below], API, envoy("BackendTrafficPolicy"))
    (one,) = found.effective(envoy("BackendTrafficPolicy").id)
    assert one.spec == {"retry": {"numRetries": 1}}


@pytest.mark.parametrize("merge_type", ["StrategicMerge", "JSONMerge"])
def test_a_traffic_policy_that_is_merged_has_what_it_does_not_say_from_above(
    merge_type: str,
) -> None:
    retry = {"numRetries": 5, "retryOn": {"triggers": ["5xx"]}}
    above = traffic("above", target(), retry=retry, timeout={"tcp": {}})
    below = traffic("below", ROUTE, retry={"numRetries": 1}, mergeType=merge_type)
    kind = envoy("BackendTrafficPolicy")
    found = topology([*BASE, above, below], API, kind)
    (one,) = found.effective(kind.id)
    assert one.spec == {"retry": retry | {"numRetries": 1}, "timeout": {"tcp": {}}}
    messages = [c.message for c in found.conditions() if c.locator.endswith("/above")]
    assert not any("overridden" in message for message in messages)


def test_of_two_traffic_policies_of_a_route_the_newer_is_in_conflict() -> None:
    pair = [traffic(f"made-{age}", ROUTE, age) for age in (2020, 2021)]
    found = topology([*BASE, *pair], API, envoy("BackendTrafficPolicy"))
    reasons = {
        condition.locator.partition("/")[2]: condition.reason
        for condition in found.conditions()
        if condition.type == "Accepted"
    }
    assert reasons == {"made-2020": "Accepted", "made-2021": "Conflicted"}


def test_policies_of_clients_are_reported_by_listener() -> None:
    kind = envoy("ClientTrafficPolicy")
    objects = [gateway_class(), gateway("my-gateway", listener("a"), listener("b"))]
    spec = {"targetRefs": [target(sectionName="a")], "http3": {}}
    policy = made("gateway.envoyproxy.io/v1alpha1/ClientTrafficPolicy", "one", spec)
    found = topology([*objects, policy], API, kind)
    above = "my-gateway-class|my-gateway|my-gateway"
    applied = {named(found, one.path): dict(one.spec) for one in found.effective(kind.id)}
    assert applied == {f"{above}#a": {"http3": {}}, f"{above}#b": {}}


def test_authorization_policies_of_one_gateway_are_all_in_effect() -> None:
    kind = declared(released_kind("istio", "AuthorizationPolicy"), KINDS)
    pair = [
        made(
            "security.istio.io/v1/AuthorizationPolicy",
            name,
            {"targetRefs": [target()], "action": action, "rules": [{}]},
        )
        for name, action in (("allow", "ALLOW"), ("deny", "DENY"))
    ]
    found = topology([*BASE, *pair], API, kind)
    (one,) = found.effective(kind.id)
    assert {name: value["action"] for name, value in one.spec.items()} == {
        "my-namespace/allow": "ALLOW",
        "my-namespace/deny": "DENY",
    }
    assert found.conflicts() == []
    assert {c.status for c in found.conditions() if "authorization" in c.locator} == {"True"}


@pytest.mark.parametrize("spec", [{}, {"selector": {"matchLabels": {"app": "web"}}}])
def test_a_policy_that_selects_without_a_target_is_no_fault(spec: Object) -> None:
    kind = declared(released_kind("istio", "AuthorizationPolicy"), KINDS)
    policy = made("security.istio.io/v1/AuthorizationPolicy", "mesh", spec | {"action": "DENY"})
    found = topology([*BASE, policy], API, kind)
    assert [c for c in found.conditions() if "authorization" in c.locator] == []
    assert list(found.effective(kind.id)) == []


def test_every_definition_of_the_projects_can_be_read() -> None:
    for project in PROJECTS:
        for body in released(project):
            assert declared(body, KINDS).id == id_of(body)
