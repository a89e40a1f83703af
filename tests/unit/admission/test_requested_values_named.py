from __future__ import annotations

import json

import pytest

from kube_sync.admission.requested_values import asked, named
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import REQUESTED
from tests.fakes.reviews import Json, resource, update

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NOTED = {"a": "1", REQUESTED: '{"a":"mine"}'}


def _applied(**annotations: str) -> dict[str, str]:
    return {LAST_APPLIED: json.dumps({"metadata": {"annotations": annotations}})}


def _owned(*keys: str, manager: str = "me", operation: str = "Apply") -> Json:
    fields: Json = {
        "f:metadata": {"f:annotations": {"." if key == "." else f"f:{key}": {} for key in keys}}
    }
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    found = resource(NOTED)
    found["metadata"]["managedFields"] = [{"manager": "x", "operation": "Update"}, entry]
    return found


def _kubectl(new: dict[str, str], old: dict[str, str]) -> Review:
    return update(resource(NOTED | new), resource(NOTED | old))


def test_a_manifest_that_now_says_what_stands_there_asks_for_it() -> None:
    review = _kubectl(_applied(a="1"), _applied(a="mine"))
    assert named(review) == {"a"}
    assert (asked(review, "").annotations["a"], asked(review, "").noted) == ("1", {})


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (_applied(a="1"), _applied(a="1")),
        (_applied(a="mine"), _applied(a="mine")),
        (_applied(a="other"), _applied(a="mine")),  # and somebody else changed it since
        (_applied(), _applied(a="1")),
        ({}, _applied(a="1")),
        ({}, {}),
        ({LAST_APPLIED: "{"}, {}),
        ({LAST_APPLIED: "{}"}, {}),
        ({LAST_APPLIED: '{"metadata":{"annotations":null}}'}, {}),
        ({LAST_APPLIED: "[" * 100_000}, {}),
    ],
)
def test_a_manifest_that_says_nothing_new_of_what_stands_there_asks_for_nothing(
    new: dict[str, str], old: dict[str, str]
) -> None:
    review = _kubectl(new, old)
    assert named(review) == set()
    assert asked(review, "").annotations["a"] == "mine"


def test_a_field_manager_that_begins_to_own_a_key_asks_for_it() -> None:
    review = update(_owned("a", "."), resource(NOTED))
    assert "a" in named(review)
    assert asked(review, "").annotations["a"] == "1"


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (_owned("a"), _owned("a")),
        (_owned("b"), _owned("b")),
        (resource(NOTED), _owned("a")),
        (_owned("a", operation="Update"), resource(NOTED)),
        (_owned("a", manager="kube-sync-remediator"), resource(NOTED)),
        (resource(NOTED) | {"metadata": {"annotations": NOTED, "managedFields": 1}}, _owned("a")),
        (_owned(), resource(NOTED)),
    ],
)
def test_who_owns_what_before_asks_for_nothing(new: Json, old: Json) -> None:
    review = update(new, old)
    assert named(review) == set()
    assert asked(review, "").annotations["a"] == "mine"
