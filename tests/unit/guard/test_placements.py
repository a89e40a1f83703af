from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions import decision as first
from kube_sync.guard.placements import (
    EVERYWHERE,
    NOWHERE,
    PREFERENCES,
    SELECTOR,
    Clusters,
    Placements,
    is_empty_placement,
)

OTHERS = Placements({"names": "names", "more": "preferences"})


def _preferences(clusters: Any) -> str:
    return json.dumps({"rebalance": True, "clusters": clusters})


def _read(key: str, value: str) -> Clusters | None:
    return OTHERS.read({key: value})[key]


def _set(*names: str) -> Clusters:
    return Clusters(frozenset(names))


@pytest.mark.parametrize(
    ("clusters", "meant"),
    [
        ({}, NOWHERE),
        ({"a": {"weight": 1}, "b": {"weight": 0}}, _set("a")),
        ({"a": {"weight": 0, "minReplicas": 2}}, _set("a")),
        ({"a": {"weight": 1, "maxReplicas": 0}}, NOWHERE),
        ({"a": {}, "b": None}, _set("a", "b")),
        ({"*": {"weight": 1}}, EVERYWHERE),
        ({"*": {"weight": 1}, "a": {"weight": 1}}, EVERYWHERE),
        ({"*": {"weight": 1}, "a": {"weight": 0}}, Clusters(frozenset("a"), open=True)),
        ({"*": {"weight": 0}, "a": {"weight": 1}}, _set("a")),
        (["a"], None),
        (None, None),
    ],
)
def test_preferences_give_the_clusters_that_get_replicas(
    clusters: Any, meant: Clusters | None
) -> None:
    assert _read(PREFERENCES, _preferences(clusters)) == meant
    assert _read("more", _preferences(clusters)) == meant


@pytest.mark.parametrize("text", ["", "{}", "[]", "1", "eu-west", "[" * 100_000])
def test_preferences_without_their_shape_tell_nothing(text: str) -> None:
    assert _read(PREFERENCES, text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a, b", _set("a", "b")),
        ('["a", "b", "a"]', _set("a", "b")),
        ("", NOWHERE),
        ("[]", NOWHERE),
        (" , ", NOWHERE),
        ('["*"]', EVERYWHERE),
        ("a,*", EVERYWHERE),
        ("[1]", None),
        ('{"a": 1}', None),
        ('"a"', None),
        ("[a", None),
    ],
)
def test_names_are_a_json_list_or_have_commas_between(text: str, meant: Clusters | None) -> None:
    assert _read("names", text) == meant


IN_EU = {"key": "region", "operator": "in", "values": ["eu"]}
WITH_PCI = {"operator": "exists", "key": "pci", "values": []}


def test_each_selector_is_a_cluster_of_its_own_however_it_is_written() -> None:
    one = _read(SELECTOR, json.dumps([IN_EU, WITH_PCI]))
    assert one == _read(SELECTOR, json.dumps([WITH_PCI, dict(reversed(IN_EU.items()))], indent=1))
    assert one != _read(SELECTOR, json.dumps([IN_EU]))
    assert one is not None
    assert (len(one.names), one.open) == (1, False)


def test_a_selector_without_requirements_selects_every_cluster() -> None:
    assert _read(SELECTOR, "[]") == EVERYWHERE


@pytest.mark.parametrize("text", ["", "{}", '["eu"]', '[{"key": "region"}]', "region=eu"])
def test_selectors_without_their_shape_tell_nothing(text: str) -> None:
    assert _read(SELECTOR, text) is None


def test_a_selector_by_an_operator_that_nobody_knows_is_a_cluster_that_selects_nothing() -> None:
    one = _read(SELECTOR, '[{"key": "region", "operator": "like", "values": ["e"]}]')
    assert one is not None
    assert (len(one.names), one.selector) == (1, ())


def test_other_annotations_place_nothing() -> None:
    assert OTHERS.read({"a": "b"}) == {}
    assert Placements().read({"names": "a"}) == {}


def test_what_placements_name_is_the_fleet_at_least() -> None:
    everything = [
        {PREFERENCES: _preferences({"a": {}, "b": {"weight": 0}})},
        {PREFERENCES: _preferences({"*": {}, "x": {"weight": 0}}), "names": "c"},
        {SELECTOR: json.dumps([IN_EU]), PREFERENCES: "odd"},
        {},
    ]
    assert OTHERS.named(everything) == {"a", "c"}


_FLEET = frozenset("abcdef")
_sets = st.builds(Clusters, st.frozensets(st.sampled_from("abc")), open=st.booleans())


@given(_sets, _sets)
def test_what_is_left_is_what_a_fleet_would_show(one: Clusters, other: Clusters) -> None:
    def within(clusters: Clusters) -> frozenset[str]:
        return _FLEET - clusters.names if clusters.open else clusters.names

    left = one.without(other)
    lost = within(one) - within(other)
    assert left == ({"*"} if one.open and not other.open else lost)
    assert one.is_empty == (not within(one))


@pytest.mark.parametrize(
    "text",
    [
        _preferences({}),
        _preferences({"a": {"weight": 0}, "*": {"weight": 0}}),
        _preferences({"a": {"weight": 0, "minReplicas": 1}}),
        _preferences({"a": {"maxReplicas": 0}}),
        _preferences({"a": {"weight": 1}}),
        _preferences(None),
        "eu-west",
        "",
    ],
)
def test_empty_means_here_what_it_means_beside_the_decisions(text: str) -> None:
    assert is_empty_placement(text) == first.is_empty_placement(text)
    # Without a placement there is nothing to compare: here a first one that is empty is forbidden
    # as such, whatever there was.
    for current in ({PREFERENCES: text}, {PREFERENCES: _preferences({"a": {}})}):
        wanted = {PREFERENCES: text}
        assert Placements().empties(wanted, current) == first.empties(wanted, current)


def test_an_empty_placement_of_any_form_empties() -> None:
    assert OTHERS.empties({"names": ""}, {"names": "a"})
    assert not OTHERS.empties({"names": "b"}, {"names": "a"})
    assert not OTHERS.empties({"names": "[]"}, {"names": ""})


def test_values_are_read_the_same_however_many_were_read_before() -> None:
    placements = Placements({"names": "names"})
    for turn in range(2):
        for number in range(300):
            read = placements.read({"names": f"c{number}", PREFERENCES: f"c{number}"})
            assert read == {"names": Clusters(frozenset([f"c{number}"])), PREFERENCES: None}, turn
            assert placements.unreadable({PREFERENCES: f"c{number}"}) is not None
