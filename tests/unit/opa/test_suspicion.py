from __future__ import annotations

import time

import pytest

from kube_sync.opa.inspection import is_suspicious


@pytest.mark.parametrize("line", ["#" * 60_000, "# " * 30_000, "x # " * 20_000])
def test_line_of_comment_signs_takes_linear_time(line: str) -> None:
    before = time.process_time()
    assert not is_suspicious(f"# METADATA\n{line}\npackage a\n")
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize("line", ["# schemas: []", "x := 1 # a # schemas", "#\\u0073", "#!!str a"])
def test_comment_that_may_be_a_schema_is_suspicious(line: str) -> None:
    assert is_suspicious(f"package a\n# METADATA\n{line}\n")
