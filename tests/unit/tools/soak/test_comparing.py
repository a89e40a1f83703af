"""A difference is told from what only changed while it was read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.demo.fleet import PREFERENCES
from tools.soak.comparing import (
    Difference,
    Key,
    State,
    decided_wrongly,
    differences,
    listed_state,
    states,
    versions,
)

KEY: Key = ("shop", "web")
HERE = {PREFERENCES: '{"clusters":{"a":{"weight":1}}}'}
THERE = {PREFERENCES: '{"clusters":{"b":{"weight":1}}}'}


def found(listed: State | None, held: State | None, revision: int = 10) -> list[Difference]:
    return differences({KEY: listed} if listed else {}, {KEY: held} if held else {}, revision)


@pytest.mark.parametrize(
    ("listed", "held"),
    [
        (State(7, "x"), State(7, "x")),
        (State(7, "x"), State(8, "y")),  # changed since
        (None, State(11, "x")),  # created since
        (None, None),
    ],
)
def test_what_is_held_of_that_state_or_a_newer_one_is_no_difference(
    listed: State | None, held: State | None
) -> None:
    assert found(listed, held) == []


@pytest.mark.parametrize(
    ("listed", "held", "what"),
    [
        (State(7, "x"), None, "missing"),
        (State(7, "x"), State(6, "x"), "held as of 6, not 7"),
        (State(7, "x"), State(7, "y"), "held otherwise than it is at 7"),
        (None, State(10, "x"), "deleted, and still held"),
    ],
)
def test_what_is_held_otherwise_is_a_difference(
    listed: State | None, held: State | None, what: str
) -> None:
    assert found(listed, held) == [Difference(KEY, what)]


def item(version: str = "7", **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web", "resourceVersion": version}
    return {"metadata": metadata | {"managedFields": [1]}, **fields}


def test_listed_object_is_compared_with_its_kind_and_without_managed_fields() -> None:
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    metadata = {"namespace": "shop", "name": "web", "resourceVersion": "7"}
    whole = {**kind, "metadata": metadata, "spec": 1}
    assert listed_state(item(spec=1), kind) == State(7, whole)
    assert states({"shop": {"web": whole}}) == {KEY: State(7, whole)}
    assert versions({"shop": {"web": "7"}}) == {KEY: State(7)}


def test_object_that_carries_what_was_told_and_is_decided_afresh_is_right() -> None:
    said = {"annotations": HERE, "errors": []}
    assert decided_wrongly(said, {"annotations": HERE}, {**HERE, "other": "x"}) is None


@pytest.mark.parametrize(
    ("fresh", "told", "has", "what"),
    [
        (HERE, None, HERE, "told no decision"),
        (HERE, THERE, HERE, "stream's annotations"),
        (HERE, HERE, THERE, "not annotated"),
        (HERE, HERE, {}, "not annotated"),
        ({}, {}, HERE, "not annotated"),
    ],
)
def test_one_that_disagrees_is_wrong(
    fresh: dict[str, str], told: dict[str, str] | None, has: dict[str, str], what: str
) -> None:
    decision = None if told is None else {"annotations": told}
    assert what in str(decided_wrongly({"annotations": fresh}, decision, has))


def test_object_without_a_cluster_keeps_what_it_has() -> None:
    refused = {"annotations": {}, "errors": ["no cluster"]}
    assert decided_wrongly(refused, json.loads(json.dumps(refused)), HERE) is None
    assert "errors" in str(decided_wrongly(refused, {"annotations": {}}, HERE))
