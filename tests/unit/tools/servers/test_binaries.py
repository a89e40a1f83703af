from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tools.servers import binaries, dockerd_api, gobuild
from tools.servers.binaries import (
    cached_path,
    ensure_binary,
    installed,
    is_static,
    tool_named,
)
from tools.servers.errors import Missing, ToolError
from tools.servers.versions import Tool


def program(folder: Path, name: str, said: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def elf(path: Path, kind: int) -> Path:
    """Write the header of a 64-bit ELF file with a single program header of this kind."""
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, 1)
    path.write_bytes(bytes(header) + struct.pack("<I", kind) + bytes(52))
    return path


class Builder:
    """Stands for Go: writes a program that says the given version, and counts its calls."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.built: list[str] = []

    def __call__(self, tool: Tool, target: Path) -> None:
        self.built.append(tool.name)
        program(target.parent, target.name, self.said)


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: False)
    found = Builder(f"Version: {tool_named('opa').number}")
    monkeypatch.setattr(binaries, "build", found)
    return found


def test_second_call_builds_nothing(builder: Builder) -> None:
    assert ensure_binary("opa") == ensure_binary("opa")
    assert builder.built == ["opa"]


def test_new_pin_does_not_meet_the_old_file(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ensure_binary("opa")
    newer = Tool("opa", "example.org/opa", "v9.9.9", ("version",), "seconds")
    monkeypatch.setattr(binaries, "tools", lambda: {"opa": newer})
    builder.said = "Version: 9.9.9"
    assert ensure_binary("opa") != old
    assert builder.built == ["opa", "opa"]


def test_program_of_the_pinned_version_on_path_is_used(builder: Builder, tmp_path: Path) -> None:
    program(tmp_path / "path", "opa", f"Version: {tool_named('opa').number}")
    ensure_binary("opa")
    assert builder.built == []


def test_program_of_another_version_on_path_is_passed_over_with_a_line(
    builder: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = program(tmp_path / "path", "opa", "Version: 0.1.0")
    ensure_binary("opa")
    assert builder.built == ["opa"]
    assert f"{wrong} passed over" in capsys.readouterr().err


def test_kubebuilder_assets_come_before_path(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = program(tmp_path / "assets", "opa", "")
    on_path = program(tmp_path / "path", "opa", "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert list(installed("opa")) == [assets, on_path]
    assert builder.built == []


def test_built_program_of_the_wrong_version_is_not_kept(builder: Builder) -> None:
    builder.said = "Version: 0.0.0"
    with pytest.raises(ToolError, match=r"says of itself: Version: 0\.0\.0"):
        ensure_binary("opa")
    folder = cached_path(tool_named("opa")).parent
    assert list(folder.iterdir()) == []


def test_unknown_program_is_named_with_those_there_are() -> None:
    with pytest.raises(ToolError, match=r"no such program: terraform .there are opa"):
        ensure_binary("terraform")


def test_program_that_asks_for_a_loader_is_not_static(tmp_path: Path) -> None:
    pt_load, pt_interp = 1, 3
    assert is_static(elf(tmp_path / "static", pt_load))
    assert not is_static(elf(tmp_path / "dynamic", pt_interp))


@pytest.mark.parametrize("said", ["go version go1.19.8 linux/amd64", ""])
def test_old_or_absent_go_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    program(tmp_path, "go", said)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match=r"Go 1\.26 or later is needed.* /usr/local/go"):
        gobuild.require_go({"PATH": str(tmp_path)})


def test_new_enough_go_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "go", "go version go1.27.1 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path))
    gobuild.require_go({"PATH": str(tmp_path)})


def test_program_for_another_processor_is_built_beside_the_own_one(
    builder: Builder, tmp_path: Path
) -> None:
    program(tmp_path / "path", "opa", f"Version: {tool_named('opa').number}")
    foreign = ensure_binary("opa", "arm64")
    assert builder.built == ["opa"], "the one on PATH is of this machine"
    assert foreign != ensure_binary("opa")
    assert builder.built == ["opa"]
