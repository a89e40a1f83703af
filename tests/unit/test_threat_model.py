"""docs/threat-model.md: each claim names tests that prove it, and each named test exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
_CODE = re.compile(r"`([^`]+)`")
_TEST = re.compile(r"(?:(?P<path>[\w./-]+\.(?:py|rego))::)?(?P<name>test_\w+)")
_REGO = re.compile(r"^(test_\w+)", re.MULTILINE)
Tests = Mapping[str, frozenset[str]]  # the files that each test is in


@cache
def known_tests() -> Tests:
    """Return the tests of Python and Rego by name."""
    found: dict[str, set[str]] = {}
    for path in (*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("rego/**/*_test.rego")):
        text = path.read_text(encoding="utf-8")
        names = _REGO.findall(text) if path.suffix == ".rego" else _functions(text)
        for name in names:
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return {name: frozenset(paths) for name, paths in found.items()}


def _functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def complaint(cell: str, known: Tests) -> str | None:
    """Return what is wrong with what a row says of its tests."""
    named = [_TEST.fullmatch(code) for code in _CODE.findall(cell)]
    if not named or not all(named):
        return "name its tests, each as `test_name` or `path::test_name`"
    for found in filter(None, named):
        name, path = found["name"], found["path"]
        paths = known.get(name, frozenset())
        if not paths or path not in {None, *paths}:
            return f"there is no test {found[0]}"
        if path is None and len(paths) > 1:
            return f"{name} is in {', '.join(sorted(paths))}: name one as `path::test_name`"
    return None


def test_each_claim_names_tests_that_exist() -> None:
    found = rows(PAGE.read_text(encoding="utf-8"))
    assert found
    complaints = {row[0]: complaint(row[2], known_tests()) for row in found if len(row) == 3}
    assert [row[0] for row in found if len(row) != 3] == []
    assert {who: what for who, what in complaints.items() if what} == {}


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: str(page.name))
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    named = map(_TEST.fullmatch, _CODE.findall(page.read_text(encoding="utf-8")))
    found = {(test["path"], test["name"]) for test in named if test}
    known = known_tests()
    missing = {(p, n) for p, n in found if n not in known or p not in {None, *known[n]}}
    # An architecture's row may name a module of tests as well.
    modules = {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    assert {(p, n) for p, n in missing if p is not None or n not in modules} == set()


@pytest.mark.parametrize(
    ("cell", "wrong"),
    [
        ("`test_a`", None),
        ("`tests/x.py::test_a`, `test_a` (Hypothesis)", None),
        ("`test_b`", "test_b is in tests/x.py, tests/y.py: name one"),
        ("`tests/y.py::test_b`", None),
        ("`tests/z.py::test_b`", "there is no test tests/z.py::test_b"),
        ("`test_c`", "there is no test test_c"),
        ("`tests/x.py`", "name its tests"),
        ("`test_a`, `tests/unit`", "name its tests"),
        ("the tests of the page", "name its tests"),
        ("", "name its tests"),
    ],
)
def test_claim_without_a_test_of_its_own_is_found(cell: str, wrong: str | None) -> None:
    both = frozenset({"tests/x.py", "tests/y.py"})
    found = complaint(cell, {"test_a": frozenset({"tests/x.py"}), "test_b": both})
    assert (found or "").startswith(wrong or "")
    assert (found is None) == (wrong is None)
