from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Resource
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.inspect.survey.exported import Exported, read_objects

REPLICASETS = Resource("apps", "v1", "replicasets")
NODES = Resource("", "v1", "nodes", "machines")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
RESOURCES = (REPLICASETS, NODES, POLICIES)


def one(kind: str, version: str, name: str, **metadata: str) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


WEB = one("ReplicaSet", "apps/v1", "web", namespace="shop")
NODE = one("Node", "v1", "n1")
FENCE = one("NetworkPolicy", "networking.k8s.io/v1", "fence", namespace="shop")


def exported(folder: Path, text: str) -> Exported:
    (folder / "objects").write_text(text, encoding="utf-8")
    return read_objects(str(folder / "objects"))


def names(found: Exported) -> list[tuple[str, str]]:
    return [(name, value["metadata"]["name"]) for name, value, _ in found.of(RESOURCES)]


ALL = [("replicasets", "web"), ("machines", "n1"), ("networkpolicies", "fence")]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize(
    "whole", [[WEB, NODE, FENCE], {"kind": "List", "apiVersion": "v1", "items": [WEB, NODE, FENCE]}]
)
def test_lists_are_read_and_sizes_are_those_of_compact_json(
    tmp_path: Path, whole: Any, indent: int | None
) -> None:
    found = exported(tmp_path, json.dumps(whole, indent=indent))
    assert names(found) == ALL
    (_, _, size), *_ = found.of(RESOURCES)
    assert size == len(json.dumps(WEB, separators=(",", ":")))


def test_one_object_a_line_is_read_and_empty_lines_are_none(tmp_path: Path) -> None:
    lines = "\n\n".join(json.dumps(found) for found in (WEB, NODE, FENCE))
    assert names(exported(tmp_path, lines + "\n")) == ALL


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_is_read(tmp_path: Path, indent: int | None) -> None:
    assert names(exported(tmp_path, json.dumps(WEB, indent=indent))) == [ALL[0]]


def test_items_of_a_raw_list_are_of_the_kind_that_the_list_names(tmp_path: Path) -> None:
    """As `kubectl get --raw` prints a built-in kind."""
    item = {"metadata": {"name": "web"}}
    whole = {"kind": "ReplicaSetList", "apiVersion": "apps/v1", "items": [item]}
    ((_, value, _),) = exported(tmp_path, json.dumps(whole)).of(RESOURCES)
    assert value == item | {"kind": "ReplicaSet", "apiVersion": "apps/v1"}


def test_nothing_is_read_of_an_empty_file(tmp_path: Path) -> None:
    assert names(exported(tmp_path, "")) == []


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps([WEB]).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    found = read_objects("-")
    assert (found.file, names(found)) == ("standard input", [ALL[0]])


def test_object_counts_for_each_resource_that_it_is_of(tmp_path: Path) -> None:
    twice = (REPLICASETS, Resource("apps", "v1", "replicasets", "again"))
    found = exported(tmp_path, json.dumps([WEB]))
    assert [name for name, _, _ in found.of(twice)] == ["replicasets", "again"]


def test_other_versions_and_kinds_are_strangers_by_number(tmp_path: Path) -> None:
    old = one("ReplicaSet", "apps/v1beta1", "old")
    found = exported(tmp_path, json.dumps([WEB, old, old]))
    assert found.unknown_kinds(RESOURCES) == {"apps/v1beta1 ReplicaSet": 2}


def test_objects_tell_whether_they_lie_in_namespaces(tmp_path: Path) -> None:
    found = exported(tmp_path, json.dumps([WEB, NODE]))
    assert [found.namespaced(resource) for resource in RESOURCES] == [True, False, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "objects, line 1: not a Kubernetes object"),
        ("[1", "objects: not a JSON list, a Kubernetes List, or one object a line"),
        ('[{"metadata":{"name":"a"}},{"metadata":{}}]', r"objects, item 2: .*`name`"),
        ('{"items":[{"metadata":1}]}', "objects, item 1: "),
        ('[{"metadata":{"name":"a","uid":5}}]', r"objects, item 1: .*`\$\.metadata\.uid`"),
        ('{"metadata":{"name":"a"}}\n{"metadata"', "objects, line 2: "),
    ],
)
def test_what_is_wrong_is_said_with_file_and_number(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Terminal, match=said):
        exported(tmp_path, text)


def test_object_that_is_nested_too_deeply_is_said_to_be(tmp_path: Path) -> None:
    deep = json.dumps(WEB)[:-1] + ',"spec":' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(Terminal, match="objects"):
        list(exported(tmp_path, deep).of(RESOURCES))


def test_object_that_is_no_text_where_nobody_looked_is_named(tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(json.dumps(WEB)[:-1].encode() + b',"spec":"\xff"}')
    with pytest.raises(Terminal, match=r"objects, web: not JSON: .*utf-8"):
        list(read_objects(str(tmp_path / "objects")).of(RESOURCES))


def test_file_that_is_not_there_is_a_wrong_command_line(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="gone: there is no such file"):
        read_objects(str(tmp_path / "gone"))


def test_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="Is a directory"):
        read_objects(str(tmp_path))
