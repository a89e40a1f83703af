from __future__ import annotations

import pytest

from kube_sync.opa.inspection import is_suspicious, may_nest_deeply


@pytest.mark.parametrize("line", ["#" * 600_000, "# " * 300_000, "x # " * 200_000])
def test_line_of_comment_signs_takes_linear_time(line: str) -> None:
    """In quadratic time it would take an hour: the time limit of every test ends it."""
    assert not is_suspicious(f"# METADATA\n{line}\npackage a\n")


@pytest.mark.parametrize("line", ["# schemas: []", "x := 1 # a # schemas", "#\\u0073", "#!!str a"])
def test_comment_that_may_be_a_schema_is_suspicious(line: str) -> None:
    assert is_suspicious(f"package a\n# METADATA\n{line}\n")


@pytest.mark.parametrize(
    "source",
    [
        f"x := {'[' * 300}{']' * 300}",
        f"x := {' + '.join(['1'] * 300)}",
        "x := 1" + " else := 2" * 300,
        "x := {'a': " * 300,
    ],
)
def test_module_of_many_brackets_operators_or_elses_may_nest_deeply(source: str) -> None:
    assert may_nest_deeply(f"package a\n\n{source}\n")


def test_module_as_people_write_them_does_not_nest_deeply() -> None:
    rules = "\n".join(f"allow if input.roles[_] == data.roles[{i}].name" for i in range(40))
    assert not may_nest_deeply(f"package a\n\n{rules}\n")
