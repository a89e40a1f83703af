"""The folder of a scratch OPA: there as long as anybody writes into it, and gone afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from kube_sync.errors import Retriable
from kube_sync.opa.scratch import ScratchOpa, file_of
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


def test_long_names_are_files_of_their_own() -> None:
    names = [f"kube_sync_stage/shadow/ns__{'c' * 253}__{'a' * 240}{n}.rego" for n in range(2)]
    files = {file_of(name).rpartition("/")[2] for name in names}
    assert len(files) == 2
    assert all(len(file) <= 255 and file.endswith(".rego") for file in files)
