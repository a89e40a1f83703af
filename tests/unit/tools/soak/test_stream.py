"""What a reader of the stream knows, over connections that break."""

from __future__ import annotations

import json
from typing import Any

from tools.soak.stream import Told

KEY = ("shop", "web")


def line(kind: str, **fields: Any) -> bytes:
    about = {"object": {"namespace": KEY[0], "name": KEY[1]}} if kind != "bookmark" else {}
    return json.dumps({"type": kind, **about, **fields}).encode() + b"\n"


def told() -> Told:
    found = Told()
    found.begin()
    found.take(line("decision", decision={"annotations": {"a": "1"}}))
    found.take(line("bookmark"))
    return found


def test_latest_decision_is_known() -> None:
    found = told()
    found.take(line("decision", decision={"annotations": {"a": "2"}}))
    assert found.decision(KEY) == {"annotations": {"a": "2"}}


def test_deleted_object_has_no_decision() -> None:
    found = told()
    found.take(line("deleted"))
    assert found.decision(KEY) is None
    assert found.keys == frozenset()


def test_what_a_new_connection_does_not_tell_is_gone_once_it_has_told_all() -> None:
    found = told()
    found.begin()
    assert found.keys == {KEY}
    found.take(line("bookmark"))
    assert found.keys == frozenset()


def test_reasons_to_hold_are_known() -> None:
    found = told()
    found.take(line("status", held=["OPA is being loaded"]))
    assert found.held == ("OPA is being loaded",)
