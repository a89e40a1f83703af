from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured, Terminal
from kube_sync.inspect.survey.sources import by_folder, read_sources


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")


def test_folders_are_read_to_the_bottom_without_tests_and_other_files(tmp_path: Path) -> None:
    write(tmp_path, "a.rego", "a_test.rego", "b/c/d.rego", "b/data.json")
    found = read_sources([str(tmp_path)])
    assert found == {str(tmp_path / n): n for n in ("a.rego", "b/c/d.rego")}


def test_hidden_folders_of_a_mounted_configmap_are_no_second_copy(tmp_path: Path) -> None:
    write(tmp_path, "..2026_01_01/p.rego")
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "p.rego").symlink_to("..data/p.rego")
    assert list(read_sources([str(tmp_path)])) == [str(tmp_path / "p.rego")]


def test_file_that_is_named_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, "a_test.rego")
    assert list(read_sources([str(tmp_path / "a_test.rego")])) == [str(tmp_path / "a_test.rego")]


def test_paths_that_overlap_give_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "x/a.rego")
    monkeypatch.chdir(tmp_path)
    assert list(read_sources(["x/", "./x/a.rego", "."])) == ["x/a.rego"]


def test_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"gone: there is no such folder or file"):
        read_sources([str(tmp_path / "gone")])


def test_folder_without_policies_is_a_mistake_and_not_an_empty_answer(tmp_path: Path) -> None:
    write(tmp_path, "a_test.rego")
    with pytest.raises(Misconfigured, match="no policy"):
        read_sources([str(tmp_path)])


def test_file_that_is_no_text_is_named_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.rego").write_bytes(b"package \xff")
    with pytest.raises(Terminal, match=r"a\.rego: not UTF-8 at byte 8"):
        read_sources([str(tmp_path)])


def test_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "a.rego"))
        with pytest.raises(Terminal, match=r"a\.rego: No such device or address"):
            read_sources([str(tmp_path / "a.rego")])


def test_modules_are_grouped_by_the_folder_that_holds_them() -> None:
    sources = {"p/a.rego": "1", "p/q/b.rego": "2", "p/c.rego": "3", "d.rego": "4"}
    assert by_folder(sources) == {
        "p": {"p/a.rego": "1", "p/c.rego": "3"},
        "p/q": {"p/q/b.rego": "2"},
        ".": {"d.rego": "4"},
    }
