"""The rules of a policy by name: nothing of it is lost, and no two have one name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology.raw_json import Malformed
from kube_sync.topology.rulemaps import RuleMaps

NAMES = st.sampled_from(
    ["a", "b", "limits", "rules", ".a", "a.b", "rules.a", "#", "a#b", '"a"', ""]
)
LEAVES = st.integers(0, 9)
PATHS = st.sampled_from([(), ("limits",), ("rules.a",), ("rules.a", "rules.b.a", "limits")])


def blocks(paths: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Return blocks with mappings, none of them empty, wherever maps of rules are or lead to."""
    entries = st.dictionaries(NAMES, LEAVES, min_size=1)

    def at(around: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
        depth = len(around)
        known = {
            place[depth]: entries if len(place) == depth + 1 else at((*around, place[depth]))
            for place in (tuple(path.split(".")) for path in paths)
            if place[:depth] == around
        }
        others = st.dictionaries(NAMES.filter(lambda name: name not in known), LEAVES)
        if not known:
            return others
        named = st.fixed_dictionaries({}, optional=known)
        return st.builds(lambda one, other: one | other, named, others).filter(
            lambda found: bool(found) or not around
        )

    return at(())


@given(st.data(), PATHS)
def test_rules_that_are_read_make_the_block_again(data: st.DataObject, paths: Any) -> None:
    block = data.draw(blocks(paths))
    maps = RuleMaps(paths)
    found = maps.read(block, "spec")
    assert maps.spec(found) == (
        {"limits": {}} | block if paths == ("limits",) else _with_only_map(block, paths)
    )


def _with_only_map(block: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """A kind with one map has it also where there is no rule."""
    if paths != ("rules.a",):
        return block
    return block | {"rules": {"a": {}} | block.get("rules", {})}


def test_an_entry_of_the_only_map_has_its_own_name() -> None:
    rules = RuleMaps(["limits"]).read({"limits": {"peruser": 1}, "when": []}, "spec")
    assert rules == {"peruser": 1, ".when": []}


def test_entries_and_fields_that_are_called_alike_are_two_rules() -> None:
    block = {"limits": {"when": 1, ".when": 2, "limits#when": 3}, "when": 4}
    assert sorted(RuleMaps(["limits"]).read(block, "spec").values()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"rules": {"a": 1}}, r"spec\.defaults\.rules\.a: expected a mapping"),
        ({"rules": []}, r"spec\.defaults\.rules: expected a mapping"),
    ],
)
def test_a_map_that_is_none_is_said_by_its_field(block: Any, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        RuleMaps(["rules.a"]).read(block, "spec.defaults")


def test_a_map_that_is_null_says_nothing() -> None:
    assert RuleMaps(["limits"]).read({"limits": None}, "spec") == {}
