"""Two and more policies on one path: whose rule it is in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology import STRATEGIES, Mode, Rules, Topology
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.merging import merge_patch
from kube_sync.topology.raw_json import is_same
from tests.fakes.topologies import (
    API,
    NS,
    Object,
    color,
    defaults,
    effective,
    gateway,
    gateway_class,
    overrides,
    route,
    rules,
    target,
    topology,
)

ROUTE = target("HTTPRoute", "route")
RULE = target("HTTPRoute", "route", sectionName="rule-1")
PATH = "my-gateway-class|my-gateway|my-gateway#http|route|route#rule-1"
BASE = [gateway_class(), gateway(), route()]
OWN = "colorpolicy.examples.kube-sync.io"


def built(*policies: Object) -> Topology:
    return topology([*BASE, *policies])


def colors(*policies: Object) -> dict[str, Any]:
    return effective(built(*policies)).get(PATH, {})


def sources(*policies: Object) -> dict[str, str]:
    (one,) = built(*policies).effective(COLOR_POLICY.id)
    return {rule: source.partition("/")[2] for rule, source in one.sources.items()}


B, R, Y, G = "blue", "red", "yellow", "green"
NONE: dict[str, str] = {}
NEW = {"r3": G}
BOTH = {"r1": Y, "r3": G}


@pytest.mark.parametrize(
    ("mode", "strategy", "below", "expected"),
    [
        (defaults, "atomic", NONE, {"r1": B, "r2": R}),
        (defaults, "atomic", NEW, {"r3": G}),
        (defaults, "atomic", BOTH, {"r1": Y, "r3": G}),
        (overrides, "atomic", NONE, {"r1": B, "r2": R}),
        (overrides, "atomic", NEW, {"r1": B, "r2": R}),
        (overrides, "atomic", BOTH, {"r1": B, "r2": R}),
        *(
            (mode, strategy, below, expected)
            for strategy in ("merge", "patch")
            for mode, below, expected in (
                (defaults, NONE, {"r1": B, "r2": R}),
                (defaults, NEW, {"r1": B, "r2": R, "r3": G}),
                (defaults, BOTH, {"r1": Y, "r2": R, "r3": G}),
                (overrides, NONE, {"r1": B, "r2": R}),
                (overrides, NEW, {"r1": B, "r2": R, "r3": G}),
                (overrides, BOTH, {"r1": B, "r2": R, "r3": G}),
            )
        ),
        (defaults, "unheard-of", NEW, {"r3": G}),
        (overrides, "unheard-of", NEW, {"r1": B, "r2": R}),
    ],
)
def test_the_higher_policy_says_how_it_comes_together_with_the_lower(
    mode: Any, strategy: str, below: dict[str, str], expected: dict[str, str]
) -> None:
    high = color("high", **mode(strategy, r1=B, r2=R))
    assert colors(high, color("low", ROUTE, rules=rules(**below))) == expected
    # How the lower one says its rules does not matter.
    assert colors(high, color("low", ROUTE, **overrides("merge", **below))) == expected


def test_a_strategy_that_is_not_said_is_atomic() -> None:
    high = color("high", overrides={"rules": rules(a=B)})
    assert colors(high, color("low", ROUTE, rules=rules(b=R))) == {"a": B}


def test_bare_rules_are_atomic_defaults() -> None:
    high = color("high", rules=rules(a=B))
    assert colors(high, color("low", ROUTE, rules=rules(b=R))) == {"b": R}
    assert colors(high, color("low", ROUTE, rules={})) == {"a": B}


def test_three_levels_keep_the_first_source_of_each_rule() -> None:
    policies = (
        color("gw", **overrides("merge", a="1")),
        color("route", ROUTE, **defaults("merge", a="2", b="2")),
        color("rule", RULE, rules=rules(c="3")),
    )
    assert colors(*policies) == {"a": "1", "b": "2", "c": "3"}
    assert sources(*policies) == {"a": "gw", "b": "route", "c": "rule"}


def test_a_rule_that_two_higher_policies_have_keeps_its_source_through_both() -> None:
    policies = (
        color("gw", **defaults("merge", a="1")),
        color("route", ROUTE, **defaults("merge", b="2")),
        color("rule", RULE, rules=rules(a="3")),
    )
    assert sources(*policies) == {"a": "rule", "b": "route"}


def test_at_one_level_the_older_policy_is_the_higher_one() -> None:
    limits = {"gateway": "10", "route": "10"}
    bare = color("p1", rules=rules(**limits), age=2020)
    strict = color("p2", **overrides("merge", route="3"), age=2021)
    assert colors(bare, strict) == {"route": "3"}
    older = color("p2", **overrides("merge", route="3"), age=2019)
    assert colors(bare, older) == {"gateway": "10", "route": "3"}


def test_of_the_same_age_the_name_with_its_namespace_decides() -> None:
    a, b = (color(name, **defaults("merge", x=name), age=2020) for name in "ab")
    assert colors(a, b) == {"x": "b"}


def test_a_policy_that_is_not_created_yet_comes_after_all_that_are() -> None:
    first, later = (
        color("z", **overrides("merge", x="z"), age=2020),
        color("a", **overrides("merge", x="a")),
    )
    assert colors(first, later) == {"x": "z"}


def test_times_are_compared_as_times_and_not_as_texts() -> None:
    early = color("z", **overrides("merge", x="z"))
    early["metadata"]["creationTimestamp"] = "2020-01-01T09:00:00+09:00"
    late = color("a", **overrides("merge", x="a"))
    late["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00.5"  # UTC
    assert colors(early, late) == {"x": "z"}


def test_without_a_policy_there_is_no_effective_policy() -> None:
    (one,) = built().effective(COLOR_POLICY.id)
    assert (one.combined, one.id, one.rule_ids, one.spec, one.sources) == (None, None, {}, {}, {})


def test_a_policy_that_is_being_deleted_takes_no_effect() -> None:
    leaving = color("p", rules=rules(a=B))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert colors(leaving) == {}


def patched(**rule: Any) -> Object:
    return {"strategy": "patch", "rules": {"a": rule}}


def test_a_patch_changes_what_it_mentions_and_says_where_the_rest_is_from() -> None:
    high = color("high", defaults=patched(color=B, shade=1, light=True))
    low = color("low", ROUTE, rules={"a": {"color": R, "shade": None}})
    (one,) = built(high, low).effective(COLOR_POLICY.id)
    assert one.combined is not None
    assert one.spec == {"a": {"color": R, "light": True}}
    assert one.sources == {"a": f"{OWN}:{NS}/low"}
    assert one.combined.rules.parts == {"a": {"light": f"{OWN}:{NS}/high"}}


def test_parts_keep_their_source_through_three_levels() -> None:
    policies = (
        color("gw", defaults=patched(x=1)),
        color("route", ROUTE, defaults=patched(y=2)),
        color("rule", RULE, rules={"a": {"z": 3}}),
    )
    (one,) = built(*policies).effective(COLOR_POLICY.id)
    assert one.combined is not None
    assert one.spec == {"a": {"x": 1, "y": 2, "z": 3}}
    assert one.combined.rules.parts == {
        "a": {"x": f"{OWN}:{NS}/gw", "y": f"{OWN}:{NS}/route"},
    }
    assert one.sources == {"a": f"{OWN}:{NS}/rule"}


def test_a_rule_that_a_merge_replaces_has_no_parts_any_more() -> None:
    policies = (
        color("gw", **overrides("merge", a=B)),
        color("route", ROUTE, defaults=patched(x=1)),
        color("rule", RULE, rules={"a": {"z": 3}}),
    )
    (one,) = built(*policies).effective(COLOR_POLICY.id)
    assert one.combined is not None
    assert (one.spec, one.combined.rules.parts) == ({"a": {"color": B}}, {})


def test_null_patches_a_rule_away() -> None:
    high = color("high", overrides={"strategy": "patch", "rules": {"a": None, "b": {"color": B}}})
    assert colors(high, color("low", ROUTE, rules=rules(a=R, c=G))) == {"b": B, "c": G}


@pytest.mark.parametrize(
    ("original", "change", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_is_that_of_rfc_7386(original: Any, change: Any, result: Any) -> None:
    """The test cases of its appendix A."""
    assert merge_patch(original, change) == result


def test_a_strategy_of_ones_own_is_a_function() -> None:
    def brightest(source: Rules, below: Rules, mode: Mode) -> Rules:
        assert mode is Mode.DEFAULTS
        return max(source, below, key=lambda one: str(one.values["a"]["color"]))

    kind = replace(COLOR_POLICY, strategies={**STRATEGIES, "brightest": brightest})
    high = color("high", **defaults("brightest", a=R))
    for lower, expected in ((B, R), (Y, Y)):
        found = topology([*BASE, high, color("low", ROUTE, rules=rules(a=lower))], API, kind)
        assert effective(found)[PATH] == {"a": expected}


def test_a_kind_whose_fields_are_its_rules_merges_these() -> None:
    kind = replace(COLOR_POLICY, rules=())
    high = color("high", overrides={"strategy": "merge", "sky": B})
    low = color("low", ROUTE, sky=R, sea={"color": G})
    found = topology([*BASE, high, low], API, kind)
    assert effective(found)[PATH] == {"sky": B, "sea": G}
    assert kind.spec({"sky": B}) == {"sky": B}


def test_the_spec_of_a_kind_has_its_rules_where_policies_have_them() -> None:
    spec: Mapping[str, Any] = COLOR_POLICY.spec({"sky": B})
    assert spec == {"rules": {"sky": B}}


NULLS = {"color": B, "inner": {"gone": None}, "gone": None}


@pytest.mark.parametrize("below", [[], [color("low", ROUTE, rules=rules(b=R))]])
def test_a_patch_leaves_no_null_where_nothing_is_below_it(below: list[Object]) -> None:
    found = effective(topology([*BASE, color("high", overrides=patched(**NULLS)), *below]))[PATH]
    assert found["a"] == {"color": B, "inner": {}}


def test_a_default_that_is_patched_has_no_null_of_the_patch() -> None:
    high = color("high", defaults=patched(color=G) | {"rules": {"c": {"color": G}}})
    assert colors(high, color("low", ROUTE, rules={"a": NULLS})) == {
        "a": {"color": B, "inner": {}},
        "c": G,
    }


@pytest.mark.parametrize("between", [{}, {"y": 1}, {"x": 1}])
def test_a_null_takes_away_what_two_levels_above_it_say(between: Object) -> None:
    policies = (
        color("gw", defaults=patched(x=1, z=1)),
        color("route", ROUTE, defaults=patched(**between)),
        color("rule", RULE, rules={"a": {"x": None, "w": 1}}),
    )
    assert colors(*policies)["a"] == {"z": 1, "w": 1} | {n: 1 for n in between if n != "x"}


def test_nulls_of_rules_that_met_no_patch_stay() -> None:
    below = color("low", ROUTE, rules={"b": {"x": None}})
    assert colors(color("high", overrides=patched(x=1)), below)["b"] == {"x": None}


VALUE: Any = st.recursive(
    st.sampled_from([True, 1, "x"]), lambda inner: st.dictionaries(st.sampled_from("xy"), inner)
)
CHANGE: Any = st.recursive(
    st.sampled_from([None, True, 1]), lambda inner: st.dictionaries(st.sampled_from("xy"), inner)
)
NAMED = st.sampled_from("abc")


@given(
    st.dictionaries(NAMED, VALUE),
    st.dictionaries(NAMED, CHANGE, min_size=1),
    st.dictionaries(NAMED, CHANGE, min_size=1),
)
def test_overrides_patch_as_rfc_7386_one_after_the_other(
    lowest: Object, between: Object, highest: Object
) -> None:
    policies = (
        color("gw", overrides={"strategy": "patch", "rules": highest}),
        color("route", ROUTE, overrides={"strategy": "patch", "rules": between}),
        color("rule", RULE, rules=lowest),
    )
    (one,) = built(*policies).effective(COLOR_POLICY.id)
    assert is_same(dict(one.spec), merge_patch(merge_patch(lowest, between), highest))
    assert one.sources.keys() == one.spec.keys()
