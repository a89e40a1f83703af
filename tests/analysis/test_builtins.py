"""What is said of builtins, against OPA's own account of them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from kube_sync.opa.analysis import builtins
from tools.servers.binaries import ensure_binary

_SCALARS = {"string", "number", "boolean", "null"}


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    command = [str(ensure_binary("opa")), "capabilities", "--current"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {builtin["name"]: builtin for builtin in answer["builtins"]}


def test_every_builtin_that_changes_by_itself_is_known(declared: dict[str, Any]) -> None:
    changing = {name for name, builtin in declared.items() if builtin.get("nondeterministic")}
    assert changing == builtins.IMPURE


def test_only_walk_has_many_answers(declared: dict[str, Any]) -> None:
    assert [name for name, builtin in declared.items() if builtin.get("relation")] == ["walk"]


def test_builtins_have_as_many_arguments_as_opa_says(declared: dict[str, Any]) -> None:
    for name, count in {**builtins.SCALAR, **builtins.PARTIAL}.items():
        assert len(declared[name]["decl"]["args"]) == count, name


def test_builtins_of_scalars_take_no_others(declared: dict[str, Any]) -> None:
    """But for tests of a type, which look at nothing else."""
    for name in builtins.SCALAR:
        if not name.startswith("is_") and name != "type_name":
            assert all(_scalar(kind) for kind in declared[name]["decl"]["args"]), name


def _scalar(kind: Any) -> bool:
    return kind["type"] in _SCALARS or all(map(_scalar, kind.get("of", [{"type": "object"}])))
