"""Objects in files: what counts, and what is said of a file that is wrong."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Misconfigured, Terminal
from kube_sync.kube.manifests import Document, read_files

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


def names(*paths: object) -> list[Any]:
    found = read_files(map(str, paths))
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
    (found,) = read_files([str(file)])
    assert found.object["spec"] == [{"true": 1, "null": 2, "3": {"4.5": 6}}]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    assert names("-") == [("", "Pod", "a")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", r"wrong.yaml: not YAML: .* \(line 2, column 1\)$"),
        ("\x00", "wrong.yaml: not YAML: "),
        ("a: &a [*a]", r"wrong.yaml: a\[0\]: an alias of something that it lies in"),
        ("a: {b: 1, b: 2}", r"wrong.yaml: a.b: this key is here twice \(line 1\)"),
        ('{"a": 1,\n"a": 2}', r"wrong.yaml: a: this key is here twice \(line 2\)"),
        ('{"a": NaN, "b": [.nan]}', r"wrong.yaml: b\[0\]: .nan is not of JSON"),
        (f"{POD}---\na: {{b: 1, b: 2}}", r"wrong.yaml, document 2: a.b: this key is .* \(line 5\)"),
        ("- 1", "wrong.yaml: expected Kubernetes objects, found list"),
        ("kind: List\nitems: [1]", "wrong.yaml, item 1: expected Kubernetes objects, found int"),
        ("!!python/object:os.x {}", "wrong.yaml: python/object:os.x is not of JSON"),
    ],
)
def test_file_that_is_wrong_is_named(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(content)
    with pytest.raises(Terminal, match=said):
        names(file)


def test_document_of_several_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"# first\n{POD}---\n---\n{POD}---\n- 1\n")
    with pytest.raises(Terminal, match=r"all\.yaml, document 4 \(line 11\): expected"):
        read_files([str(file)])
    file.write_text(f"# first\n{POD}---\n---\n{POD}")
    found = read_files([str(file)])
    assert [one.place for one in found] == ["document 1 (line 2)", "document 3 (line 7)"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"none\.yaml: there is no such folder or file"):
        names(tmp_path / "none.yaml")
    with pytest.raises(Misconfigured, match=r": no YAML or JSON file lies in this folder$"):
        names(tmp_path)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(Terminal, match=r"folder\.yaml: Is a directory"):
        names(tmp_path)
    (tmp_path / "a.yaml").write_bytes(b"a: \xff")
    with pytest.raises(Terminal, match=r"a\.yaml: not UTF-8 at byte 3"):
        names(tmp_path / "a.yaml")


def test_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.json")
    for path in (tmp_path / name, tmp_path):
        (tmp_path / name).write_text("{}")
        with pytest.raises(Misconfigured, match=r"\.json: its name is not UTF-8$"):
            read_files([str(path)])


def test_pairs_of_surrogates_are_one_character_and_half_of_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"kind": "Pod", "metadata": {"name": "\U0001f600"}}))
    assert names(file) == [("", "Pod", "\U0001f600")]
    file.write_text(r'{"kind": "Pod", "metadata": {"name": "\ud83d"}}')
    with pytest.raises(Terminal, match=r"a\.json: not YAML: "):
        names(file)


def test_only_the_wanted_files_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "b.yaml").write_text("a: [")
    found = read_files([str(tmp_path)], wanted=lambda file: file.name == "a.yaml")
    assert [one.file for one in found] == [str(tmp_path / "a.yaml")]


def test_lists_are_documents_and_other_values_nothing_where_others_are_passed_over(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.yaml").write_text("[1]\n--- text\n---\na: 1\n")
    found = read_files([str(tmp_path)], objects_only=False)
    assert [one.object for one in found] == [{"items": [1]}, {"a": 1}]


def test_object_is_where_it_says_or_where_it_is_asked_for() -> None:
    named = Document("f", {"kind": "Pod", "metadata": {"name": "a", "namespace": "own"}})
    assert (named.name(), named.namespace(None), named.namespace("own")) == ("a", "own", "own")
    with pytest.raises(Misconfigured, match=r"^f: Pod a is in namespace own, not in other$"):
        named.namespace("other")
    bare = Document("f", {"kind": "Pod"}, "item 2")
    assert (bare.namespace(None), bare.namespace("other")) == ("default", "other")
    with pytest.raises(Misconfigured, match=r"^f, item 2: a Pod without metadata\.name$"):
        bare.name()
