from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.guard import Placements
from kube_sync.guard.placements import PREFERENCES, SELECTOR, UNKNOWN
from tests.parts import examples

PLACEMENTS = Placements({"names": "names", "more": "preferences"})


def _wrong(annotation: str, value: str) -> str:
    return str(PLACEMENTS.unreadable({annotation: value}) or "")


@pytest.mark.parametrize(
    "value",
    [
        '{"clusters":{"c1":{"weight":1}},"rebalance":true}',  # Kubernetes' tutorial
        '{"clusters":{}}',
        '{"clusters":{"*":{"minReplicas":1,"maxReplicas":9,"weight":0},"c1":null}}',
        '{"rebalance":null,"clusters":{"c1":{"priority":3}},"totalReplicas":4}',
    ],
)
def test_preferences_of_federations_type_are_readable(value: str) -> None:
    assert PLACEMENTS.unreadable({PREFERENCES: value}) is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('{"clustrs":{"c1":{}}}', "found the key `clustrs` instead of `clusters`"),
        ('{"Clusters":{"c1":{}}}', "found the key `Clusters` instead of `clusters`"),
        ('{"rebalance":true}', "found no key `clusters` but `rebalance`"),
        ("{}", "found no key `clusters` but no key at all"),
        ('["c1"]', "found an array: '[\"c1\"]'"),
        ('{"clusters":["c1"]}', "found `clusters` as an array"),
        ('{"clusters":null}', "found `clusters` as null"),
        ('{"clusters":{"c1":{"weight":"1"}}}', "Expected `int | null`, got `str`"),
        ('{"clusters":{"c1":true}}', "Expected `object | null`, got `bool`"),
        ('{"clusters":{"c1":{}},"rebalance":"yes"}', "Expected `bool | null`, got `str`"),
        ("c1", "found 'c1', which is not JSON"),
        ('"c1"', "found a string"),
        ("1", "found a number"),
        ("true", "found a boolean"),
        ("", "which is not JSON"),
    ],
)
def test_other_preferences_are_told_with_what_was_expected(value: str, found: str) -> None:
    said = _wrong(PREFERENCES, value)
    assert said.startswith(
        f'annotation {PREFERENCES}: expected {{"clusters": {{NAME: {{"weight": 1}}}}}}, found '
    )
    assert found in said


def test_what_is_quoted_of_a_value_is_short() -> None:
    assert len(_wrong(PREFERENCES, json.dumps(["x" * 10_000]))) < 300


def test_selector_of_the_tutorial_is_told_with_what_was_expected() -> None:
    """It gives its values as one string, which federation's own type refuses."""
    said = _wrong(SELECTOR, '[{"key":"pci-certified","operator":"in","values":"[true]"}]')
    assert "cluster-selector: expected a list of" in said
    assert "got `str` - at `$[0].values`" in said


def test_configured_annotations_are_held_to_their_form_alone() -> None:
    assert (
        PLACEMENTS.unreadable({"more": '{"clusters":{"c1":{"weight":0.5}}}', "names": "a"}) is None
    )
    assert "expected a JSON list of names" in _wrong("names", "[1]")
    assert "(form: preferences), found '[\"a\"]'" in _wrong("more", '["a"]')
    assert PLACEMENTS.unreadable({"other": "["}) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["clusters", "weight", "key", "operator", "a"]), inner)
    ),
    max_leaves=6,
)


@given(st.sampled_from([PREFERENCES, SELECTOR, "names", "more"]), _json)
@settings(max_examples=examples(200))
def test_what_is_readable_is_read_and_what_is_unreadable_names_its_annotation(
    annotation: str, document: object
) -> None:
    value = json.dumps(document)
    wrong = PLACEMENTS.unreadable({annotation: value})
    read = PLACEMENTS.read({annotation: value})[annotation]
    if wrong is None:
        assert read is not None
        assert UNKNOWN not in read.names
    else:
        assert wrong.annotation == annotation
        assert len(str(wrong)) < 500
