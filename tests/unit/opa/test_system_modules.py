from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.opa.system_modules import builtin_modules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What rego/kube_sync looks like: two systems, one that both use, the tests beside them."""
    for name, source in {
        "scheduling/decision.rego": (
            "package kube_sync.scheduling\n\n"
            "import data.kube_sync.jsonpatch\n\n"
            "decision := jsonpatch.pointer(data.kube_sync.config.scheduling)\n"
        ),
        "scheduling/use/use.rego": "package kube_sync.scheduling.use\n",
        "scheduling/use/use_test.rego": "package kube_sync.scheduling.use_test\n",
        "jsonpatch/jsonpatch.rego": "package kube_sync.jsonpatch\n\nx := data.kube_sync.text.y\n",
        "text/text.rego": "package kube_sync.text\n",
        "metadata/metadata.rego": "package kube_sync.metadata\n\nimport data.kube_sync.jsonpatch\n",
        "README.md": "no module",
        "stray.rego": "package kube_sync\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return tmp_path


def test_a_system_comes_with_what_its_modules_name_of_others(folder: Path) -> None:
    assert list(builtin_modules(["scheduling"], folder)) == [
        "kube_sync/jsonpatch/jsonpatch.rego",
        "kube_sync/scheduling/decision.rego",
        "kube_sync/scheduling/use.use.rego",
        "kube_sync/text/text.rego",
    ]


def test_what_several_systems_share_comes_once(folder: Path) -> None:
    both = builtin_modules(["scheduling", "metadata"], folder)
    assert set(both) == {
        *builtin_modules(["scheduling"], folder),
        *builtin_modules(["metadata"], folder),
    }


def test_a_module_is_what_its_file_holds(folder: Path) -> None:
    source = (folder / "text/text.rego").read_text(encoding="utf-8")
    assert builtin_modules(["text"], folder) == {"kube_sync/text/text.rego": source}


def test_the_tests_beside_the_rules_stay_behind(folder: Path) -> None:
    assert not [i for i in builtin_modules(["scheduling"], folder) if "_test" in i]


def test_no_system_is_no_module(folder: Path) -> None:
    assert builtin_modules([], folder) == {}


def test_a_system_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(Misconfigured, match='no modules of "quality" in this installation'):
        builtin_modules(["quality"], folder)


def test_a_folder_that_is_not_there_holds_no_system(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="scheduling"):
        builtin_modules(["scheduling"], tmp_path / "gone")
