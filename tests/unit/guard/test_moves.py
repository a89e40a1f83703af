from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import Change, Comparer, Placements, compare
from kube_sync.guard.placements import PREFERENCES, SELECTOR

PLACEMENTS = Placements({"names": "names"})
IN_EU = '[{"key":"region","operator":"in","values":["eu"]}]'
IN_US = '[{"key":"region","operator":"in","values":["us"]}]'


def on(*clusters: str, weight: int = 1) -> dict[str, str]:
    entries = {name: {"weight": weight} for name in clusters}
    return {PREFERENCES: json.dumps({"clusters": entries})}


def _compare(before: dict[str, str], after: dict[str, str]) -> Change | None:
    return compare(PLACEMENTS, "n", before, after)


def _change(before: dict[str, str], after: dict[str, str]) -> Change:
    change = _compare(before, after)
    assert change is not None
    return change


def test_a_change_that_takes_a_cluster_away_is_a_move() -> None:
    change = _change(on("a", "b"), on("b", "c"))
    assert (change.namespace, change.left, change.joined) == (
        "n",
        frozenset(["a"]),
        frozenset(["c"]),
    )
    assert change.is_move
    assert not change.empties


def test_a_change_that_only_adds_is_no_move() -> None:
    change = _change(on("a"), on("a", "b"))
    assert (change.left, change.joined, change.is_move) == (frozenset(), frozenset(["b"]), False)


def test_a_first_placement_is_no_move() -> None:
    change = _change({"other": "1"}, on("a"))
    assert (change.joined, change.is_move, change.empties) == (frozenset(["a"]), False, False)


def test_a_first_placement_that_is_empty_takes_everything_away() -> None:
    change = _change({}, on())
    assert (change.left, change.empties, change.is_forbidden) == (frozenset(["*"]), True, True)


def test_other_annotations_and_other_weights_change_no_placement() -> None:
    assert _compare({**on("a"), "x": "1"}, {**on("a", weight=9), "x": "2"}) is None


def test_an_empty_placement_empties_unless_the_policy_says_so() -> None:
    assert _change(on("a"), on()).is_forbidden
    allowed = compare(PLACEMENTS, "n", on("a"), on(), evict=True)
    assert allowed is not None
    assert (allowed.empties, allowed.is_forbidden, allowed.left) == (True, False, frozenset(["a"]))


def test_what_is_empty_already_is_not_emptied() -> None:
    assert _compare(on(), on("a", weight=0)) is None
    change = _change(on(), on("a"))
    assert (change.is_move, change.empties) == (False, False)


def test_named_clusters_in_place_of_all_leave_the_others() -> None:
    assert _change(on("*"), on("a", "b")).left == frozenset(["*"])
    assert _change(on("a"), on("*")).left == frozenset()


def test_any_change_of_a_selector_is_a_move() -> None:
    change = _change({SELECTOR: IN_EU}, {SELECTOR: IN_US})
    assert len(change.left) == len(change.joined) == 1
    assert change.left != change.joined


def test_a_placement_that_is_removed_is_left() -> None:
    change = _change(on("a", "b"), {})
    assert (change.left, change.joined, change.empties) == (
        frozenset(["a", "b"]),
        frozenset(),
        False,
    )
    assert not _change(on(), {}).is_move


def test_a_second_kind_of_placement_beside_the_first_restricts() -> None:
    change = _change(on("a"), {**on("a"), "names": "a"})
    assert (change.left, change.joined) == (frozenset(["*"]), frozenset())


def test_what_cannot_be_read_counts_as_left() -> None:
    odd, odder = {PREFERENCES: "odd"}, {PREFERENCES: "odder"}
    for before, after in ((odd, on("a")), (on("a"), odd), (odd, odder), (odd, {})):
        change = _change(before, after)
        assert change.left == frozenset(["?"])
        assert not change.empties


def test_what_cannot_be_read_and_becomes_empty_is_emptied() -> None:
    assert _change({PREFERENCES: "odd"}, on()).is_forbidden


def test_an_empty_placement_that_becomes_unreadable_loses_nothing() -> None:
    assert not _change(on(), {PREFERENCES: "odd"}).is_move


def test_a_placement_is_named_by_what_it_means() -> None:
    there, back = _change(on("a"), on("b")), _change(on("b", weight=3), on("a", weight=7))
    assert (there.before, there.after) == (back.after, back.before)


_annotations = st.dictionaries(
    st.sampled_from(["names", "x", PREFERENCES]),
    st.sampled_from(
        ["", "a", "b", "a,b", *(v for c in ("", "a", "ab", "*") for v in on(*c).values())]
    ),
)


@given(_annotations, _annotations)
def test_what_empties_leaves_something_and_what_is_equal_changes_nothing(
    before: dict[str, str], after: dict[str, str]
) -> None:
    assert _compare(before, before) is None
    change = _compare(before, after)
    if change is not None:
        assert change.is_move or not change.empties
        assert change.empties or not PLACEMENTS.empties(after, before)


_COMPARER = Comparer(PLACEMENTS)  # of all examples: what it caches must not depend on their order


_facts = st.fixed_dictionaries({"evict": st.booleans(), "idle": st.booleans()})


@given(_annotations, _annotations, _facts, st.sampled_from("mn"))
def test_a_cached_comparison_is_that_of_these_placements_and_this_object(
    before: dict[str, str], after: dict[str, str], facts: dict[str, bool], namespace: str
) -> None:
    found = _COMPARER.compare(namespace, before, after, **facts)
    expected = compare(PLACEMENTS, namespace, before, after, evict=facts["evict"])
    assert found == (expected and replace(expected, idle=facts["idle"]))


def test_comparisons_are_the_same_however_many_there_were_before() -> None:
    comparer = Comparer(PLACEMENTS)
    for turn in range(2):
        for number in range(300):
            change = comparer.compare("n", {"names": f"c{number}"}, {"names": "x"})
            assert change is not None
            assert change.left == {f"c{number}"}, turn
