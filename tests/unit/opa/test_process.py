from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured, Retriable, TooExpensive
from kube_sync.opa import process as process_module
from kube_sync.opa.process import LIMITS, OpaProgram, private_folder
from tests.unit.async_tools import until


def _program(folder: Path, script: str, seconds: float = 20.0) -> OpaProgram:
    path = folder / "opa"
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o700)
    return OpaProgram(str(path), seconds, LIMITS)


async def test_command_has_its_input_and_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "a secret")
    program = _program(tmp_path, 'cat; echo "$1 $HOME $OURS" >&2; exit 3')
    found = await program.run(str(tmp_path), ("check",), b"a question")
    assert found == (3, b"a question", f"check {tmp_path} \n".encode())


async def test_command_that_takes_too_long_is_too_expensive(tmp_path: Path) -> None:
    program = _program(tmp_path, "exec sleep 60", seconds=0.1)
    with pytest.raises(TooExpensive, match=r"more than 0\.1 s"):
        await program.run(str(tmp_path), ("check",))


async def test_command_that_says_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_OUTPUT_BYTES", 2**20)
    program = _program(tmp_path, "exec cat /dev/zero")
    with pytest.raises(TooExpensive, match="more than 1 MiB of output"):
        await program.run(str(tmp_path), ("parse",))


async def test_process_is_ended_with_its_block(tmp_path: Path) -> None:
    program = _program(tmp_path, "exec sleep 60")
    async with program.process(str(tmp_path), ("run",)) as process:
        assert process.returncode is None
    assert process.returncode == -9


def test_program_that_is_not_there_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(Misconfigured, match=r'opa\.binary: there is no program "/nowhere/opa"'):
        OpaProgram("/nowhere/opa", 1.0, LIMITS)


async def test_program_that_does_not_start_is_tried_again(tmp_path: Path) -> None:
    program = _program(tmp_path, "true")
    (tmp_path / "opa").unlink()
    with pytest.raises(Retriable, match="does not start: No such file"):
        await program.run(str(tmp_path), ("check",))


async def test_folder_holds_files_only_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with private_folder({"a/b.rego": b"package b"}) as folder:
        assert Path(folder, "a/b.rego").read_bytes() == b"package b"  # noqa: ASYNC240 - of a test
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - of a test


async def test_folder_is_gone_after_a_cancellation_that_comes_while_it_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def fill() -> None:
        async with private_folder({f"{number}": b"" for number in range(2_000)}):
            pytest.fail("it was not cancelled")

    task = asyncio.create_task(fill())
    await until(lambda: os.listdir(tmp_path))  # noqa: PTH208 - of a test
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - of a test
