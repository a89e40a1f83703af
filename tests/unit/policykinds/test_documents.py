"""Objects in files: what counts, and what is said of a file that is wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.policykinds.documents import read_files

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def names(*paths: object) -> list[Any]:
    found = read_files(map(str, paths), "--filename")
    return [(one.api_group, one.kind, one.metadata.get("name")) for one in found]


def test_several_documents_and_empty_ones(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"---\n---\n{POD}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: []\n")
    assert names(file) == [("", "Pod", "a"), ("apps", "Deployment", None)]


def test_json_and_lists_of_any_kind(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(
        '{"kind":"List","apiVersion":"v1","items":[{"kind":"RoleList","apiVersion":"g/v1",'
        '"items":[{"metadata":{"name":"r"}}]},{"kind":"Pod","apiVersion":"v1"}]}'
    )
    assert names(file) == [("g", "Role", "r"), ("", "Pod", None)]


def test_folder_is_read_whole_but_for_what_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data/x.yaml").write_text(POD)
    (tmp_path / "sub/b.yml").write_text(POD.replace("a}", "b}"))
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "README.md").write_text("not: [YAML")
    assert names(tmp_path) == [("", "Pod", "a"), ("", "Pod", "b")]


def test_keys_are_text_as_kubectl_makes_them(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("kind: Pod\nspec: [{yes: 1, null: 2, 3: {4.5: 6}}]")
    (found,) = read_files([str(file)], "--filename")
    assert found.object["spec"] == [{"true": 1, "null": 2, "3": {"4.5": 6}}]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(POD))
    assert names("-") == [("", "Pod", "a")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "wrong.yaml: neither YAML nor JSON: "),
        ("\x00", "wrong.yaml: neither YAML nor JSON: "),
        ("a: &a [*a]", "wrong.yaml: neither YAML nor JSON: "),
        ("- 1", "wrong.yaml: expected Kubernetes objects, found list"),
        ("kind: List\nitems: [1]", "wrong.yaml, item 1: expected Kubernetes objects, found int"),
        ("!!python/object:os.x {}", "wrong.yaml: neither YAML nor JSON: "),
    ],
)
def test_file_that_is_wrong_is_named(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(content)
    with pytest.raises(Misconfigured, match=said):
        names(file)


def test_document_of_several_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"# first\n{POD}---\n---\n{POD}---\n- 1\n")
    with pytest.raises(Misconfigured, match=r"all\.yaml, document 4 \(line 11\): expected"):
        read_files([str(file)], "--filename")
    file.write_text(f"# first\n{POD}---\n---\n{POD}")
    found = read_files([str(file)], "--filename")
    assert [one.place for one in found] == ["document 1 (line 2)", "document 3 (line 7)"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"none\.yaml: No such file"):
        names(tmp_path / "none.yaml")
    with pytest.raises(Misconfigured, match=r"^--filename: .*: no YAML or JSON file lies"):
        names(tmp_path)
