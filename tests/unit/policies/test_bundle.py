from __future__ import annotations

import io
import json
import tarfile

from kube_sync.policies.bundle import build, digest, roots
from kube_sync.regoversion import in_version


def content(body: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_bundle_holds_the_modules_and_their_packages_as_roots() -> None:
    modules = {"ns/p/a.rego": "package a.b", "ns/p/policy": "package c"}
    bundle = build(modules, {"ns/p/a.rego": ("a", "b"), "ns/p/policy": ("c",)})
    files = content(bundle.body)
    manifest = json.loads(files.pop("/.manifest"))
    assert manifest == {"revision": bundle.revision, "roots": ["a/b", "c"], "rego_version": 1}
    # OPA takes files of no other name for Rego.
    assert files == {"/ns/p/a.rego": "package a.b", "/ns/p/policy.rego": "package c"}
    assert bundle.etag == f'"{bundle.revision}"'


def test_same_set_is_the_same_bytes() -> None:
    packages = {"a": ("a",), "b": ("b",)}
    assert build({"a": "1", "b": "2"}, packages) == build({"b": "2", "a": "1"}, packages)


def test_package_within_another_is_no_root_of_its_own() -> None:
    packages = [("a", "b"), ("a",), ("ab",), ("a", "b", "c"), ("b", "c"), ("b", "d")]
    assert roots(packages) == [("a",), ("ab",), ("b", "c"), ("b", "d")]


def test_digest_does_not_depend_on_the_order() -> None:
    assert digest({"a": "1", "b": None}) == digest({"b": None, "a": "1"})
    assert digest({"a": "1"}) != digest({"a": "2"})


def test_manifest_names_the_files_of_rego_v0_and_the_version_of_all_others() -> None:
    modules = {"ns/p/a.rego": in_version("package a", 0), "ns/p/policy": "package c"}
    bundle = build(modules, {"ns/p/a.rego": ("a",), "ns/p/policy": ("c",)})
    manifest = json.loads(content(bundle.body)["/.manifest"])
    assert manifest["file_rego_versions"] == {"/ns/p/a.rego": 0}
    assert manifest["rego_version"] == 1


def test_another_version_of_rego_is_another_set() -> None:
    assert digest({"a": "package a"}) != digest({"a": in_version("package a", 0)})
