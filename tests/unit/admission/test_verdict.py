from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube_sync.admission.verdict import parse_ruling
from kube_sync.errors import Undecided

ADMITS = {"allowed": True, "reasons": [], "patch": [], "policies": ["restricted"]}
DENIES = {"allowed": False, "reasons": ["no"], "patch": [], "policies": []}


def _parse(**instead: Any) -> Any:
    return parse_ruling(json.dumps(ADMITS | instead).encode())


def test_a_decision_is_read_whole() -> None:
    patch = [
        {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "1"}},
        {"op": "add", "path": "/spec/nothing", "value": None},
        {"op": "remove", "path": "/spec/priority"},
        {"op": "copy", "path": "/b", "from": "/a"},
    ]
    ruling = _parse(patch=patch)
    assert (ruling.allowed, ruling.policies) == (True, ("restricted",))
    assert msgspec.json.decode(msgspec.json.encode(ruling.patch)) == patch


def test_a_denial_has_its_reasons() -> None:
    assert parse_ruling(json.dumps(DENIES | {"reasons": ["a", "b"]}).encode()).reasons == ("a", "b")


@pytest.mark.parametrize("missing", ["allowed", "reasons", "patch", "policies"])
def test_all_four_have_to_be_there(missing: str) -> None:
    with pytest.raises(Undecided, match="malformed"):
        parse_ruling(json.dumps({k: v for k, v in ADMITS.items() if k != missing}).encode())


@pytest.mark.parametrize(
    "instead",
    [
        {"allowed": "true"},
        {"allowed": 1},
        {"allowed": None},
        {"reasons": "no"},
        {"reasons": [1]},
        {"patch": {}},
        {"patch": [{"op": "put", "path": "/a", "value": 1}]},
        {"patch": [{"op": "add", "path": "a", "value": 1}]},
        {"patch": [{"op": "add", "path": "/a"}]},
        {"patch": [{"op": "remove", "path": "/a", "value": 1}]},
        {"patch": [{"op": "move", "path": "/a"}]},
        {"patch": [{"op": "remove", "path": "/a", "from": "/b"}]},
        {"policies": None},
        {"reasons": ["it admits, and says why not"]},
        {"allowed": False},
    ],
)
def test_what_means_nothing_is_no_decision(instead: dict[str, Any]) -> None:
    with pytest.raises(Undecided, match="malformed"):
        _parse(**instead)


@pytest.mark.parametrize("body", [b"", b"null", b"true", b"[]", b"{", b"[" * 100_000])
def test_what_is_no_object_is_no_decision(body: bytes) -> None:
    with pytest.raises(Undecided, match="malformed"):
        parse_ruling(body)


def test_who_explains_may_give_reasons_where_it_admits_but_must_where_it_denies() -> None:
    told = json.dumps(ADMITS | {"reasons": ["sets a label"]}).encode()
    assert parse_ruling(told, explains=True).reasons == ("sets a label",)
    assert parse_ruling(json.dumps(ADMITS).encode(), explains=True).allowed
    for body in (DENIES | {"reasons": []}, ADMITS | {"reasons": None}):
        with pytest.raises(Undecided):
            parse_ruling(json.dumps(body).encode(), explains=True)
    with pytest.raises(Undecided, match="admits with reasons"):
        parse_ruling(told)
