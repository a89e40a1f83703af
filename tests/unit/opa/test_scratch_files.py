"""The folder of a scratch OPA: there as long as anybody writes into it, and gone afterwards."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.errors import Retriable, Terminal
from kube_sync.opa.inspection import Inspected
from kube_sync.opa.scratch import ScratchOpa
from tests.unit.async_tools import until

MANY = {f"policies/p-{number}/a.rego": "package a\n" * 1000 for number in range(2000)}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_who_stops_waiting_leaves_nothing_behind_and_meets_no_other_error(
    temporary: Path,
) -> None:
    task = asyncio.create_task(ScratchOpa("true").compiled(MANY))
    await until(lambda: any(temporary.rglob("*.rego")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [*temporary.rglob("*")]  # noqa: ASYNC240 - of a test


async def test_folder_that_cannot_be_had_is_tried_again_later(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "file"))
    with pytest.raises(Retriable, match=r"no files can be written to .*/file: Not a directory"):
        await ScratchOpa("true").compiled({"a": "package a"})
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(Retriable, match=f"no files can be written to {temporary}: File name too"):
        await ScratchOpa("true").compiled({"a" * 300 + "/a": "package a"})


async def test_machine_without_a_temporary_folder_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/proc/none"])
    with pytest.raises(Retriable, match=r"a temporary folder: No usable .*\['/proc/none'\]"):
        await ScratchOpa("true").compiled({"a": "package a"})


@pytest.mark.parametrize("pair", [("ns/p/a", "ns/p/a.rego"), ("ns/p/a b", "ns/p/a_b")])
async def test_modules_that_are_one_file_are_refused_before_one_is_not_compiled(
    pair: tuple[str, str],
) -> None:
    """Whoever compiles refuses them: the replicator, `plan`, `why` and `test`."""
    modules = {**dict.fromkeys(pair, "package a"), "ns/q/a.rego": "package a"}
    (cause,) = await ScratchOpa("false").check(modules)
    assert (cause["code"], cause["location"]) == ("forbidden", {"file": pair[0]})
    assert cause["message"] == f"{pair[1]} is the same file to OPA: rename one of them"
    with pytest.raises(Terminal, match="is the same file to OPA"):
        async with ScratchOpa("false").serving(modules, b"{}"):
            pytest.fail("it serves")


async def test_few_programs_run_at_once_whoever_starts_them(tmp_path: Path) -> None:
    """Each may take as much memory as its limit says."""
    program, running = tmp_path / "opa", tmp_path / "running"
    running.mkdir()
    program.write_text(
        f"#!/bin/sh\ntouch {running}/$$; ls {running} | wc -l >>{tmp_path}/counts\n"
        f'sleep 0.1; rm {running}/$$; echo \'{{"package": {{"path": [{{}}]}}}}\'\n'
    )
    program.chmod(0o755)
    scratch = ScratchOpa(str(program))
    many = {f"{n}.rego": "package a" for n in range(4)}
    await asyncio.gather(scratch.inspect(many), scratch.parsed(many), scratch.inspect(many))
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 12
    assert max(counts) <= 2


async def test_syntax_trees_are_read_beside_the_event_loop_and_rule_by_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = '{"head": {}, "body": [{"terms": {"type": "var", "value": "x"}}]}'
    tree = f'{{"package": {{"path": [{{}}]}}, "rules": [{", ".join([rule] * 3)}]}}'
    program = tmp_path / "opa"
    program.write_text(f"#!/bin/sh\necho '{tree}'\n")
    program.chmod(0o755)
    read: list[tuple[bool, int]] = []
    decode = msgspec.json.decode

    def noting(text: bytes, **how: Any) -> Any:
        read.append((threading.current_thread() is threading.main_thread(), len(text)))
        return decode(text, **how)

    monkeypatch.setattr(msgspec.json, "decode", noting)
    scratch = ScratchOpa(str(program))
    assert (await scratch.parsed({"a.rego": "package a"}))["a.rego"] == json.loads(tree)
    assert await scratch.inspect({"a.rego": "package a"}) == {"a.rego": Inspected(())}
    assert not any(main for main, _ in read)
    assert [length for _, length in read].count(len(rule)) == 3, "what names nothing is not read"
