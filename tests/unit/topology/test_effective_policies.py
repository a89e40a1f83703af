"""On which paths effective policies are, what they are called, and what of them changes."""

from __future__ import annotations

from dataclasses import replace

from kube_sync.topology import EffectivePolicy, Locator, PolicyKind, Topology
from kube_sync.topology.effective import Combined
from kube_sync.topology.gateway import LISTENER, SERVICE_PORT
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import NAMESPACE
from tests.fakes.topologies import (
    API,
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    WIDE,
    Object,
    color,
    defaults,
    effective,
    gateway,
    gateway_class,
    listener,
    made,
    namespace,
    overrides,
    route,
    rules,
    service,
    target,
    topology,
)
from tests.memory import remembered

ROUTE = target("HTTPRoute", "route")
TWO = gateway("my-gateway", listener("a"), listener("b"))
BASE: list[Object] = [gateway_class(), TWO, route()]
PER_PATH = {"sky": {"color": "blue", "identity": "PerPath"}}


def all_of(found: Topology, kind: PolicyKind = COLOR_POLICY) -> list[EffectivePolicy]:
    return list(found.effective(kind.id))


def test_each_path_has_its_own_effective_policy() -> None:
    found = topology([*BASE, color("p", target(sectionName="a"), rules=rules(sky="blue"))])
    assert [(one.path[2], bool(one.combined)) for one in all_of(found)] == [
        (f"{GATEWAY}#a", True),
        (f"{GATEWAY}#b", False),
    ]


def test_a_policy_of_a_section_leaves_the_rest_of_the_object_alone() -> None:
    found = topology([*BASE, color("p", target(sectionName="a"), rules=rules(sky="blue"))])
    own = Locator(f"colorpolicy.examples.kube-sync.io:{NS}/p")
    assert found.all.children(own) == (f"{GATEWAY}#a",)
    assert found.policy(own)[1].targets == (f"{GATEWAY}#a",)


def test_path_identifiers_differ_by_path_and_kind_and_by_nothing_else() -> None:
    other = replace(COLOR_POLICY, id=COLOR_POLICY.id._replace(kind="ShapePolicy"))
    found = topology(BASE, API, COLOR_POLICY, other)
    ids = [one.path_id for kind in (COLOR_POLICY, other) for one in all_of(found, kind)]
    assert len(set(ids)) == len(ids) == 4
    again = topology([*BASE, color("p", rules=rules(sky="blue"))])
    assert [one.path_id for one in all_of(again)] == ids[:2]


def test_identifiers_outlive_the_process() -> None:
    """They are in the hands of others: a change of the digest is a change of the contract."""
    one = all_of(topology([*BASE, color("p", rules=rules(sky="blue"))]))[0]
    assert (one.path_id, one.id, one.rule_ids["sky"]) == (
        "8d70ccbd2833aaea60c1",
        "a6c7972d40fffeb18771",
        "00676863ebe29b9aa369",
    )


def test_shared_rules_are_one_thing_on_all_paths() -> None:
    first, second = all_of(topology([*BASE, color("p", rules=rules(sky="blue"))]))
    assert first.id == second.id
    assert first.rule_ids == second.rule_ids
    assert first.path_id != second.path_id


def test_a_rule_may_be_another_on_each_path_and_its_effective_policy_too() -> None:
    policy = color("p", rules=PER_PATH | rules(grass="green"))
    first, second = all_of(topology([*BASE, policy]))
    assert first.id != second.id
    assert first.rule_ids["sky"] != second.rule_ids["sky"]
    assert first.rule_ids["grass"] == second.rule_ids["grass"]


def test_the_same_rule_of_another_policy_is_another_thing() -> None:
    (one, *_), (other, *_) = (
        all_of(topology([*BASE, color(name, rules=rules(sky="blue"))])) for name in "pq"
    )
    assert one.rule_ids != other.rule_ids
    assert one.id != other.id


def test_identifiers_stay_when_the_value_of_a_rule_changes() -> None:
    found = topology([*BASE, color("p", rules=rules(sky="blue"))])
    before = [(one.id, one.rule_ids) for one in all_of(found)]
    found.update([color("p", rules=rules(sky="red"))])
    assert [(one.id, one.rule_ids) for one in all_of(found)] == before
    assert set(map(str, effective(found).values())) == {"{'sky': 'red'}"}


