"""Two JSON values are the same one exactly if their canonical bytes are."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology.raw_json import is_same

SCALARS = st.sampled_from([None, True, False, 0, 1, 0.5, 1.0, "", "1", "true"])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@given(JSON, JSON)
def test_values_are_the_same_where_their_bytes_are(one: object, other: object) -> None:
    bytes_ = [json.dumps(value, sort_keys=True) for value in (one, other)]
    assert is_same(one, other) == (bytes_[0] == bytes_[1])


@given(JSON)
def test_a_value_that_was_read_twice_is_the_same(one: object) -> None:
    assert is_same(one, json.loads(json.dumps(one)))


def test_true_is_no_number() -> None:
    assert not is_same({"a": [True]}, {"a": [1]})
    assert not is_same([0], [False])
    assert not is_same(1, 1.0)
