from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tools.servers import thirdparty
from tools.servers.__main__ import main
from tools.servers.errors import Missing, ToolError
from tools.servers.thirdparty import ensure_kinds, third_parties

GATEWAY_API = third_parties()["gateway-api"]


class Go:
    """Stands for the go command: answers what is set, and counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked"
        self.answer = folder / "answer"
        self.program = folder / "bin" / "go"
        self.program.parent.mkdir()
        self.program.write_text(
            "#!/bin/sh\n"
            '[ "$1" = version ] && { echo go version go1.99.0 linux/amd64; exit 0; }\n'
            f'echo "$@" >> {self.asked}\n'
            f"/bin/cat {self.answer}\n",
            encoding="utf-8",
        )
        self.program.chmod(0o755)

    def says(self, **answer: str) -> None:
        self.answer.write_text(json.dumps(answer), encoding="utf-8")

    def has(self, module: Path, *, but: str = "") -> None:
        """Let it answer with a module whose files each say their own name."""
        for file in GATEWAY_API.files:
            (module / file).parent.mkdir(parents=True, exist_ok=True)
            (module / file).write_text(f"file: {Path(file).name}\n", encoding="utf-8")
        if but:
            (module / but).unlink()
        self.says(Dir=str(module), Sum=GATEWAY_API.sum)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    found = Go(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(found.program.parent))
    return found


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache/kube-sync/kinds").rglob("*") if path.is_file()]


def test_kinds_of_the_pinned_sum_are_kept_in_one_stream(go: Go, tmp_path: Path) -> None:
    go.has(tmp_path / "module")
    documents = ensure_kinds("gateway-api").read_text(encoding="utf-8").split("\n---\n")
    assert len(documents) == len(GATEWAY_API.files)
    assert documents[0] == f"file: {Path(GATEWAY_API.files[0]).name}\n"


def test_second_call_asks_nobody(go: Go, tmp_path: Path) -> None:
    go.has(tmp_path / "module")
    assert ensure_kinds("gateway-api") == ensure_kinds("gateway-api")
    asked = go.asked.read_text(encoding="utf-8").splitlines()
    assert asked == [f"mod download -json {GATEWAY_API.module}@{GATEWAY_API.version}"]


def test_what_was_kept_of_another_list_of_files_is_not_taken(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go.has(tmp_path / "module")
    before = ensure_kinds("gateway-api")
    fewer = replace(GATEWAY_API, files=GATEWAY_API.files[1:])
    monkeypatch.setattr(thirdparty, "third_parties", lambda: {"gateway-api": fewer})
    assert ensure_kinds("gateway-api").read_text(encoding="utf-8") in before.read_text("utf-8")
    assert ensure_kinds("gateway-api") != before


def test_module_of_another_sum_is_refused_and_not_kept(go: Go, tmp_path: Path) -> None:
    go.says(Dir=str(tmp_path), Sum="h1:another=")
    with pytest.raises(ToolError, match=r"v1\.6\.0 is not the one that was pinned: .*h1:another="):
        ensure_kinds("gateway-api")
    assert kept(tmp_path) == []


@pytest.mark.parametrize("answer", ['{"Error": "no\\nway"}', "", "[}"])
def test_module_that_is_not_to_be_had_is_told_in_one_line(
    go: Go, tmp_path: Path, answer: str
) -> None:
    go.answer.write_text(answer, encoding="utf-8")
    with pytest.raises(ToolError, match=r"gateway-api v1\.6\.0 is not to be had: ") as raised:
        ensure_kinds("gateway-api")
    assert "\n" not in str(raised.value)
    assert kept(tmp_path) == []


def test_file_that_the_module_lacks_is_named_and_nothing_kept(go: Go, tmp_path: Path) -> None:
    go.has(tmp_path / "module", but=GATEWAY_API.files[-1])
    with pytest.raises(ToolError, match=r"lacks gateway\.networking\.k8s\.io_udproutes\.yaml"):
        ensure_kinds("gateway-api")
    assert kept(tmp_path) == []


def test_without_go_the_way_out_is_told(go: Go) -> None:
    go.program.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n", encoding="utf-8")
    with pytest.raises(Missing, match=r"Go 1\.26 or later is needed"):
        ensure_kinds("gateway-api")


def test_unknown_kinds_are_named_with_those_there_are() -> None:
    with pytest.raises(ToolError, match=r"no such kinds: linkerd .there are gateway-api, open"):
        ensure_kinds("linkerd")


def test_the_command_says_where_they_are_and_fails_in_one_line(
    go: Go, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go.says(Error="no way")
    assert main(["kinds", "gateway-api"]) == 1
    assert "error: sigs.k8s.io/gateway-api v1.6.0 is not to be had: no way\n" in (
        capsys.readouterr().err
    )
    go.has(tmp_path / "module")
    assert main(["kinds", "gateway-api"]) == 0
    assert f"gateway-api: {tmp_path}/cache/kube-sync/kinds/" in capsys.readouterr().err
