from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard.additions import (
    ADDITION,
    Addition,
    described,
    read_addition,
    write_addition,
)

NOW = 1_000.0
_texts = st.text(max_size=3)


@given(
    st.builds(
        Addition,
        _texts,
        st.integers(0, int(NOW)),
        st.lists(_texts).map(tuple),
        st.sampled_from(["added", "reverted", "kept"]),
        _texts,
        _texts,
    )
)
def test_what_is_written_is_read_back(addition: Addition) -> None:
    assert read_addition({ADDITION: write_addition(addition)}, NOW) == addition


def test_a_record_is_compact_json_without_what_is_not_there() -> None:
    record = Addition("d", 5, ("c2",))
    assert json.loads(write_addition(record)) == {"to": "d", "at": 5, "added": ["c2"]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"to": "d"}',
        '{"to": "d", "at": -1}',
        '{"to": "d", "at": 1.5}',
        '{"to": "d", "at": 1, "added": "c"}',
        '{"to": "d", "at": 1, "step": "away"}',
        '{"to": "d", "at": 2000}',
        json.dumps({"to": "d", "at": 1, "policy": "x" * 70_000}),
    ],
)
def test_a_record_that_cannot_be_right_is_none(text: str) -> None:
    assert read_addition({ADDITION: text}, NOW) is None
    assert read_addition({}, NOW) is None


@pytest.mark.parametrize("step", ["added", "reverted", "kept"])
def test_every_step_is_described_with_clusters_and_time(step: str) -> None:
    record = {"to": "d", "at": 1000, "added": ["c2", "c3"], "step": step}
    found = read_addition({ADDITION: json.dumps(record)}, NOW)
    assert found is not None
    assert "c2, c3" in described(found)
    assert "at 1970-01-01T00:16:40Z" in described(found)
