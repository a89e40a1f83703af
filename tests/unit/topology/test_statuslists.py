"""Entries of ours among those of others, in a list that the API server takes as one value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.kube.conditions import Condition
from kube_sync.topology.raw_json import Malformed
from kube_sync.topology.status.ancestors import CONTROLLER, is_policy_condition
from kube_sync.topology.statuslists import ANCESTORS, PARENTS, Entry, StatusContext, merge_entries

NOW, LATER = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
ABOUT = StatusContext(3, NOW, CONTROLLER)
GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
TRUNCATED = "kube-sync.io/Truncated"
Entries = list[dict[str, Any]]


def said(status: str = "True", kind: str = "Accepted") -> Condition:
    return Condition(kind, status, "Reason", "message")


def wanted(*names: str, status: str = "True") -> list[Entry]:
    return [Entry(GATEWAY | {"name": name}, (said(status),)) for name in names]


def other(name: str, controller: str = "example.com/other") -> dict[str, Any]:
    return {"ancestorRef": {"name": name}, "controllerName": controller, "conditions": [{"a": 1}]}


def listed(found: list[Any], entries: list[Entry], about: StatusContext = ABOUT) -> Entries:
    return merge_entries(ANCESTORS, found, entries, about, is_policy_condition).entries


def names(entries: Entries) -> list[tuple[str, bool]]:
    return [(e["ancestorRef"]["name"], e["controllerName"] == CONTROLLER) for e in entries]


def test_an_entry_says_who_it_is_from_of_whom_and_since_when() -> None:
    assert listed([], wanted("gw")) == [
        {
            "ancestorRef": GATEWAY | {"name": "gw"},
            "controllerName": "kube-sync.io/topology",
            "conditions": [
                {
                    "type": "Accepted",
                    "status": "True",
                    "reason": "Reason",
                    "message": "message",
                    "observedGeneration": 3,
                    "lastTransitionTime": NOW,
                }
            ],
        }
    ]


def test_entries_of_others_stay_as_they_are_and_where_they_are() -> None:
    odd: list[Any] = [other("gw"), "what is this", other("z", "")]
    found = [odd[0], *listed([], wanted("old")), odd[1], *listed([], wanted("gw")), odd[2]]
    merged = listed(found, wanted("gw", "new"))
    assert [one for one in merged if one in odd] == odd
    assert merged.index(odd[1]) == 1
    assert names([one for one in merged if one not in odd]) == [("gw", True), ("new", True)]


def test_what_is_right_comes_out_as_it_went_in() -> None:
    first = listed([other("a")], wanted("b", "a"))
    backwards = first[::-1]
    for found in (first, backwards):
        assert listed(found, wanted("a", "b"), StatusContext(3, LATER, CONTROLLER)) == found


def test_a_reference_to_a_gateway_is_one_with_or_without_its_kind() -> None:
    (entry,) = listed([], wanted("gw"))
    bare = entry | {"ancestorRef": {"name": "gw"}}
    assert listed([bare], wanted("gw"), StatusContext(3, LATER, CONTROLLER)) == [entry]


def test_of_two_entries_of_ours_for_one_ancestor_one_stays() -> None:
    twice = listed([], wanted("gw")) * 2
    assert listed(twice, wanted("gw")) == twice[:1]


def test_what_holds_no_more_goes() -> None:
    assert listed([other("a"), *listed([], wanted("b"))], []) == [other("a")]


def test_the_time_is_that_of_the_last_transition() -> None:
    found = listed([], wanted("gw"))
    for status, since in (("True", NOW), ("False", LATER)):
        (entry,) = listed(found, wanted("gw", status=status), StatusContext(4, LATER, CONTROLLER))
        (condition,) = entry["conditions"]
        assert condition["lastTransitionTime"] == since
        assert condition["observedGeneration"] == 4


def test_a_newer_generation_that_was_observed_stands() -> None:
    found = listed([], wanted("gw", "gone"), StatusContext(9, NOW, CONTROLLER))
    assert listed(found, wanted("gw", status="False")) == found
    assert listed(found, wanted("gw", status="False"), StatusContext(9, NOW, CONTROLLER)) != found


@pytest.mark.parametrize("stale", ["Programmed", "Enforced", "ResolvedRefs"])
def test_conditions_of_others_in_our_entry_stay(stale: str) -> None:
    (entry,) = listed([], wanted("gw"))
    special = {"type": "special.io/SomeField", "status": "True"}
    mixed = entry | {"conditions": [special, *entry["conditions"], {"type": stale}]}
    (merged,) = listed([mixed], wanted("gw", status="False"))
    assert [c["type"] for c in merged["conditions"]] == ["special.io/SomeField", "Accepted"]
    assert merged["conditions"][0] == special


def test_an_entry_of_ours_that_cannot_be_read_is_named() -> None:
    broken = {"controllerName": CONTROLLER, "ancestorRef": {"name": "gw"}, "conditions": 7}
    for entries in ([], wanted("gw")):
        with pytest.raises(Malformed, match="conditions"):
            listed([broken], entries)


def test_an_entry_of_ours_that_refers_to_nothing_goes() -> None:
    for reference in ({}, {"ancestorRef": 7}):
        broken = {"controllerName": CONTROLLER, **reference}
        assert listed([broken], wanted("gw")) == listed([], wanted("gw"))


def test_seventeen_ancestors_are_sixteen_that_say_so() -> None:
    many = wanted(*(f"gw-{number:02}" for number in range(17)))
    merged = merge_entries(ANCESTORS, [], many, ABOUT, is_policy_condition)
    assert (len(merged.entries), merged.left_out) == (16, 1)
    for entry in merged.entries:
        (note,) = (c for c in entry["conditions"] if c["type"] == TRUNCATED)
        assert note["status"] == "True"
        assert note["message"] == "1 of 17 are left out since no more fit: [gw-16]"
    fewer = merge_entries(ANCESTORS, merged.entries, many[:16], ABOUT, is_policy_condition).entries
    assert TRUNCATED not in str(fewer)


def test_the_many_that_are_left_out_are_not_all_named() -> None:
    many = wanted(*(f"gw-{number:02}" for number in range(30)))
    entries = listed([], many)
    assert entries[0]["conditions"][1]["message"].endswith("gw-25] and 4 more")


def test_others_are_counted_and_lose_nothing() -> None:
    found = [other(str(number)) for number in range(15)]
    assert listed(found, wanted("a", "b"))[:-1] == found
    full = [*found, other("x")]
    assert merge_entries(ANCESTORS, full, wanted("a"), ABOUT, is_policy_condition) == (full, 1)


def test_no_entry_has_more_conditions_than_are_taken() -> None:
    many = tuple(said(kind=f"kube-sync.io/K{n}Affected") for n in range(9))
    (entry,) = merge_entries(
        PARENTS, [], [Entry({"name": "gw"}, many)], ABOUT, is_policy_condition
    ).entries
    assert [c["type"][14:15] for c in entry["conditions"]] == [str(n) for n in range(8)]


_NAMES = st.lists(st.sampled_from([f"gw-{n}" for n in range(30)]), unique=True)


@given(_NAMES, _NAMES, _NAMES, st.randoms())
def test_the_order_of_what_is_wanted_is_nothing_and_a_second_time_changes_nothing(
    others: list[str], ours: list[str], names_wanted: list[str], random: Any
) -> None:
    found = [other(name) for name in others[:10]] + listed([], wanted(*ours[:6]))
    random.shuffle(found)
    shuffled = names_wanted[:]
    random.shuffle(shuffled)
    once = listed(found, wanted(*names_wanted))
    assert once == listed(found, wanted(*shuffled))
    assert once == listed(once, wanted(*shuffled), StatusContext(3, LATER, CONTROLLER))
    assert len(once) <= 16
    assert [one for one in once if one in found and one["controllerName"] != CONTROLLER] == [
        one for one in found if one["controllerName"] != CONTROLLER
    ]
