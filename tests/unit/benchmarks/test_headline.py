from __future__ import annotations

from benchmarks.headline import AIMS, Aim, headlines

_FIRST = Aim("first sync, ratio", "<=", 1.4)
_OVER = Aim("over OPA, ratio", ">=", 8.0)


def test_each_measured_figure_with_an_aim_has_a_line_that_says_whether_it_was_reached() -> None:
    figures = {"first sync, ratio": 1.5, "over OPA, ratio": 10.0, "something else (s)": 3.0}
    header, first, over = headlines(figures, (_FIRST, _OVER))
    assert header.split() == ["headline", "measured", "aim"]
    assert first.split() == ["first", "sync,", "ratio", "1.500", "<=", "1.4", "MISSED"]
    assert over.split() == ["over", "OPA,", "ratio", "10.000", ">=", "8", "reached"]


def test_nothing_is_printed_where_nothing_that_was_measured_has_an_aim() -> None:
    assert list(headlines({"something else (s)": 3.0}, (_FIRST, _OVER))) == []


def test_no_figure_has_two_aims() -> None:
    names = [aim.figure for aim in AIMS]
    assert len(names) == len(set(names))
