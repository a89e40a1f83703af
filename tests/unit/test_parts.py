"""No test is left out by both commands, and the recipes choose by the marks that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parts import examples, in_order, quickly, shard

_ROOT = Path(__file__).resolve().parents[2]


def chosen(target: str) -> str:
    recipe = (_ROOT / "Makefile").read_text(encoding="utf-8").split(f"\n{target}: ", 1)[1]
    found = re.search(r'-m "([^"]+)"', recipe.split("\n\n", 1)[0])
    assert found
    return found.group(1)


def test_what_make_test_leaves_out_make_test_rest_runs() -> None:
    assert chosen("test") == "not slow"
    assert chosen("test-rest") == "slow or property"


def test_no_other_mark_hides_a_test() -> None:
    options = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [mark.split(":")[0] for mark in options["tool"]["pytest"]["ini_options"]["markers"]]
    assert names == ["slow", "property", "built"]


@pytest.mark.parametrize("program", ["argocd", "kueue", "kstatus", "node"])
def test_who_leaves_out_what_needs_a_program_says_how_it_is_run(program: str) -> None:
    """Which is the only other mark that hides one."""
    text = (_ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = text.split(f"\ntest-{program}: ", 1)[1].split("\n\n", 1)[0]
    assert f"tools.servers path {program}" in recipe
    assert f"--built={program} -m built" in recipe


@given(st.integers())
def test_a_property_test_is_marked(request: pytest.FixtureRequest, number: int) -> None:
    assert request.node.get_closest_marker("property"), number


def test_thorough_tries_all_examples_and_quick_a_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_current_profile", "quick")
    assert [examples(200), examples(10)] == [40, 5]
    monkeypatch.setattr(settings, "_current_profile", "thorough")
    assert [examples(200), examples(10)] == [200, 10]


def test_longest_come_first_with_a_share_of_the_short_ones_after_each() -> None:
    seconds = {"slow": 30.0, "slower": 60.0, "some": 5.0}
    short = [f"short{number}" for number in range(5)]
    order = in_order([*short, *seconds], seconds)
    assert sorted(order) == sorted([*short, *seconds])
    assert order[:6] == ["slower", "some", "short0", "short1", "short2", "slow"]
    assert in_order(short, {}) == short


def test_shards_share_all_files_and_take_about_as_long() -> None:
    seconds = {f"test_{number}.py": float(60 - number) for number in range(60)}
    files = [*seconds, "test_new.py"]
    parts = [shard(f"{number}/4", files, seconds) for number in (1, 2, 3, 4)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    loads = [sum(seconds.get(file, 1.0) for file in part) for part in parts]
    assert max(loads) - min(loads) <= 60
    assert shard("1/1", files, seconds) == set(files)


@pytest.mark.parametrize("which", ["5/4", "0/4", "2", "a/b", "1/0"])
def test_shard_that_does_not_exist_is_an_error(which: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--shard={which}"):
        shard(which, [], {})


def test_of_many_parameters_the_first_are_quick_and_the_others_slow() -> None:
    found = quickly(1, ["a", ("b", "c")])
    assert [one.values for one in found] == [("a",), ("b", "c")]
    assert [[mark.name for mark in one.marks] for one in found] == [[], ["slow"]]
