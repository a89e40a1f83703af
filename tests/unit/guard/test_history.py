from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard.history import (
    HISTORY,
    LENGTH,
    Entry,
    History,
    caught_up,
    extended,
    oscillates_until,
    read_history,
    settled,
    settles_at,
    stamp,
    write_history,
)

NOW = 1000.0


def _placements(*names: str, every: int = 10) -> History:
    return tuple(Entry(every * number, name) for number, name in enumerate(names, 1))


def test_a_history_is_compact_json() -> None:
    history = (Entry(0, "a"), Entry(5, "b", ("c1",)), Entry(9, "c", (), "x"))
    assert write_history(history) == '[[0,"a"],[5,"b",["c1"]],[9,"c",[],"x"]]'


_entry = st.builds(
    Entry,
    st.integers(0, 1000),
    st.text(max_size=3),
    st.lists(st.text(max_size=3)).map(tuple),
    st.text(max_size=3),
    st.booleans(),
)


@given(st.lists(_entry, max_size=LENGTH).map(tuple))
def test_what_is_written_is_read_back(history: History) -> None:
    assert read_history({HISTORY: write_history(history)}, NOW) == history


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[1]",
        "[[]]",
        '[[-1,"a"]]',
        '[[1.5,"a"]]',
        '[["1","a"]]',
        "[" * 60_000,
        json.dumps([[1, "a"]] * 10_000),
        '[[1006,"a"]]',
    ],
)
def test_a_history_that_means_nothing_is_none(text: str) -> None:
    assert read_history({HISTORY: text}, NOW) == ()


def test_an_object_without_the_annotation_has_no_history() -> None:
    assert read_history({}, NOW) == ()


def test_clocks_may_differ_by_a_few_seconds() -> None:
    assert len(read_history({HISTORY: '[[1005,"a"]]'}, NOW)) == 1


def test_only_the_last_placements_are_read_and_kept() -> None:
    history = _placements(*"abcdefg")
    assert read_history({HISTORY: write_history(history)}, NOW) == history[-LENGTH:]
    assert extended(history[:LENGTH], history[6]) == (*history[1:LENGTH], history[6])


def test_a_placement_that_another_wrote_is_put_in() -> None:
    assert caught_up((), "a") == (Entry(0, "a"),)
    assert caught_up(_placements("a"), "a") == _placements("a")
    assert caught_up(_placements("a"), "b") == (Entry(10, "a"), Entry(10, "b"))


@given(st.lists(st.sampled_from("abcd"), max_size=4), st.sampled_from("abcd"))
def test_back_and_forth_is_found_and_nothing_else(before: list[str], after: str) -> None:
    until = oscillates_until(_placements(*before), after, 100)
    last = [*before, after][-4:]
    goes_back_and_forth = len(last) == 4 and last[:2] == last[2:] and last[0] != last[1]
    assert (until is not None) == goes_back_and_forth
    if until is not None:
        assert until == _placements(*before)[-2].at + 100


def test_without_a_window_nothing_goes_back_and_forth() -> None:
    """Times are rounded up: it would be frozen for the rest of a second."""
    assert oscillates_until(_placements(*"aba"), "b", 0) is None


def test_dwell_is_after_any_placement_and_cooldown_after_moves() -> None:
    assert settles_at((), 5, 50) == (0, 0)
    assert settles_at((Entry(0, "a"),), 5, 50) == (0, 0)
    history = (Entry(10, "a", ("c",)), Entry(20, "b"))
    assert settles_at(history, 5, 50) == (25, 60)
    assert settles_at(history, 0, 0) == (0, 0), "none is waited for, not even the rest of a second"


def test_a_time_is_never_written_too_early() -> None:
    assert stamp(1.0) == 1
    assert stamp(1.001) == 2


def test_a_placement_that_is_passed_through_is_replaced_by_the_next_one() -> None:
    before = _placements("a", "b")
    passing = Entry(30, "bc", passing=True)
    through = extended(before, passing)
    assert (through, settled(through)) == ((*before, passing), before)
    assert caught_up(through, "bc") == through
    assert extended(through, Entry(40, "c", ("b",))) == (*before, Entry(40, "c", ("b",)))


def test_an_addition_that_is_taken_back_leaves_no_entry() -> None:
    before = _placements("a", "b")
    through = extended(before, Entry(30, "bc", passing=True))
    assert extended(through, Entry(40, "b")) == before
    assert extended(through, Entry(40, "b", ("c",))) == (*before, Entry(40, "b", ("c",)))


def test_what_is_passed_through_does_not_hide_that_two_placements_alternate() -> None:
    a, b, again = _placements("a", "b", "a")
    history = (a, b, again, Entry(40, "ab", passing=True))
    assert oscillates_until(history, "b", 100) == b.at + 100
