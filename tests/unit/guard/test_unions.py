from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard.placements import PREFERENCES, SELECTOR, Placements
from kube_sync.guard.unions import named, reduced, united

PLACEMENTS = Placements({"place": "names"})


def _preferences(clusters: Any, **others: Any) -> dict[str, str]:
    return {PREFERENCES: json.dumps({**others, "clusters": clusters})}


def _read(values: dict[str, str] | None) -> Any:
    assert values is not None
    return json.loads(values[PREFERENCES])


def test_old_entries_stay_as_they_are_and_new_ones_come_as_decided() -> None:
    old = _preferences({"a": {"weight": 1, "minReplicas": 2}, "b": {"weight": 3}}, rebalance=True)
    new = _preferences({"b": {"weight": 9}, "c": {"maxReplicas": 4}}, rebalance=False)
    assert _read(united(PLACEMENTS, old, new)) == {
        "rebalance": True,
        "clusters": {
            "a": {"weight": 1, "minReplicas": 2},
            "b": {"weight": 3},
            "c": {"maxReplicas": 4},
        },
    }


def test_an_old_entry_that_gets_no_replica_gives_way() -> None:
    old = _preferences({"a": {}, "b": {"weight": 0}, "z": {"maxReplicas": 0}})
    new = _preferences({"b": {"weight": 2}})
    clusters = _read(united(PLACEMENTS, old, new))["clusters"]
    assert clusters == {"a": {}, "b": {"weight": 2}, "z": {"maxReplicas": 0}}


@pytest.mark.parametrize(
    ("old", "new", "union"),
    [
        ("a, b", "c,b", "a,b,c"),
        ("a", '["c"]', "a,c"),
        ('["a"]', "c", '["a","c"]'),
        ("", "c", "c"),
    ],
)
def test_names_are_listed_as_before(old: str, new: str, union: str) -> None:
    assert united(PLACEMENTS, {"place": old}, {"place": new}) == {"place": union}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"place": "*"}, {"place": "a"}),
        ({"place": "a"}, {"place": "*"}),
        ({"place": "a"}, {}),
        ({}, {"place": "a"}),
        ({"place": "{"}, {"place": "a"}),
        ({SELECTOR: "[]"}, {SELECTOR: '[{"key": "a", "operator": "Exists"}]'}),
        (_preferences({"*": {}}), _preferences({"a": {}})),
        ({"place": "a", **_preferences({"a": {}})}, {"place": "b", **_preferences({"*": {}})}),
    ],
)
def test_what_cannot_be_named_has_no_union(old: dict[str, str], new: dict[str, str]) -> None:
    assert united(PLACEMENTS, old, new) is None


def test_other_annotations_and_equal_placements_do_not_count() -> None:
    old = {"place": "a", SELECTOR: "[]", "note": "1"}
    assert united(PLACEMENTS, old, {"place": "b", SELECTOR: "[]", "note": "2"}) == {"place": "a,b"}
    assert united(PLACEMENTS, old, {**old, "note": "2"}) == {}


def test_clusters_are_taken_out_and_the_rest_stays() -> None:
    has = {**_preferences({"a": {"weight": 1}, "b": {}}, rebalance=True), "place": '["a", "b"]'}
    less = reduced(PLACEMENTS, {**has, SELECTOR: "[]"}, frozenset("b"))
    assert _read(less) == {"rebalance": True, "clusters": {"a": {"weight": 1}}}
    assert less["place"] == '["a"]'
    assert reduced(PLACEMENTS, has, frozenset("c")) == {}
    assert reduced(PLACEMENTS, {"place": "*"}, frozenset("a")) == {}


def test_only_clusters_with_names_are_named() -> None:
    has = {**_preferences({"a": {}, "b": {"weight": 0}}), "place": "c", SELECTOR: "[{"}
    assert named(PLACEMENTS, has) == {"a", "c"}
    assert named(PLACEMENTS, {"place": "*", SELECTOR: "[]"}) == frozenset()


_entries = st.dictionaries(
    st.sampled_from("abcde"),
    st.fixed_dictionaries({}, optional={"weight": st.integers(0, 2)}),
)


@given(_entries, _entries)
def test_a_union_has_the_clusters_of_both_and_stays_as_it_is(old: Any, new: Any) -> None:
    has, wanted = _preferences(old), _preferences(new)
    union = united(PLACEMENTS, has, wanted)
    assert union is not None
    both = named(PLACEMENTS, has) | named(PLACEMENTS, wanted)
    assert not union or named(PLACEMENTS, union) == both
    again = united(PLACEMENTS, {**has, **union}, wanted)
    assert again is not None
    assert {**has, **union, **again} == {**has, **union}
    added = named(PLACEMENTS, wanted) - named(PLACEMENTS, has)
    less = {**union, **reduced(PLACEMENTS, union, added)}
    assert not union or named(PLACEMENTS, less) == named(PLACEMENTS, has)
