from __future__ import annotations

import io
from itertools import count

import pytest

from tools.demo.narrator import Differs, Narrator


def narrator() -> tuple[Narrator, io.StringIO]:
    out, ticks = io.StringIO(), count()
    return Narrator(out, lambda: float(next(ticks))), out


def test_what_differs_for_too_long_ends_the_story() -> None:
    teller, out = narrator()
    with pytest.raises(Differs, match=r"step 1: a thing: expected 1, seen 2"), teller.step("one"):
        teller.see("a thing", 1, lambda: 2)
    assert "took" not in out.getvalue()


def test_what_comes_late_is_still_seen() -> None:
    teller, out = narrator()
    seen = iter(["nothing", "nothing", "here"])
    with teller.step("one"):
        teller.see("a thing", "here", lambda: next(seen))
    assert "expected: here" in out.getvalue()
    assert teller.told == 1
