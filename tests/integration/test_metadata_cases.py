"""The worked cases of MetadataPolicy and quality of service on a real OPA."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.rego import RegoOpa, rego_opa
from tools.servers.running import Launcher

_CASES = Path(__file__).resolve().parents[1] / "cases/policy_cases.json"
CASES = [case for case in json.loads(_CASES.read_text()) if case["system"] in ("metadata", "qos")]


@pytest.fixture(scope="module")
def opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegoOpa]:
    with rego_opa(launcher, tmp_path_factory.mktemp("opa")) as opa:
        yield opa


def request(case: dict[str, Any], found: dict[str, Any] | None) -> dict[str, Any]:
    shown = found or case["old_object"]  # of a deletion
    group, _, version = shown["apiVersion"].rpartition("/")
    name = shown["metadata"].get("name", "")
    # Of a Namespace the API server says that it is in itself.
    own = name if shown["kind"] == "Namespace" else ""
    return {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": shown["kind"]},
        "operation": case["operation"],
        "name": name,
        "namespace": shown["metadata"].get("namespace", own),
        "userInfo": case["user"],
        "object": found,
        "oldObject": case.get("old_object"),
    }


def segments(pointer: str) -> list[str]:
    return [s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:]]


def patched(found: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply a patch of adds to maps, strictly: what lies above a path must be there."""
    result = copy.deepcopy(found)
    for operation in patch:
        assert operation["op"] == "add"
        *above, key = segments(operation["path"])
        target = result
        for segment in above:
            target = target[segment]
        target[key] = operation["value"]
    return result


def at(found: dict[str, Any], pointer: str) -> Any:
    value: Any = found
    for segment in segments(pointer):
        value = value[segment]
    return value


def is_there(found: dict[str, Any], pointer: str) -> bool:
    try:
        at(found, pointer)
    except (KeyError, TypeError):
        return False
    return True


def decision(case: dict[str, Any]) -> str:
    if len(case.get("pipeline", ())) > 1:
        return "kube_sync.metadata.pipeline"
    return f"kube_sync.{case['system']}.decision"


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case_is_decided_as_expected(opa: RegoOpa, case: dict[str, Any]) -> None:
    opa.policies(*case["policies"])
    expected = case["expected"]
    answer = opa.ask(decision(case), request(case, case["object"]))
    assert answer["allowed"] is expected["allowed"]
    result = patched(case["object"], answer["patch"])
    if expected.get("unmutated") or not answer["allowed"]:
        assert answer["patch"] == []
    for pointer, value in expected.get("mutated", {}).items():
        assert at(result, pointer) == value
    for pointer, values in expected.get("mutated_one_of", {}).items():
        assert at(result, pointer) in values
    for pointer, values in expected.get("mutated_unordered", {}).items():
        assert sorted(at(result, pointer)) == sorted(values)
    for pointer in expected.get("absent", ()):
        assert not is_there(result, pointer)
    for text in expected.get("reasons_contain", ()):
        assert any(text.lower() in reason.lower() for reason in answer["reasons"])


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_second_pass_over_a_case_changes_nothing(opa: RegoOpa, case: dict[str, Any]) -> None:
    opa.policies(*case["policies"])
    first = opa.ask(decision(case), request(case, case["object"]))
    # Its own default and its own prohibition: what was written is refused when it comes again.
    again = request(case, patched(case["object"], first["patch"]))
    assert opa.ask(decision(case), again)["patch"] == []
