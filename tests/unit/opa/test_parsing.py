from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.errors import Retriable
from kube_sync.opa import parsing
from kube_sync.opa.parsing import ModuleParser
from kube_sync.opa.process import LIMITS, OpaProgram

TREE = '{"package": {"path": [{}]}, "rules": [{"head": 1}]}'
REFUSED = "package a\np := http.send({})"


def _parser(folder: Path, script: str, seconds: float = 20.0) -> ModuleParser:
    """Return a parser whose processes are counted in the file `runs`."""
    path = folder / "opa"
    path.write_text(f"#!/bin/sh\necho >>{folder}/runs\n{script}\n", "utf-8")
    path.chmod(0o700)
    return ModuleParser(OpaProgram(str(path), seconds, LIMITS))


def _runs(folder: Path) -> int:
    return len((folder / "runs").read_text("utf-8").splitlines())


async def test_each_module_is_parsed_by_a_process_of_its_own(tmp_path: Path) -> None:
    parser = _parser(tmp_path, f"echo '{TREE}'")
    found = await parser.parsed({"a": "package a", "b": "package b"})
    assert found == {name: {"package": {"path": [{}]}, "rules": [{"head": 1}]} for name in "ab"}
    assert _runs(tmp_path) == 2


async def test_module_that_does_not_parse_is_left_out(tmp_path: Path) -> None:
    parser = _parser(tmp_path, 'echo \'{"errors": [{"code": "rego_parse_error"}]}\' >&2; exit 1')
    assert await parser.parsed({"a": "package"}) == {}
    assert await parser.inspect({"a": "package"}) == {}


async def test_parser_that_says_nothing_is_tried_again_or_a_fault(tmp_path: Path) -> None:
    parser = _parser(tmp_path, "echo nonsense; exit 1")
    with pytest.raises(Retriable, match="gave no answer: nonsense"):
        await parser.parsed({"a": "package a"})
    found = await parser.inspect({"a": "package a"})
    assert "gave no answer" in found["a"].fault


async def test_module_that_takes_too_long_to_parse_says_so(tmp_path: Path) -> None:
    parser = _parser(tmp_path, "exec sleep 60", seconds=0.1)
    found = await parser.inspect({"a": "package a"})
    assert found["a"].fault.startswith("too expensive to parse (more than 0.1 s")


async def test_only_suspicious_modules_are_looked_into_and_once(tmp_path: Path) -> None:
    parser = _parser(tmp_path, f"echo '{TREE}'")
    assert await parser.objections({"a": "package a"}, ()) == []
    assert not (tmp_path / "runs").exists()
    for _ in range(2):
        await parser.objections({"b": REFUSED, "c": REFUSED}, ())
    assert _runs(tmp_path) == 2
    await parser.objections({"d": REFUSED + " "}, ())
    assert _runs(tmp_path) == 3


async def test_no_more_sources_are_remembered_than_make_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "_INSPECTED", 1)
    parser = _parser(tmp_path, f"echo '{TREE}'")
    for source in (REFUSED, REFUSED + " ", REFUSED):
        await parser.objections({"a": source}, ())
    assert _runs(tmp_path) == 3


async def test_modules_that_are_one_file_are_objected_to_before_any_process(
    tmp_path: Path,
) -> None:
    (cause,) = await _parser(tmp_path, "").objections({"a": REFUSED, "a.rego": REFUSED}, ())
    assert cause["message"] == "a.rego is the same file to OPA: rename one of them"
    assert not (tmp_path / "runs").exists()
