from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.provisioning.rotation import Pace, Rotating, rotated

PACE = Pace(lifetime=1000, overlap=10)


def test_a_value_is_kept_while_it_is_young() -> None:
    held = Rotating("a", 0.0)
    assert rotated(held, PACE, 999, lambda: "b") is held


def test_an_old_value_is_followed_by_one_that_is_not_used_yet() -> None:
    found = rotated(Rotating("a", 0.0), PACE, 1000, lambda: "b")
    assert (found.current, found.following, found.since) == ("a", "b", 1000)
    assert found.good == ("a", "b")


def test_what_follows_is_used_after_the_overlap_and_the_old_one_is_good_for_another() -> None:
    announced = Rotating("a", 1000.0, following="b")
    assert rotated(announced, PACE, 1009, lambda: "c") is announced
    used = rotated(announced, PACE, 1010, lambda: "c")
    assert (used.current, used.previous, used.following) == ("b", "a", None)
    assert rotated(used, PACE, 1019, lambda: "c") is used
    assert rotated(used, PACE, 1020, lambda: "c") == Rotating("b", 1010.0)


@given(st.lists(st.floats(min_value=0.1, max_value=5000), max_size=60))
def test_nobody_ever_uses_what_was_not_announced_or_loses_what_is_in_use(
    pauses: list[float],
) -> None:
    """However late the runs come: a value is good for an overlap before and after it is used."""
    names = count(1)
    held = Rotating("value-0", 0.0)
    good_since = {"value-0": 0.0}
    unused_since: dict[str, float] = {}
    now = 0.0
    for pause in pauses:
        now += pause
        after = rotated(held, PACE, now, lambda: f"value-{next(names)}")
        if after.current != held.current:
            assert now - good_since[after.current] >= PACE.overlap
            unused_since[held.current] = now
        for gone in set(held.good) - set(after.good):
            assert now - unused_since[gone] >= PACE.overlap
        for new in set(after.good) - set(held.good):
            good_since[new] = now
        assert rotated(after, PACE, now, lambda: "another") is after or after is not held
        held = after
