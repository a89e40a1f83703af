from __future__ import annotations

import pytest

from kube_sync.opa.modules import file_of, files_of, same_files


@pytest.mark.parametrize(
    ("policy_id", "file"),
    [
        ("policies/p/a.rego", "policies/p/a.rego"),
        ("policies/p/a", "policies/p/a.rego"),
        ("policies/p/ä b.rego", "policies/p/__b.rego"),
        ("../../etc/a.rego", "_../_../etc/a.rego"),
        ("/a//b.rego", "_/a/_/b.rego"),
    ],
)
def test_file_is_relative_below_its_folder_and_of_rego(policy_id: str, file: str) -> None:
    assert file_of(policy_id) == file


def test_long_names_are_files_of_their_own() -> None:
    names = [f"kube_sync_stage/shadow/ns__{'c' * 253}__{'a' * 240}{n}.rego" for n in range(2)]
    files = {file_of(name).rpartition("/")[2] for name in names}
    assert len(files) == 2
    assert all(len(file) <= 255 and file.endswith(".rego") for file in files)


def test_modules_of_one_file_are_paired_with_the_first_of_them() -> None:
    assert same_files(dict.fromkeys(["b", "a b", "a.rego", "a_b", "a"], "")) == [
        ("a", "a.rego"),
        ("a b", "a_b"),
    ]


def test_only_modules_of_rego_v0_need_a_manifest() -> None:
    assert files_of({"p/a": "package a"}) == {"p/a.rego": b"package a"}
    files = files_of({"p/a": "# kube-sync.io/rego-version: 0\npackage a"})
    assert files.keys() == {"p/a.rego", ".manifest"}
