from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tools.soak.classes.judging import UNDECIDED
from tools.soak.classes.witness import of_opa, of_webhook

PLACE, TEAM = "soak.example.com/place", "soak.example.com/team"


def allowed(*operations: dict[str, Any]) -> dict[str, Any]:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"uid": "u", "allowed": True, "patchType": "JSONPatch", "patch": patch}


def denied(code: int, message: str) -> dict[str, Any]:
    return {"uid": "u", "allowed": False, "status": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("decision", "response"),
    [
        (
            {"annotations": {PLACE: "a", TEAM: "b"}, "errors": []},
            allowed(
                {
                    "op": "add",
                    "path": "/metadata/annotations/soak.example.com~1place",
                    "value": "a",
                },
                {"op": "add", "path": "/metadata/annotations/soak.example.com~1team", "value": "b"},
                {"op": "add", "path": "/metadata/annotations/kube-sync.io~1requested", "value": ""},
                {"op": "add", "path": "/metadata/labels/app", "value": "web"},
            ),
        ),
        (
            {"annotations": {PLACE: "a"}},
            allowed({"op": "add", "path": "/metadata/annotations", "value": {PLACE: "a"}}),
        ),
        ({"annotations": {PLACE: "a"}, "errors": ["y", "x"]}, denied(403, "x; y")),
    ],
)
def test_same_decision_of_opa_and_webhook_has_the_same_text(
    decision: dict[str, Any], response: dict[str, Any]
) -> None:
    assert of_opa({"result": decision}) == of_webhook(response) != UNDECIDED


@pytest.mark.parametrize(
    ("decision", "response"),
    [
        ({"annotations": {PLACE: "a"}}, allowed()),
        (
            {"annotations": {PLACE: "a"}},
            allowed({"op": "add", "path": "/metadata/annotations", "value": {PLACE: "b"}}),
        ),
        ({"errors": ["x"]}, denied(403, "y")),
        ({"errors": ["x"]}, denied(503, "x")),
    ],
)
def test_other_decision_has_another_text(
    decision: dict[str, Any], response: dict[str, Any]
) -> None:
    assert of_opa({"result": decision}) != of_webhook(response)


def test_no_decision_is_none() -> None:
    assert of_opa({}) == UNDECIDED
    assert of_webhook({"uid": "u", "allowed": True}) == UNDECIDED
    assert of_webhook(denied(503, "there is a placement policy, but no decision of it")) == ""
