"""Kuadrant's own CustomResourceDefinitions, as its operator releases them."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.topology import NAMESPACE, Condition, GroupKind, Kind, PolicyKind, Topology
from kube_sync.topology.policy_definitions import declared
from tests.fakes.released import released_kind
from tests.fakes.topologies import (
    API,
    Object,
    gateway,
    gateway_class,
    listener,
    made,
    named,
    route,
    target,
    topology,
)

KINDS = (Kind(NAMESPACE, namespaced=False), *API.kinds)
ROUTE = target("HTTPRoute", "route")
BASE = [gateway_class(), gateway(), route()]


def kind_of(kind: str) -> PolicyKind:
    return declared(released_kind("kuadrant", kind), KINDS)


def policy(kind: str, name: str, ref: Object | None = None, **spec: Any) -> Object:
    age = spec.pop("age", 2020)
    metadata = {"creationTimestamp": f"{age}-01-01T00:00:00Z"}
    return made(f"kuadrant.io/v1/{kind}", name, {"targetRef": ref or target()} | spec, **metadata)


def built(*objects: Object, kind: str) -> Topology:
    return topology([*BASE, *objects], API, kind_of(kind))


def on_one_path(found: Topology, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the effective spec, and the name of the policy that each rule came from."""
    id_ = GroupKind("kuadrant.io", kind)
    (one,) = found.effective(id_)
    sources = {rule: source.partition("/")[2] for rule, source in one.sources.items()}
    return dict(found.policy_kinds[id_].spec(one.spec)), sources


def said(found: Topology, kind: str) -> dict[str, dict[str, Condition]]:
    """Return the conditions of policies, by name and type."""
    result: dict[str, dict[str, Condition]] = {}
    for condition in found.conditions():
        if condition.locator.startswith(f"{kind.lower()}."):
            name = condition.locator.partition("/")[2]
            result.setdefault(name, {})[condition.type] = condition
    return result


def limit(number: int) -> Object:
    return {"rates": [{"limit": number, "window": "1m"}]}


def test_limits_of_a_gateway_that_a_route_does_not_name_stay_in_force() -> None:
    limits = {"global": limit(100), "peruser": limit(10)}
    above = policy("RateLimitPolicy", "above", defaults={"strategy": "merge", "limits": limits})
    below = policy("RateLimitPolicy", "below", ROUTE, limits={"peruser": limit(1)})
    found = built(above, below, kind="RateLimitPolicy")
    spec, sources = on_one_path(found, "RateLimitPolicy")
    assert spec == {"limits": {"global": limit(100), "peruser": limit(1)}}
    assert sources == {"global": "above", "peruser": "below"}
    enforced = said(found, "RateLimitPolicy")["above"]["Enforced"]
    assert (enforced.status, enforced.reason) == ("True", "Enforced")
    assert '"peruser" overridden by' in enforced.message


def test_an_override_of_one_authentication_leaves_the_others_of_the_route() -> None:
    oidc = {"jwt": {"issuerUrl": "https://example.com"}}
    apikey: Object = {"apiKey": {"selector": {}}}
    rules = {"authentication": {"oidc": oidc}}
    above = policy("AuthPolicy", "above", overrides={"strategy": "merge", "rules": rules})
    below = policy("AuthPolicy", "below", ROUTE, rules={"authentication": {"apikey": apikey}})
    spec, sources = on_one_path(built(above, below, kind="AuthPolicy"), "AuthPolicy")
    assert spec == {"rules": {"authentication": {"oidc": oidc, "apikey": apikey}}}
    assert sources == {
        "rules.authentication#apikey": "below",
        "rules.authentication#oidc": "above",
    }


@pytest.mark.parametrize("block", ["", "defaults", "overrides"])
def test_what_belongs_to_no_map_of_rules_is_in_the_effective_policy(block: str) -> None:
    rules = {
        "authentication": {"oidc": {"jwt": {}}},
        "response": {
            "unauthenticated": {"code": 302},
            "success": {"headers": {"x": {"plain": {}}}, "filters": {"f": {"json": {}}}},
        },
    }
    proper = {
        "when": [{"predicate": "true"}],
        "patterns": {"p": {"allOf": []}},
        "rules": rules,
    }
    spec = {block: proper} if block else proper
    found = built(policy("AuthPolicy", "one", **spec), kind="AuthPolicy")
    assert on_one_path(found, "AuthPolicy") == (
        proper,
        dict.fromkeys(
            [
                ".rules.response.unauthenticated",
                ".when",
                "patterns#p",
                "rules.authentication#oidc",
                "rules.response.success.filters#f",
                "rules.response.success.headers#x",
            ],
            "one",
        ),
    )


def test_conditions_of_a_gateway_are_merged_beside_the_limits_of_a_route() -> None:
    when = [{"predicate": "request.path != '/health'"}]
    above = policy(
        "RateLimitPolicy",
        "above",
        overrides={"strategy": "merge", "when": when, "limits": {"global": limit(9)}},
    )
    below = policy(
        "RateLimitPolicy", "below", ROUTE, when=[{"predicate": "false"}], limits={"when": limit(1)}
    )
    spec, sources = on_one_path(built(above, below, kind="RateLimitPolicy"), "RateLimitPolicy")
    assert spec == {"when": when, "limits": {"global": limit(9), "when": limit(1)}}
    assert sources == {".when": "above", "global": "above", "when": "below"}


@pytest.mark.parametrize("kind", ["DNSPolicy", "TLSPolicy"])
def test_of_two_direct_policies_of_a_gateway_the_older_wins(kind: str) -> None:
    older, newer = policy(kind, "older", age=2020), policy(kind, "newer", age=2021)
    conditions = said(built(newer, older, kind=kind), kind)
    assert conditions["newer"]["Accepted"].reason == "Conflicted"
    assert conditions["newer"].keys() == {"Accepted"}
    assert conditions["older"]["Enforced"].status == "True"


@pytest.mark.parametrize("kind", ["DNSPolicy", "TLSPolicy"])
def test_policies_of_listeners_are_reported_by_listener(kind: str) -> None:
    ref = target(sectionName="a")
    objects = [gateway_class(), gateway("my-gateway", listener("a"), listener("b"))]
    found = topology([*objects, policy(kind, "one", ref)], API, kind_of(kind))
    reported = {
        named(found, one.path): [p.node.name for p in one.combined.policies] if one.combined else []
        for one in found.effective(GroupKind("kuadrant.io", kind))
    }
    above = "my-gateway-class|my-gateway|my-gateway"
    assert reported == {f"{above}#a": ["one"], f"{above}#b": []}


def test_a_listener_has_the_policy_of_its_gateway_unless_it_has_its_own() -> None:
    objects = [gateway_class(), gateway("my-gateway", listener("a"), listener("b"))]
    whole = policy("TLSPolicy", "whole", issuerRef={"name": "whole"})
    own = policy("TLSPolicy", "own", target(sectionName="a"), issuerRef={"name": "own"})
    found = topology([*objects, whole, own], API, kind_of("TLSPolicy"))
    issuers = {
        one.path[-1].partition("#")[2]: one.spec["issuerRef"]["name"]
        for one in found.effective(GroupKind("kuadrant.io", "TLSPolicy"))
    }
    assert issuers == {"a": "own", "b": "whole"}
    enforced = said(found, "TLSPolicy")["whole"]["Enforced"]
    assert (enforced.status, enforced.reason) == ("True", "Enforced")
    assert "partially" in enforced.message
