"""A write of the status that changes labels and annotations, as it is judged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube_sync.admission.decision_client import Admitted
from kube_sync.admission.outcome import placed, still_placed
from kube_sync.admission.review import Malformed, Review, parse_review
from kube_sync.admission.statuswrite import as_update, changed
from kube_sync.config import Admission
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision
from kube_sync.decisions.sealing import Seals
from kube_sync.guard import ADDITION, HISTORY
from tests.fakes.reviews import Json, body, operations, patched, resource, response

OLD = {
    PLACEMENT: "eu",
    REQUESTED: '{"danger":null}',
    HISTORY: "h",
    ADDITION: "a",
    "danger": "decided",
}


def status(new: Json, old: Json) -> Review:
    return parse_review(body(new, operation="UPDATE", oldObject=old, subResource="status"))


@pytest.mark.parametrize(
    ("change", "restored"),
    [
        ({PLACEMENT: "moon"}, {PLACEMENT: "eu"}),
        ({REQUESTED: "{}"}, {REQUESTED: OLD[REQUESTED]}),
        ({HISTORY: "[]"}, {HISTORY: "h"}),
        ({ADDITION: "{}"}, {ADDITION: "a"}),
        ({"danger": "true"}, {"danger": "decided"}),
        ({"other": "1"}, {}),
    ],
)
def test_only_annotations_of_placement_are_put_back(
    change: dict[str, str], restored: dict[str, str]
) -> None:
    review = status(resource(OLD | change), resource(OLD))
    assert changed(review) == restored
    answer = placed(review, Admitted(Decision()), Admission(), Seals())
    kept = patched(resource(OLD | change), operations(found := response(answer.body)))
    assert kept["metadata"]["annotations"] == OLD | change | restored
    assert found.get("warnings", []) == [
        f"annotation {key}: no status write changes it, it is kept" for key in restored
    ]


def test_annotations_that_are_removed_all_at_once_come_back_and_new_ones_go() -> None:
    review = status(resource(None), resource(OLD))
    answer = placed(review, Admitted(Decision()), Admission(), Seals())
    kept = patched(resource(None), operations(response(answer.body)))
    assert kept["metadata"]["annotations"] == OLD
    review = status(resource(OLD), resource(None))
    assert changed(review) == {PLACEMENT: None, REQUESTED: None, HISTORY: None, ADDITION: None}


def test_a_status_write_is_refused_where_changes_of_placement_are() -> None:
    review = status(resource(OLD | {PLACEMENT: "moon"}), resource(OLD))
    answer = placed(review, Admitted(Decision()), Admission(owned="deny"), Seals())
    assert (answer.name, response(answer.body)["allowed"]) == ("denied", False)
    assert PLACEMENT in (answer.refusal or "")
    allowed = status(resource(OLD | {"other": "1"}), resource(OLD))
    answer = placed(allowed, Admitted(Decision()), Admission(owned="deny"), Seals())
    assert answer.name == "admitted"


def test_what_another_webhook_changes_through_a_status_write_is_refused() -> None:
    review = status(resource(OLD | {PLACEMENT: "moon"}), resource(OLD))
    answer = still_placed(review, Admitted(Decision()), Admission(), Seals())
    assert (answer.name, PLACEMENT in (answer.refusal or "")) == ("denied", True)
    review = status(resource(OLD | {"other": "1"}), resource(OLD))
    assert still_placed(review, Admitted(Decision()), Admission(), Seals()).name == "admitted"


def test_a_status_write_is_judged_as_an_update_of_labels_and_annotations_alone() -> None:
    old: dict[str, Any] = resource({"a": "1"}, {"l": "1"})
    new = resource({"a": "2"}, None)
    new["metadata"] |= {"finalizers": ["x/y"], "name": "forged"}
    new["spec"] = {"replicas": 99}
    found = as_update(status(new, old))
    assert found.subresource == ""
    seen = json.loads(bytes(found.object))
    assert seen == {**old, "metadata": {"name": "web", "annotations": {"a": "2"}}}
    request = json.loads(bytes(found.request))
    assert (request["object"], "subResource" in request) == (seen, False)
    assert json.loads(bytes(found.old_object)) == old == request["oldObject"]


def test_other_writes_are_judged_as_they_are() -> None:
    review = msgspec.structs.replace(status(resource({}), resource({})), subresource="")
    assert as_update(review) is review


@pytest.mark.parametrize("old", [None, 1, {}])
def test_a_status_write_without_its_object_is_malformed(old: Any) -> None:
    review = status(resource({}), resource({}))
    broken = msgspec.structs.replace(review, old_object=msgspec.Raw(msgspec.json.encode(old)))
    with pytest.raises(Malformed, match="a write of the status"):
        as_update(broken)