def test_a_kind_says_the_lowest_level_that_it_takes_effect_at() -> None:
    kind = replace(COLOR_POLICY, level=frozenset({LISTENER}))
    found = topology([*BASE, color("p", rules=rules(sky="blue"))], API, kind)
    assert [one.path for one in all_of(found, kind)] == [
        (CLASS, GATEWAY, f"{GATEWAY}#a"),
        (CLASS, GATEWAY, f"{GATEWAY}#b"),
    ]


def test_a_kind_without_a_level_takes_effect_at_what_it_targets() -> None:
    kind = replace(COLOR_POLICY, level=frozenset(), origins=frozenset())
    found = topology([*BASE, color("p", rules=rules(sky="blue"))], API, kind)
    assert [one.path for one in all_of(found, kind)] == [(CLASS, GATEWAY)]


def test_a_namespace_may_be_the_level() -> None:
    kind = replace(COLOR_POLICY, level=frozenset({NAMESPACE}), origins=frozenset())
    policy = color("p", target("Namespace", NS), rules=rules(sky="blue"))
    found = topology([namespace(NS), namespace("other"), policy], API, kind)
    assert effective(found) == {NS: {"sky": "blue"}}
    assert len(all_of(found, kind)) == 2


def test_a_policy_of_a_namespace_is_less_specific_than_those_of_what_lies_in_it() -> None:
    space = color("space", target("Namespace", NS), **defaults("merge", sky="grey", sea="blue"))
    found = topology([*BASE, namespace(NS), space, color("r", ROUTE, rules=rules(sky="red"))])
    assert set(map(str, effective(found).values())) == {"{'sea': 'blue', 'sky': 'red'}"}
    assert _policies(all_of(found)[0]) == ["space", "r"]


def test_a_policy_of_the_class_is_less_specific_than_one_of_the_namespace() -> None:
    above = color("class", target("GatewayClass", "my-gateway-class"), rules=rules(sky="red"))
    space = color("space", target("Namespace", NS), rules=rules(sky="blue"))
    found = topology([*BASE, namespace(NS), above, space], API, WIDE)
    assert _policies(all_of(found)[0]) == ["class", "space"]


def _policies(one: EffectivePolicy) -> list[str]:
    return [policy.node.name for policy in one.combined.policies] if one.combined else []


def test_a_policy_of_a_namespace_counts_from_where_the_path_enters_it() -> None:
    edge = gateway("my-gateway", listener(allowedRoutes={"namespaces": {"from": "All"}}))
    ref = {"name": "my-gateway", "namespace": NS}
    objects = [gateway_class(), edge, route(NAMESPACE="apps", parentRefs=[ref]), namespace("apps")]
    apps = color("apps", target("Namespace", "apps"), namespace="apps", rules=rules(a="1"))
    found = topology([*objects, apps, color("gw", rules=rules(b="2"))])
    (one,) = all_of(found)
    assert _policies(one) == ["gw", "apps"]
    assert one.spec == rules(a="1")


def test_a_namespace_that_comes_later_brings_its_policies_into_force() -> None:
    found = topology([TWO, route(), color("p", target("Namespace", NS), rules=rules(sky="blue"))])
    assert effective(found) == {}
    found.update([namespace(NS)])
    assert len(effective(found)) == 2
    found.update(deleted=[Locator(f"namespace:{NS}")])
    assert effective(found) == {}


def test_a_policy_of_a_service_counts_for_its_ports_that_are_reached_without_it() -> None:
    kind = replace(COLOR_POLICY, level=frozenset({SERVICE_PORT}))
    backends = [{"backendRefs": [{"name": "service", "port": 80}]}]
    objects = [gateway_class(), gateway(), route(rules=backends), service("service", 80)]
    policy = color("p", target("Service", "service"), rules=rules(sky="blue"))
    found = topology([*objects, policy], API, kind)
    (one,) = all_of(found, kind)
    assert f"service:{NS}/service" not in one.path
    assert one.spec == rules(sky="blue")


