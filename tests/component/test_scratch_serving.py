"""The scratch OPA as a server of its own, with the pinned program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kube_sync.errors import Terminal
from kube_sync.opa.process import OpaProgram
from kube_sync.opa.scratch import ScratchOpa
from tools.servers.binaries import ensure_binary

MODULES = {"ns/a/policy": "package a\nb := data.c + input"}


@pytest.fixture
def scratch() -> ScratchOpa:
    return ScratchOpa(str(ensure_binary("opa")))


async def test_it_answers_by_what_it_was_given_and_leaves_nothing_behind(
    scratch: ScratchOpa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with scratch.serving(MODULES, b'{"c":1}') as opa:
        assert await opa.query("a/b", b'{"input":2}') == b"3"
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - nobody waits


async def test_modules_that_do_not_compile_are_no_server(scratch: ScratchOpa) -> None:
    with pytest.raises(Terminal, match=r"^a:2: rego_unsafe_var_error: var c is unsafe$"):
        async with scratch.serving({"a": "package a\nb := c"}, b"{}"):
            pytest.fail("it serves")


async def test_set_that_was_just_compiled_is_not_compiled_again(
    scratch: ScratchOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    run = OpaProgram.run

    async def counted(
        self: OpaProgram, folder: str, arguments: Sequence[str], *more: bytes
    ) -> tuple[int, bytes, bytes]:
        compiled.extend(arguments[:1])
        return await run(self, folder, arguments, *more)

    monkeypatch.setattr(OpaProgram, "run", counted)
    assert await scratch.check(MODULES) == []
    async with scratch.serving(dict(MODULES), b"{}"):
        assert compiled.count("check") == 1
    other = {"ns/a/policy": "package a\nb := data.d + input"}
    async with scratch.serving(other, b"{}"):
        assert compiled.count("check") == 2
    async with scratch.serving(other, b"{}", ["http.send"]):
        assert compiled.count("check") == 3
