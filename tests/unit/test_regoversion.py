from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.regoversion import by_default, in_version, stated_version, version_of

LINE = "# kube-sync.io/rego-version: "


@pytest.mark.parametrize(
    ("source", "stated"),
    [
        ("package a\n", None),
        (f"{LINE}0\npackage a\n", 0),
        ("package a\n#kube-sync.io/rego-version:\t1 \r\n", 1),
        (f"{LINE}0\npackage a\n{LINE}1", 1),
        (f"package a\np := 1 {LINE}0", None),  # behind something else it is any comment
        (f"package a\n  {LINE}0", None),
        (f"package a\n{LINE}2", None),
        (f"package a\n{LINE}00", None),
    ],
)
def test_line_of_its_own_states_the_version_and_the_last_one_counts(
    source: str, stated: int | None
) -> None:
    assert stated_version(source) == stated
    assert version_of(source) == (1 if stated is None else stated)


@given(source=st.text(), first=st.sampled_from([0, 1]), then=st.sampled_from([0, 1]))
def test_what_is_written_last_counts_and_rows_stay(source: str, first: int, then: int) -> None:
    found = in_version(in_version(source, first), then)
    assert version_of(found) == then
    assert found.startswith(source.rstrip())
    assert in_version(found, then) == found


@given(source=st.text(), version=st.sampled_from([0, 1]))
def test_default_gives_way_to_what_is_stated(source: str, version: int) -> None:
    stated = f"{source}\n{LINE}{1 - version}\n"
    assert by_default(stated, version) == stated
    assert version_of(by_default("package a", version)) == version
