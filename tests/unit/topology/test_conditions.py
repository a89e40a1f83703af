"""What is said of policies: accepted or not, in force or not, and who contradicts whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.topology import Conflict, Locator, PolicyKind, Topology
from kube_sync.topology.affected import affected
from kube_sync.topology.hints import COLOR_POLICY
from tests.fakes.topologies import (
    API,
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
    grant,
    namespace,
    overrides,
    route,
    rules,
    target,
    topology,
)

ROUTE = target("HTTPRoute", "route")
BASE: list[Object] = [gateway_class(), gateway(), route()]
KIND = "colorpolicy.examples.kube-sync.io"


def own(name: str, space: str = NS) -> Locator:
    return Locator(f"{KIND}:{space}/{name}")


def said(found: Topology, name: str, space: str = NS) -> dict[str, tuple[str, str, str]]:
    return {
        condition.type: (condition.status, condition.reason, condition.message)
        for condition in found.conditions()
        if condition.locator == own(name, space)
    }


def test_a_policy_in_force_is_accepted_and_programmed() -> None:
    found = topology([*BASE, color("p", rules=rules(a="blue"))])
    assert said(found, "p") == {
        "Accepted": ("True", "Accepted", "ColorPolicy has been accepted"),
        "Programmed": ("True", "Programmed", "ColorPolicy has been successfully enforced"),
    }


@pytest.mark.parametrize(
    "ref", [target(name="none"), target(sectionName="none"), target("Bucket", "my-gateway")]
)
def test_a_policy_whose_target_is_missing_stays_visible(ref: Object) -> None:
    found = topology([*BASE, color("p", ref, rules=rules(a="blue"))])
    assert own("p") in found
    assert found.all.children(own("p")) == ()
    status, reason, message = said(found, "p")["Accepted"]
    assert (status, reason) == ("False", "TargetNotFound")
    assert message.endswith("was not found")
    assert "Programmed" not in said(found, "p")


def test_a_target_that_comes_later_is_found() -> None:
    found = topology([*BASE, color("p", target("HTTPRoute", "late"), rules=rules(a="blue"))])
    found.update([route("late")])
    assert said(found, "p")["Accepted"][1] == "Accepted"
    assert len(effective(found)) == 1


def test_of_many_targets_the_missing_one_is_said_beside() -> None:
    found = topology([*BASE, color("p", [ROUTE, target(name="none")], rules=rules(a="blue"))])
    assert said(found, "p")["Accepted"][0] == "True"
    assert said(found, "p")["ResolvedRefs"] == (
        "False",
        "TargetNotFound",
        f"ColorPolicy target gateway.{GROUP}:{NS}/none was not found",
    )


def test_what_is_no_targetable_is_not_found_either() -> None:
    ref = {"group": "examples.kube-sync.io", "kind": "ColorPolicy", "name": "p"}
    found = topology([color("p", ref, rules=rules(a="blue"))])
    assert said(found, "p")["Accepted"][1] == "TargetNotFound"


def in_force(found: Topology) -> bool:
    return bool(effective(found))


def test_a_target_in_another_namespace_needs_a_grant() -> None:
    policy = color("p", target(namespace=NS), namespace="other", rules=rules(a="blue"))
    found = topology([*BASE, policy])
    assert said(found, "p", "other")["Accepted"] == (
        "False",
        "RefNotPermitted",
        f"ColorPolicy target {GATEWAY} is in a namespace that grants no reference to it",
    )
    found.update([grant(NS, ("examples.kube-sync.io", "ColorPolicy", "other"))])
    assert in_force(found)
    found.update(deleted=[Locator(f"referencegrant.{GROUP}:{NS}/grant")])
    assert not in_force(found)


def test_a_kind_may_do_without_grants_or_never_leave_its_namespace() -> None:
    allowed = grant(NS, ("examples.kube-sync.io", "ColorPolicy", "other"))
    policy = color("p", target(namespace=NS), namespace="other", rules=rules(a="blue"))
    free, never = replace(COLOR_POLICY, across="free"), replace(COLOR_POLICY, across="never")
    assert in_force(topology([*BASE, policy], API, free))
    assert not in_force(topology([*BASE, policy, allowed], API, never))


def test_one_permitted_target_is_enough_to_be_accepted() -> None:
    refs = [target(), target(name="gw", namespace="other")]
    found = topology([*BASE, color("p", refs, rules=rules(a="blue"))])
    assert said(found, "p")["ResolvedRefs"][1] == "RefNotPermitted"


def test_a_missing_and_a_refused_target_are_both_said() -> None:
    refs = [target(name="none"), target(name="gw", namespace="other")]
    found = topology([*BASE, color("p", refs, rules=rules(a="blue"))])
    status, reason, message = said(found, "p")["Accepted"]
    assert (status, reason) == ("False", "TargetNotFound")
    assert "was not found; ColorPolicy target gateway" in message


def test_the_own_namespace_is_a_target_and_another_is_not() -> None:
    spaces = [namespace(NS), namespace("other")]
    found = topology(
        [
            *BASE,
            *spaces,
            color("mine", target("Namespace", NS), rules=rules(a="blue")),
            color("theirs", target("Namespace", "other"), rules=rules(a="blue")),
        ]
    )
    assert said(found, "mine")["Accepted"][0] == "True"
    assert said(found, "theirs")["Accepted"][1] == "RefNotPermitted"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"defaults": {}, "overrides": {}}, "spec.defaults: not together with spec.overrides"),
        ({"defaults": {}, "rules": {}}, "spec.defaults: not together with spec.rules"),
        ({"overrides": "red"}, "spec.overrides: expected a mapping, found text"),
        ({"rules": ["red"]}, "spec.rules: expected a mapping, found a list"),
        ({"overrides": {"strategy": 1}}, "spec.overrides.strategy: expected text, found a number"),
        ({"targetRefs": []}, "spec.targetRef: not together with spec.targetRefs"),
        ({"targetRef": "gw"}, "spec.targetRef: expected a mapping, found text"),
        ({"targetRef": None}, "spec.targetRef.kind: a target needs one"),
        ({"targetRef": {"kind": "Gateway"}}, "spec.targetRef.name: a target needs one"),
        (
            {"targetRef": {"kind": "Gateway", "name": 1.5}},
            "spec.targetRef.name: expected text, found something",
        ),
        (
            {"targetRef": target(sectionName=["a"])},  # type: ignore[arg-type]
            "spec.targetRef.sectionName: expected text, found a list",
        ),
    ],
)
def test_a_policy_that_means_nothing_says_why_and_harms_no_other(
    spec: dict[str, Any], message: str
) -> None:
    broken, good = color("p"), color("good", rules=rules(a="blue"))
    broken["spec"] |= spec
    found = topology([*BASE, broken, good])
    assert said(found, "p") == {"Accepted": ("False", "Invalid", f"ColorPolicy: {message}")}
    assert list(effective(found).values()) == [{"a": "blue"}]


def test_what_is_null_is_not_said() -> None:
    policy = color("p", rules=rules(a="blue"))
    policy["spec"] |= {"targetRefs": None, "defaults": None, "overrides": None}
    other = color("q", [ROUTE], **overrides("merge", b="red"))
    other["spec"] |= {"targetRef": None, "rules": None}
    found = topology([*BASE, policy, other])
    assert list(effective(found).values()) == [{"b": "red"}]
    assert [said(found, name)["Accepted"][0] for name in "pq"] == ["True", "True"]


@pytest.mark.parametrize(
    ("refs", "message"),
    [
        ([], "spec.targetRefs: a policy needs a target"),
        (["gw"], "spec.targetRefs[0]: expected a mapping, found text"),
        ([target(), {"name": "gw"}], "spec.targetRefs[1].kind: a target needs one"),
    ],
)
def test_malformed_targets_are_said_by_their_place(refs: list[Any], message: str) -> None:
    broken = color("p", rules=rules(a="blue"))
    broken["spec"] = {"targetRefs": refs, "rules": rules(a="blue")}
    found = topology([*BASE, broken])
    assert said(found, "p")["Accepted"][2] == f"ColorPolicy: {message}"


def test_a_time_that_is_none_makes_a_policy_invalid() -> None:
    broken = color("p", rules=rules(a="blue"))
    broken["metadata"]["creationTimestamp"] = "yesterday"
    found = topology([*BASE, broken])
    assert '"yesterday" is no time' in said(found, "p")["Accepted"][2]


def test_a_strategy_that_is_not_known_is_said() -> None:
    found = topology([*BASE, color("p", **defaults("mrege", a="blue"))])
    assert said(found, "p")["Accepted"] == (
        "True",
        "Accepted",
        'ColorPolicy has been accepted; strategy "mrege" is not known and counts as atomic',
    )


def test_a_policy_none_of_whose_rules_is_left_is_overridden() -> None:
    policies = [color("gw", **overrides(a="red")), color("r", ROUTE, rules=rules(b="blue"))]
    found = topology([*BASE, *policies])
    assert said(found, "r")["Programmed"] == (
        "False",
        "Overridden",
        f"ColorPolicy is overridden by [{NS}/gw]",
    )
    assert found.conflicts() == []  # at another level: that is what overrides are for


def test_a_policy_some_of_whose_rules_are_left_is_in_force_partially() -> None:
    policies = [
        color("gw", **overrides("merge", a="red")),
        color("r", ROUTE, rules=rules(a="blue", b="blue")),
    ]
    assert said(topology([*BASE, *policies]), "r")["Programmed"] == (
        "True",
        "PartiallyProgrammed",
        f'ColorPolicy has been partially enforced: "a" overridden by [{NS}/gw]',
    )


def test_a_policy_that_is_overridden_on_one_path_only_is_in_force_partially() -> None:
    found = topology([*BASE, route("other"), color("gw", rules=rules(a="red"))])
    assert said(found, "gw")["Programmed"][1] == "Programmed"
    found.update([color("r", ROUTE, rules=rules(a="blue"))])
    assert said(found, "gw")["Programmed"][1] == "PartiallyProgrammed"


def test_a_policy_that_part_of_a_rule_is_from_is_not_overridden() -> None:
    high = color("gw", defaults={"strategy": "patch", "rules": {"a": {"shade": 1}}})
    found = topology([*BASE, high, color("r", ROUTE, rules=rules(a="blue"))])
    assert said(found, "gw")["Programmed"][1] == "Programmed"


def test_an_empty_override_overrides() -> None:
    policies = [color("gw", overrides={"rules": {}}), color("r", ROUTE, rules=rules(b="blue"))]
    found = topology([*BASE, *policies])
    assert said(found, "r")["Programmed"][2] == f"ColorPolicy is overridden by [{NS}/gw]"
    assert said(found, "gw")["Programmed"][1] == "Programmed"


def test_a_policy_in_no_path_is_not_in_force() -> None:
    found = topology([gateway_class(), gateway(), color("p", rules=rules(a="blue"))])
    assert said(found, "p")["Programmed"] == (
        "False",
        "Unknown",
        "ColorPolicy is not in the path to anything that it takes effect at",
    )


def test_policies_of_one_target_that_want_different_things_are_in_conflict() -> None:
    old, new = (
        color(name, **overrides("merge", a=name, same="x"), age=age)
        for name, age in (("old", 2020), ("new", 2021))
    )
    found = topology([*BASE, old, new])
    assert found.conflicts() == [Conflict(own("new"), own("old"), GATEWAY, ("a",))]


def test_policies_of_one_target_that_want_the_same_are_in_no_conflict() -> None:
    both = (color(name, **overrides("merge", a="red")) for name in ("p", "q"))
    assert topology([*BASE, *both]).conflicts() == []


def test_rules_that_an_atomic_policy_of_the_same_target_wipes_out_are_in_conflict() -> None:
    """Both are at the gateway: the newer one replaces the defaults of the older."""
    found = topology(
        [
            *BASE,
            color("p1", rules=rules(gateway="10", route="10"), age=2020),
            color("p2", **overrides("merge", route="3"), age=2021),
        ]
    )
    assert said(found, "p1")["Programmed"][:2] == ("False", "Overridden")
    assert found.conflicts() == [Conflict(own("p1"), own("p2"), GATEWAY, ("gateway", "route"))]


def test_where_policies_do_not_merge_the_first_of_a_target_stands() -> None:
    kind = replace(COLOR_POLICY, merges=False)
    old, new = color("z", rules=rules(a="red"), age=2020), color("a", rules=rules(a="blue"))
    found = topology([*BASE, new, old], API, kind)
    assert list(effective(found).values()) == [{"a": "red"}]
    assert said(found, "a") == {
        "Accepted": ("False", "Conflicted", f"ColorPolicy is conflicted by [{NS}/z]")
    }
    assert found.conflicts() == [Conflict(own("a"), own("z"), GATEWAY, ())]
    found.update(deleted=[own("z")])
    assert list(effective(found).values()) == [{"a": "blue"}]
    assert said(found, "a")["Accepted"][1] == "Accepted"
    assert found.conflicts() == []


def test_a_conflict_at_one_of_two_targets_leaves_the_other_in_force() -> None:
    kind = replace(COLOR_POLICY, merges=False)
    old = color("old", rules=rules(a="red"), age=2020)
    new = color("new", [target(), ROUTE], rules=rules(a="blue"), age=2021)
    found = topology([*BASE, old, new], API, kind)
    assert said(found, "new")["Accepted"][1] == "Accepted"
    assert list(effective(found).values()) == [{"a": "blue"}]
    assert len(found.conflicts()) == 1


def affected_by(found: Topology) -> dict[str, str]:
    conditions = affected(found, found.policy_kinds)
    assert {c[1:4] for c in conditions} <= {
        ("kube-sync.io/ColorPolicyAffected", "True", "Accepted")
    }
    return {c.locator.partition(":")[2].partition("/")[2]: c.message for c in conditions}


def test_what_lies_below_a_policy_in_force_is_affected_by_it() -> None:
    message = f"Object affected by ColorPolicy [{NS}/p]"
    found = topology([*BASE, color("p", target(sectionName="http"), rules=rules(a="blue"))])
    assert affected_by(found) == dict.fromkeys(
        ["my-gateway#http", "route", "route#rule-1"], message
    )


def test_a_policy_that_is_overridden_affects_nothing() -> None:
    policies = [color("gw", **overrides(a="red")), color("r", ROUTE, rules=rules(a="blue"))]
    found = affected_by(topology([*BASE, *policies]))
    assert set(found.values()) == {f"Object affected by ColorPolicy [{NS}/gw]"}
    assert found.keys() == {"my-gateway", "my-gateway#http", "route", "route#rule-1"}


def test_all_policies_that_rules_and_parts_of_rules_are_from_are_named() -> None:
    high = color("gw", defaults={"strategy": "patch", "rules": {"a": {"shade": 1}}})
    found = affected_by(topology([*BASE, high, color("r", ROUTE, rules=rules(a="blue"))]))
    assert found["my-gateway"] == f"Object affected by ColorPolicy [{NS}/gw]"
    assert found["route#rule-1"] == f"Object affected by ColorPolicy [{NS}/gw {NS}/r]"


def test_a_policy_of_a_namespace_affects_it_and_what_lies_in_it() -> None:
    space = color("p", target("Namespace", NS), rules=rules(a="blue"))
    found = topology([*BASE, namespace(NS), space])
    assert [c.locator.partition(":")[0] for c in affected(found, found.policy_kinds)] == [
        f"gateway.{GROUP}",
        f"gateway.{GROUP}",
        f"httproute.{GROUP}",
        f"httproute.{GROUP}",
        "namespace",
    ]


ABOVE = target("GatewayClass", "my-gateway-class")


def test_a_policy_of_a_namespace_has_no_say_above_all_namespaces() -> None:
    evil = color("evil", ABOVE, namespace="evil", **overrides(sky="black"))
    own = color("own", rules=rules(sky="blue"))
    found = topology([gateway_class(), gateway(), route(), evil, own])
    assert [set(one.spec["sky"].values()) for one in found.effective(COLOR_POLICY.id)] == [{"blue"}]
    (said,) = [c for c in found.conditions() if c.locator.endswith("evil/evil")]
    assert (said.type, said.status, said.reason) == ("Accepted", "False", "RefNotPermitted")
    assert said.message.endswith("is cluster-scoped: not for a policy of a namespace")


def test_one_that_has_other_targets_is_told_which_one_is_not_for_it() -> None:
    both = color("both", [ABOVE, target()], rules=rules(sky="blue"))
    said = topology([gateway_class(), gateway(), route(), both]).conditions()
    assert [c.reason for c in said] == ["Accepted", "Programmed", "RefNotPermitted"]


@pytest.mark.parametrize("kind", [WIDE, replace(COLOR_POLICY, across="free")])
def test_a_kind_may_let_its_policies_target_what_lies_in_no_namespace(kind: PolicyKind) -> None:
    found = topology([gateway_class(), gateway(), route(), color("p", ABOVE)], API, kind)
    assert found.policy(Locator("colorpolicy.examples.kube-sync.io:my-namespace/p"))[1].targets


def test_a_policy_of_a_cluster_may_target_what_lies_in_no_namespace() -> None:
    wide = color("p", ABOVE, namespace=None)
    found = topology([gateway_class(), gateway(), route(), wide])
    assert found.policy(Locator("colorpolicy.examples.kube-sync.io:p"))[1].targets


def test_only_the_one_that_prevails_is_in_conflict_with_all_others() -> None:
    many = [color(f"p{n:03}", rules=rules(**{f"r{n}": "x"})) for n in range(100)]
    found = topology([gateway_class(), gateway(), route(), *many])
    conflicts = found.conflicts()
    assert {conflict.other.rpartition("/")[2] for conflict in conflicts} == {"p099"}
    assert len(conflicts) == 99


def test_a_message_names_some_of_many() -> None:
    refs = [target(name=f"none{n:02}") for n in range(20)]
    (said,) = topology([color("p", refs)]).conditions()
    assert "none15 and 4 more was not found" in said.message


@pytest.mark.parametrize(
    ("policies", "by"),
    [
        # wiped out by what is below
        ([("gw", overrides("merge", a="1")), ("route", {"rules": rules(b="2")})], "rule"),
        # by overrides above, with rules and without
        ([("gw", overrides(a="1")), ("route", {"rules": rules(b="2")})], "gw"),
        ([("gw", overrides()), ("route", {"rules": rules(b="2")})], "gw"),
        # by a null
        (
            [
                ("gw", {"overrides": {"strategy": "patch", "rules": {"b": None}}}),
                ("route", defaults("merge", b="2")),
            ],
            "gw",
        ),
    ],
)
def test_the_policy_that_has_its_way_instead_is_named(
    policies: list[tuple[str, Object]], by: str
) -> None:
    places = {"gw": target(), "route": target("HTTPRoute", "route")}
    rule = color("rule", places["route"] | {"sectionName": "rule-1"}, rules=rules(c="3"))
    found = topology(
        [
            *(gateway_class(), gateway(), route(), rule),
            *(color(name, places[name], **spec) for name, spec in policies),
        ]
    )
    said = {
        c.locator.rpartition("/")[2]: c.message for c in found.conditions() if c.type != "Accepted"
    }
    assert said["route"] == f"ColorPolicy is overridden by [my-namespace/{by}]"


def test_two_values_of_other_types_contradict_each_other() -> None:
    first = color("a", rules={"x": 1}, age=2020)
    second = color("b", rules={"x": True}, age=2021)
    (conflict,) = topology([gateway_class(), gateway(), route(), first, second]).conflicts()
    assert conflict.rules == ("x",)
