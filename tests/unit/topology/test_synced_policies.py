"""Copies of a hub's policies give way to policies that were made here, target by target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube_sync.topology import GroupKind, Locator, PolicyKind, Topology
from kube_sync.topology.affected import affected
from kube_sync.topology.conditions import ENFORCED, PROGRAMMED
from kube_sync.topology.effective import Combined
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.table import effective_table
from tests.fakes.topologies import (
    API,
    GATEWAY,
    NS,
    Object,
    color,
    effective,
    gateway,
    gateway_class,
    overrides,
    route,
    rules,
    target,
    topology,
)
from tests.memory import remembered

ROUTE = target("HTTPRoute", "route")
BASE: list[Object] = [gateway_class(), gateway(), route()]
ROUTE_LOCATOR = Locator(f"httproute.gateway.networking.k8s.io:{NS}/route")
KIND = "colorpolicy.examples.kube-sync.io"
OVERRIDDEN = ("False", "Overridden", f"ColorPolicy is overridden by [{NS}/native]")
WHOLE = ("True", "Programmed", "ColorPolicy has been successfully enforced")
ORIGIN = "kuadrant.io/origin-creation"


def own(name: str) -> Locator:
    return Locator(f"{KIND}:{NS}/{name}")


def said(found: Topology, name: str, kind: str = "Programmed") -> tuple[str, str, str]:
    (one,) = [c for c in found.conditions() if c.locator == own(name) and c.type == kind]
    return one.status, one.reason, one.message


def colors(found: Topology) -> list[dict[str, Any]]:
    return list(effective(found).values())


def synced(ref: Object | list[Object] | None = None, **spec: Any) -> Object:
    return color("synced", ref, **{"synced": True, **spec})


def native(ref: Object | list[Object] | None = None, **spec: Any) -> Object:
    return color("native", ref, **{"rules": rules(b="blue"), **spec})


@pytest.mark.parametrize("age", [2000, 2030])
def test_a_policy_made_here_beats_a_synced_one_at_the_same_target_whatever_their_ages(
    age: int,
) -> None:
    found = topology([*BASE, synced(**overrides("merge", a="red"), age=age), native(age=2020)])
    assert colors(found) == [{"b": "blue"}]
    assert said(found, "synced") == OVERRIDDEN
    assert said(found, "synced", "Accepted")[:2] == ("True", "Accepted")
    assert said(found, "native") == WHOLE
    assert found.conflicts() == []  # it is what the two are for


def test_a_synced_policy_is_in_force_while_nobody_here_says_otherwise() -> None:
    found = topology([*BASE, synced(rules=rules(a="red"))])
    assert colors(found) == [{"a": "red"}]
    assert said(found, "synced") == WHOLE


def test_a_synced_policy_comes_back_when_the_other_goes() -> None:
    found = topology([*BASE, synced(rules=rules(a="red")), native()])
    assert said(found, "synced") == OVERRIDDEN
    found.update(deleted=[own("native")])
    assert colors(found) == [{"a": "red"}]
    assert said(found, "synced") == WHOLE
    found.update([native()])
    assert said(found, "synced") == OVERRIDDEN


@pytest.mark.parametrize(
    "instead",
    [
        native(ROUTE, rules={}),
        native(overrides={"strategy": "merge"}),  # beside rules: it means nothing
        native(target(name="none")),
        native(synced=True, rules={}),
    ],
)
def test_a_policy_that_does_not_count_at_the_target_overrides_none_there(instead: Object) -> None:
    found = topology([*BASE, synced(rules=rules(a="red")), native()])
    found.update([instead])
    assert said(found, "synced")[0] == "True"


def test_a_policy_that_is_being_deleted_overrides_none() -> None:
    leaving = native()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = topology([*BASE, synced(rules=rules(a="red")), leaving])
    assert colors(found) == [{"a": "red"}]


def test_the_annotation_going_away_makes_it_a_policy_as_any_other() -> None:
    found = topology([*BASE, synced(**overrides("merge", a="red")), native()])
    found.update([synced(**overrides("merge", a="red"), synced=False)])
    assert colors(found) == [{"a": "red"}]


@pytest.mark.parametrize("value", ["true", "false", "True", "", None])
def test_the_annotation_makes_a_policy_a_synced_one_whatever_its_value(value: str | None) -> None:
    """RFC 0007: policies that contain the annotation are overridden."""
    policy = synced(**overrides("merge", a="red"))
    policy["metadata"]["annotations"]["kuadrant.io/policy-synced"] = value
    assert colors(topology([*BASE, policy, native()])) == [{"b": "blue"}]


def test_another_level_is_no_reason_to_give_way() -> None:
    found = topology([*BASE, synced(**overrides("merge", a="red")), native(ROUTE)])
    assert colors(found) == [{"a": "red", "b": "blue"}]
    assert said(found, "synced") == WHOLE


def hubs(**spec: Any) -> Object:
    """Return a copy at the Gateway as a hub makes it, with overrides."""
    copy = synced(**overrides("merge", a="red"), **spec)
    copy["metadata"]["annotations"]["kube-sync.io/policy"] = (
        "examples.kube-sync.io/v1alpha1/colorpolicies:infra/limits"
    )
    return copy


ADVICE = (
    f"; {NS}/synced is a copy of the hub's policy infra/limits: to have it otherwise here, make a "
    f"ColorPolicy with the same target, Gateway {NS}/my-gateway, which takes the place of the copy"
    ", or ask whoever looks after the hub"
)


def test_a_policy_that_loses_to_a_hubs_overrides_says_to_which_and_what_can_be_done_here() -> None:
    found = topology([*BASE, hubs(), native(ROUTE, rules=rules(a="blue"))])
    message = f"ColorPolicy is overridden by [{NS}/synced]{ADVICE}"
    assert said(found, "native") == ("False", "Overridden", message)


def test_what_the_condition_advises_puts_the_copy_out() -> None:
    found = topology([*BASE, hubs(), native(ROUTE, rules=rules(a="blue"))])
    found.update([color("instead", rules=rules(c="green"))])
    assert said(found, "native") == WHOLE
    assert said(found, "synced")[1] == "Overridden"


def test_a_policy_that_loses_a_rule_to_a_hubs_overrides_says_so_as_well() -> None:
    found = topology([*BASE, hubs(), native(ROUTE, rules=rules(a="blue", b="blue"))])
    partly = f'ColorPolicy has been partially enforced: "a" overridden by [{NS}/synced]{ADVICE}'
    assert said(found, "native") == ("True", "PartiallyProgrammed", partly)


def test_a_policy_that_loses_to_one_made_here_is_told_of_no_hub() -> None:
    high = color("high", **overrides("merge", a="gold"))
    found = topology([*BASE, high, native(ROUTE, rules=rules(a="blue"))])
    assert said(found, "native")[2] == f"ColorPolicy is overridden by [{NS}/high]"
    copy = synced(ROUTE, rules=rules(a="red"))
    found.update([copy])
    assert "copy" not in said(topology([*BASE, hubs(), copy]), "synced")[2]


@pytest.mark.parametrize("said_of", [None, "", "x", "g/v/r:../; and 1", "g/v/r:a/b/c", 1, "a:"])
def test_a_copy_that_does_not_say_of_which_policy_it_is_is_told_without(said_of: Any) -> None:
    copy = hubs()
    copy["metadata"]["annotations"]["kube-sync.io/policy"] = said_of
    found = topology([*BASE, copy, native(ROUTE, rules=rules(a="blue"))])
    assert f"{NS}/synced is a copy of a policy of the hub: to have it" in said(found, "native")[2]


def test_many_copies_that_a_policy_lost_to_are_counted() -> None:
    copies = [
        color(f"c{n}", **overrides("merge", **{f"r{n}": "red"}), synced=True) for n in range(5)
    ]
    own_rules = rules(**{f"r{n}": "blue" for n in range(5)})
    message = said(topology([*BASE, *copies, native(ROUTE, rules=own_rules)]), "native")[2]
    assert message.count("is a copy of") == 3
    assert message.endswith("; 2 more are copies")


def test_an_object_and_its_section_are_two_targets() -> None:
    section = native(target(sectionName="http"))
    found = topology([*BASE, synced(**overrides("merge", a="red")), section])
    assert colors(found) == [{"a": "red", "b": "blue"}]


def test_one_that_gives_way_at_one_target_of_two_is_in_force_partially() -> None:
    other = route("other")
    found = topology(
        [
            *BASE,
            other,
            synced([ROUTE, target("HTTPRoute", "other")], rules=rules(a="red")),
            native(ROUTE),
        ]
    )
    assert colors(found) == [{"a": "red"}, {"b": "blue"}]
    assert said(found, "synced") == (
        "True",
        "PartiallyProgrammed",
        (
            "ColorPolicy has been partially enforced: "
            f"all of it overridden by [{NS}/native] at [{NS}/route]"
        ),
    )
    assert f"all of it overridden by [{NS}/native]" in effective_table(found, COLOR_POLICY.id)


def test_rules_and_targets_that_are_lost_are_both_said() -> None:
    found = topology(
        [
            *BASE,
            route("other"),
            color("high", **overrides("merge", a="gold")),
            synced([ROUTE, target("HTTPRoute", "other")], rules=rules(a="red", c="red")),
            native(ROUTE),
        ]
    )
    assert said(found, "synced")[2] == (
        f'ColorPolicy has been partially enforced: "a" overridden by [{NS}/high], '
        f"all of it overridden by [{NS}/native] at [{NS}/route]"
    )


def test_one_that_is_left_out_here_and_overridden_there_names_all_who_have_their_way() -> None:
    found = topology(
        [
            *BASE,
            route("other"),
            color("high", **overrides("merge", a="gold")),
            synced([ROUTE, target("HTTPRoute", "other")], rules=rules(a="red")),
            native(ROUTE),
        ]
    )
    assert said(found, "synced") == (
        "False",
        "Overridden",
        f"ColorPolicy is overridden by [{NS}/high, {NS}/native]",
    )


def test_a_loss_to_a_policy_at_a_target_where_it_is_left_out_is_no_conflict() -> None:
    found = topology([*BASE, synced([target(), ROUTE], rules=rules(a="red")), native(ROUTE)])
    assert said(found, "synced")[:2] == ("False", "Overridden")
    assert found.conflicts() == []


def test_a_synced_policy_and_another_synced_one_stand_as_any_two_do() -> None:
    more = color("more", **overrides("merge", b="green"), synced=True)
    found = topology([*BASE, synced(**overrides("merge", a="red")), more])
    assert colors(found) == [{"a": "red", "b": "green"}]


def test_where_policies_do_not_merge_the_one_in_force_is_named_and_it_is_no_conflict() -> None:
    kind = replace(COLOR_POLICY, merges=False)
    late = color("late", rules=rules(c="green"), age=2025)
    world = [*BASE, synced(rules=rules(a="red"), age=2000), native(age=2020), late]
    found = topology(world, API, kind)
    assert colors(found) == [{"b": "blue"}]
    assert said(found, "synced") == OVERRIDDEN
    assert [(one.policy, one.other) for one in found.conflicts()] == [(own("late"), own("native"))]


def test_a_target_where_it_is_left_out_is_not_affected_by_it() -> None:
    found = topology(
        [
            *BASE,
            synced([target(), ROUTE], **overrides("merge", a="red")),
            color("native", **overrides("merge", b="blue")),
        ]
    )
    by = {c.locator: c.message for c in affected(found, [COLOR_POLICY.id])}
    assert by[GATEWAY] == f"Object affected by ColorPolicy [{NS}/native]"
    assert f"[{NS}/native {NS}/synced]" in by[ROUTE_LOCATOR]


def older_first(origin: object, age: int = 2026) -> list[dict[str, Any]]:
    """Return what two synced ones come to: `synced`, and one of 2020; the older one prevails."""
    first = synced(**overrides("merge", a="red"), age=age)
    if origin is not None:
        first["metadata"]["annotations"][ORIGIN] = origin
    other = color("other", **overrides("merge", a="blue"), age=2020, synced=True)
    return colors(topology([*BASE, first, other]))


@pytest.mark.parametrize(
    "origin",
    ["2019-01-01T00:00:00Z", "2019-01-01t00:00:00.123z", "2020-01-01T00:30:00+01:00"],
)
def test_a_synced_policy_is_as_old_as_the_policy_on_the_hub(origin: str) -> None:
    assert older_first(origin) == [{"a": "red"}]


def test_a_synced_policy_of_a_newer_one_on_the_hub_is_newer() -> None:
    assert older_first("2021-01-01T00:00:00Z", age=2000) == [{"a": "blue"}]


def test_a_synced_policy_that_does_not_say_its_origin_is_as_old_as_the_copy() -> None:
    assert older_first(None, age=2000) == [{"a": "red"}]
    assert older_first(None, age=2026) == [{"a": "blue"}]


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "yesterday",
        "2000-01-01",
        "20000101T000000Z",
        "2000-01-01T00:00:00",
        "2000-02-30T00:00:00Z",
        2000,
        ["x"],
    ],
)
def test_an_origin_that_is_no_time_is_said_and_the_time_of_the_copy_counts(origin: object) -> None:
    assert older_first(origin) == [{"a": "blue"}]
    policy = synced(rules=rules(a="red"))
    policy["metadata"]["annotations"][ORIGIN] = origin
    found = topology([*BASE, policy])
    assert said(found, "synced", "Accepted") == (
        "True",
        "Accepted",
        (
            "ColorPolicy has been accepted; annotation kuadrant.io/origin-creation is no time "
            "(RFC 3339), so creationTimestamp counts"
        ),
    )


def test_an_origin_makes_no_policy_older_that_is_not_synced() -> None:
    early = color("early", **overrides("merge", a="blue"), age=2020)
    claims = color("claims", **overrides("merge", a="red"), age=2026)
    claims["metadata"]["annotations"] = {ORIGIN: "1970-01-01T00:00:00Z"}
    assert colors(topology([*BASE, early, claims])) == [{"a": "blue"}]


@pytest.mark.parametrize("annotations", ["true", {"kuadrant.io/policy-synced": True}])
def test_annotations_of_a_wrong_shape_make_a_policy_invalid_and_harm_no_other(
    annotations: object,
) -> None:
    broken = color("broken", rules=rules(a="red"))
    broken["metadata"]["annotations"] = annotations
    found = topology([*BASE, broken, native()])
    assert said(found, "broken", "Accepted")[1] == "Invalid"
    assert colors(found) == [{"b": "blue"}]


def test_a_kind_of_kuadrant_says_enforced_and_tells_by_the_message_how_far() -> None:
    id_ = GroupKind("kuadrant.io", "AuthPolicy")
    kind = replace(COLOR_POLICY, id=id_)

    def auth(policy: Object) -> Object:
        return policy | {"apiVersion": "kuadrant.io/v1", "kind": "AuthPolicy"}

    both = [ROUTE, target("HTTPRoute", "other")]
    world = [*BASE, route("other"), auth(synced(both, rules=rules(a="red"))), auth(native(ROUTE))]
    found = topology(world, API, kind)
    conditions = {(c.locator.rpartition("/")[2], c.type): c[2:] for c in found.conditions()}
    assert conditions["native", "Enforced"] == (
        "True",
        "Enforced",
        "AuthPolicy has been successfully enforced",
    )
    status, reason, message = conditions["synced", "Enforced"]
    assert (status, reason) == ("True", "Enforced")
    assert message.startswith("AuthPolicy has been partially enforced: all of it overridden")
    assert message in effective_table(found, id_)
    assert "successfully" not in effective_table(found, id_)


def test_a_kind_may_say_which_condition_it_has() -> None:
    assert PolicyKind(GroupKind("example.com", "Shade")).in_force == PROGRAMMED
    assert PolicyKind(GroupKind("example.com", "Shade"), effect=ENFORCED).in_force == ENFORCED
    kuadrant = PolicyKind(GroupKind("kuadrant.io", "AuthPolicy"), effect=PROGRAMMED)
    assert kuadrant.in_force == PROGRAMMED


def test_what_was_put_together_of_a_policy_that_is_left_out_is_not_kept() -> None:
    found = topology([*BASE, synced(rules=rules(a="red"))])
    colors(found)
    found.update([native()])
    assert remembered(found, Combined) == []


def test_what_was_put_together_of_a_policy_that_another_beats_is_not_kept() -> None:
    found = topology([*BASE, native(age=2020)], API, replace(COLOR_POLICY, merges=False))
    colors(found)
    found.update([color("older", rules=rules(a="red"), age=2000)])
    assert remembered(found, Combined) == []
