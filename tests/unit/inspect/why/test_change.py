"""Single changes: where they may be, what they make of an object, and how they are spelt."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.inspect.plan.cluster_changes import Facts
from kube_sync.inspect.plan.cluster_changes import applied as put_in
from kube_sync.inspect.why.change import ABSENT, Change, Spot, applied, as_option, at
from kube_sync.inspect.why.changeable_fields import may_change, spots
from tests.unit.inspect.plan.fleets import cluster, item

C1 = cluster("c1", zone="eu")


def changed(spot: Spot, after: Any, body: dict[str, Any] | None = None) -> Any:
    whole = body or C1
    found = applied(Change("cluster", spot, at(whole, spot), after), item(whole))
    return None if found is None else json.loads(found.body)


def test_value_is_set_added_and_taken_away_and_all_else_stays() -> None:
    spot = ("metadata", "labels", "zone")
    assert at(changed(spot, "us"), spot) == "us"
    assert at(changed(("spec", "taints"), []), ("spec", "taints")) == []
    gone = changed(spot, ABSENT)
    assert (at(gone, spot), at(gone, ("metadata", "labels"))) == (ABSENT, {})
    assert {**gone, "metadata": {**gone["metadata"], "labels": {"zone": "eu"}}} == C1


def test_element_of_an_array_is_changed_and_taken_away_and_none_is_made() -> None:
    body = {**C1, "spec": {"taints": [{"key": "a"}, {"key": "b"}]}}
    first: Spot = ("spec", "taints", 0)
    assert changed((*first, "key"), "c", body)["spec"]["taints"] == [{"key": "c"}, {"key": "b"}]
    assert changed(first, ABSENT, body)["spec"]["taints"] == [{"key": "b"}]
    assert changed(("spec", "taints", 7, "key"), "c", body) is None
    assert changed(("kind", "below"), "c") is None


def test_change_that_changes_nothing_is_none() -> None:
    assert changed(("metadata", "labels", "zone"), "eu") is None


@pytest.mark.parametrize(
    ("spot", "after"),
    [
        (("metadata", "labels", "example.com/zone"), "eu west"),
        (("metadata", "labels", "zone"), ABSENT),
        (("metadata", "annotations", "a.b"), "true"),
        (("spec", "quota"), 3),
        (("spec", "quota"), "3"),
        (("spec", "quota"), "three"),
        (("spec", "taints"), [{"key": "a"}]),
    ],
)
def test_option_of_a_change_makes_the_same_change(spot: Spot, after: Any) -> None:
    change = Change("cluster", spot, at(C1, spot), after)
    option = as_option(change, "c1")
    assert option is not None
    (spelt,) = shlex.split(option)
    one = item(C1)
    facts = put_in(Facts((), (spelt,)), {one.key: one})
    made = applied(change, one)
    assert made is not None
    assert json.loads(facts[one.key].body) == json.loads(made.body)


def test_change_that_has_no_spelling_has_no_option() -> None:
    for spot in [("spec", "taints", 0), ("spec", "a.b"), ("metadata", "labels", "a=b")]:
        assert as_option(Change("cluster", spot, ABSENT, "x"), "c1") is None


def test_path_and_values_are_shown_as_people_write_them() -> None:
    change = Change("cluster", ("metadata", "labels", "a/b"), ABSENT, "x")
    assert str(change) == 'metadata.labels["a/b"]: (absent) -> "x"'
    assert Change("cluster", ("spec", "taints", 0, "key"), 1, ABSENT).path == "spec.taints[0].key"
    assert change.document() == {
        "of": "cluster",
        "path": ["metadata", "labels", "a/b"],
        "after": "x",
    }


@pytest.mark.parametrize(
    "spot",
    [
        ("metadata", "name"),
        ("metadata", "uid"),
        ("metadata", "resourceVersion"),
        ("metadata", "ownerReferences", 0, "name"),
        ("metadata", "labels"),
        ("kind",),
        ("apiVersion",),
        ("metadata", "annotations", "kube-sync.io/requested"),
        ("metadata", "annotations", "placement"),
        (),
    ],
)
def test_what_names_an_object_and_what_is_decided_is_nobodys_to_set(spot: Spot) -> None:
    assert not may_change(spot, C1, {"placement"})


def test_values_of_a_secret_are_nobodys_to_set() -> None:
    assert may_change(("data", "key"), C1, ())
    assert not may_change(("data", "key"), {"kind": "Secret"}, ())
    assert not may_change(("stringData", "key"), {"kind": "Secret"}, ())


def test_spots_are_those_that_lie_there_and_those_that_others_have() -> None:
    body = {"spec": {"taints": [{"key": "a"}]}}
    other = {"spec": {"zone": "eu", "taints": [{"key": "b"}, {"key": "c"}]}}
    assert [*spots(("spec",), body, [other])] == [
        ("spec", "taints"),
        ("spec", "taints", 0, "key"),
        ("spec", "zone"),
    ]
    assert [*spots(("spec", "taints", None, "key"), body, [other])] == [
        ("spec", "taints"),
        ("spec", "taints", 0, "key"),
    ]
    assert [*spots(("spec", "new"), body, [other])] == [("spec", "new")]


_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
_json = st.recursive(
    _scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=2), below),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=2), _json, min_size=1, max_size=3), _scalars)
def test_every_spot_of_an_object_can_be_changed_to_what_it_says(
    spec: dict[str, Any], value: Any
) -> None:
    body = {**C1, "spec": spec}
    for spot in spots(("spec",), body, []):
        found = changed(spot, value, body)
        assert at(body if found is None else found, spot) == value