def test_a_policy_of_a_service_counts_once_where_the_path_leads_through_it() -> None:
    kind = replace(COLOR_POLICY, level=frozenset({SERVICE_PORT}))
    backends = [{"backendRefs": [{"name": "service"}]}]
    objects = [gateway_class(), gateway(), route(rules=backends), service("service", 80)]
    policy = color("p", target("Service", "service"), rules=rules(sky="blue"))
    (one,) = all_of(topology([*objects, policy], API, kind), kind)
    assert len(_policies(one)) == 1


def test_a_route_without_a_gateway_has_no_path() -> None:
    found = topology([route(), color("p", ROUTE, rules=rules(sky="blue"))])
    assert all_of(found) == []


def test_one_policy_may_target_many() -> None:
    objects = [gateway_class(), gateway(), *(route(name) for name in ("r1", "r2", "r3"))]
    refs = [target("HTTPRoute", name) for name in ("r1", "r3")]
    found = topology([*objects, color("p", refs, rules=rules(sky="blue"))])
    assert [path.rpartition("|")[2] for path in effective(found)] == ["r1#rule-1", "r3#rule-1"]


def test_a_policy_at_two_levels_is_as_specific_as_its_lower_target() -> None:
    both = color("both", [target(), ROUTE], rules=rules(sky="blue"))
    found = topology([*BASE, both, color("l", target(sectionName="a"), rules=rules(sky="red"))])
    assert set(map(str, effective(found).values())) == {"{'sky': 'blue'}"}


def test_without_merging_the_most_specific_policy_stands_alone() -> None:
    kind = replace(COLOR_POLICY, merges=False)
    policies = [
        color("gw", **overrides("merge", sky="red")),
        color("r", ROUTE, rules=rules(sea="blue")),
    ]
    found = topology([*BASE, *policies], API, kind)
    assert set(map(str, effective(found).values())) == {"{'sea': 'blue'}"}


def test_an_update_names_what_may_differ_and_nothing_else() -> None:
    found = topology([*BASE, route("other"), color("p", ROUTE, rules=rules(sky="blue"))])
    own = Locator(f"httproute.{GROUP}:{NS}/route")
    policy = Locator(f"colorpolicy.examples.kube-sync.io:{NS}/p")
    changed = found.update([color("p", ROUTE, rules=rules(sky="red"))])
    assert changed == {own, f"{own}#rule-1"}
    assert found.update([color("p", ROUTE, rules=rules(sky="red"))]) == frozenset()
    assert found.update([route()]) == frozenset()
    assert found.update(deleted=[policy]) == {own, f"{own}#rule-1", policy}


def test_what_an_update_does_not_name_is_not_computed_again() -> None:
    found = topology([*BASE, route("other"), color("p", rules=rules(sky="blue"))])
    before = all_of(found)
    found.update([color("q", ROUTE, rules=rules(sky="red"))])
    kept = [one for one in all_of(found) if any(one is other for other in before)]
    assert [one.path[3].rpartition("/")[2] for one in kept] == ["other", "other"]


def test_what_was_combined_of_policies_that_are_gone_is_dropped() -> None:
    """A topology lives as long as its controller."""
    found = topology([*BASE, color("p", rules=rules(sky="blue"))])
    for shade in range(20):
        found.update([color("p", rules=rules(sky=f"blue-{shade}"))])
        all_of(found)
    assert len(remembered(found, Combined)) == 1


def test_a_class_that_goes_takes_the_paths_through_it_along() -> None:
    found = topology([*BASE, color("p", rules=rules(sky="blue"))])
    found.update(deleted=[CLASS])
    assert [one.path[0] for one in all_of(found)] == [GATEWAY, GATEWAY]
    found.update(deleted=[GATEWAY])
    assert all_of(found) == []


def test_a_kind_of_ones_own_is_a_few_lines() -> None:
    kind = PolicyKind(COLOR_POLICY.id._replace(kind="ShapePolicy"), level=frozenset({LISTENER}))
    spec = {"targetRef": target(), "defaults": {"rules": {"corner": "round"}}}
    shape = made("examples.kube-sync.io/v1/ShapePolicy", "p", spec)
    found = topology([TWO, shape], API, kind)
    assert effective(found, kind.id) == {
        "my-gateway|my-gateway#a": {"corner": "round"},
        "my-gateway|my-gateway#b": {"corner": "round"},
    }
