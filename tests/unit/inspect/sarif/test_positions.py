from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.inspect.sarif.positions import Position, Positions

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: placement, namespace: policies}
data:
  other.rego: package b
  policy.rego: |
    package a

    errors contains "no"
---
apiVersion: policy.kube-sync.io/v1alpha1
kind: PlacementPolicy
metadata: {name: placement, namespace: policies}
spec:
  modules:
    - name: policy.rego
      rego: |-
        package c
        x := 1
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policies").mkdir()
    Path("policies/a b.rego").write_text("package a\n\nx := 1\n")
    Path("all.yaml").write_text(MANIFEST)


def test_row_of_a_file_is_the_whole_row() -> None:
    assert Positions().find("./policies/a b.rego", 3) == Position("policies/a%20b.rego", 3, 6)


@pytest.mark.parametrize(("row", "shown"), [(0, 1), (99, 3)])
def test_row_that_is_not_there_is_shown_at_one_that_is(row: int, shown: int) -> None:
    found = Positions().find("policies/a b.rego", row)
    assert found is not None
    assert found.row == shown


def test_absolute_name_below_the_working_directory_is_relative(tmp_path: Path) -> None:
    found = Positions().find(str(tmp_path / "all.yaml"), 1)
    assert found is not None
    assert found.uri == "all.yaml"


def test_file_elsewhere_has_a_whole_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "policies")
    found = Positions().find("../all.yaml", 1)
    assert found is not None
    assert found.uri == (tmp_path / "all.yaml").as_uri()


@pytest.mark.parametrize("name", ["policies", "gone.rego", "policies/placement/policy.rego", "\0"])
def test_what_is_no_file_has_no_position(name: str) -> None:
    assert Positions().find(name, 1) is None


@pytest.mark.parametrize(
    ("module", "row", "shown"),
    [
        ("policies/placement/policy.rego", 3, 9),
        ("policies/placement/other.rego", 1, 5),  # not a block: its row is that of the key
        ("policies/placement.PlacementPolicy/policy.rego", 2, 19),
    ],
)
def test_row_in_a_manifest_is_that_of_the_manifest(module: str, row: int, shown: int) -> None:
    found = Positions().find(f"all.yaml ({module})", row)
    assert found is not None
    assert found.row == shown


def test_module_of_a_list_is_found_and_by_the_name_that_it_stands_for() -> None:
    Path("list.yaml").write_text(
        "kind: List\nitems:\n  - metadata: {name: placement-candidate}\n    data:\n"
        "      policy.rego: |\n        package a\n        x := 1\n"
    )
    found = Positions().find("list.yaml (policies/placement/policy.rego)", 2)
    assert found is not None
    assert found.row == 7


@pytest.mark.parametrize("text", ["a: [", "a: 1", "- 1\n- 2"])
def test_module_that_is_not_found_is_shown_at_the_first_row(text: str) -> None:
    Path("odd.yaml").write_text(text)
    found = Positions().find("odd.yaml (policies/placement/policy.rego)", 2)
    assert found is not None
    assert found.row == 1
