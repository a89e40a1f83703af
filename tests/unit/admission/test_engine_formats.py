from __future__ import annotations

import json

import msgspec
import pytest

from kube_sync.admission.engine_errors import Failed
from kube_sync.admission.engine_formats import DIALECTS, Answer
from kube_sync.decisions.decision import REQUESTED
from tests.fakes.engine import WEB, review

SEEN = msgspec.Raw(b'{"metadata":{"name":"as asked for"}}')


@pytest.mark.parametrize(
    ("dialect", "body"),
    [("v1", {"input": WEB}), ("v0", WEB), ("annotations", {"input": WEB})],
)
def test_the_resource_is_asked_about_as_the_dialect_wraps_it(dialect: str, body: object) -> None:
    asked = review()
    assert json.loads(DIALECTS[dialect].ask(asked, asked.object)) == body


def test_a_policy_of_whole_requests_sees_operation_user_old_object_and_dry_run() -> None:
    request = {
        "operation": "UPDATE",
        "userInfo": {"username": "eve", "groups": ["a"]},
        "oldObject": {"metadata": {"name": "old"}},
        "dryRun": True,
        "options": {"kind": "UpdateOptions"},
    }
    asked = review(**request)
    body = json.loads(DIALECTS["review"].ask(asked, asked.object))
    assert body == {"input": {"uid": "r1", "object": WEB} | request}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("v1", {"input": {"metadata": {"name": "as asked for"}}}),
        ("v0", {"metadata": {"name": "as asked for"}}),
        ("annotations", {"input": {"metadata": {"name": "as asked for"}}}),
        (
            "review",
            {
                "input": {
                    "uid": "r1",
                    "operation": "CREATE",
                    "object": {"metadata": {"name": "as asked for"}},
                }
            },
        ),
    ],
)
def test_what_the_policy_is_to_see_takes_the_place_of_the_object(
    dialect: str, body: object
) -> None:
    assert json.loads(DIALECTS[dialect].ask(review(), SEEN)) == body


def test_both_objects_of_a_request_are_shown_as_they_were_asked_for() -> None:
    placed = {"metadata": {"annotations": {"a": "decided", REQUESTED: '{"a":"wished"}'}}}
    asked = review(operation="UPDATE", oldObject=placed)
    found = json.loads(DIALECTS["review"].ask(asked, SEEN))["input"]
    assert found["object"] == {"metadata": {"name": "as asked for"}}
    assert found["oldObject"] == {"metadata": {"annotations": {"a": "wished"}}}


def test_an_equal_object_leaves_the_request_as_it_was_sent() -> None:
    asked = review()
    same = msgspec.Raw(bytes(asked.object))
    assert DIALECTS["review"].ask(asked, same) == b'{"input":' + bytes(asked.request) + b"}"


@pytest.mark.parametrize("dialect", ["v1", "review"])
def test_the_decision_is_the_result(dialect: str) -> None:
    assert DIALECTS[dialect].read(b'{"result":{"errors":[]}}') == Answer(b'{"errors":[]}')


def test_the_decision_of_v0_is_the_whole_answer() -> None:
    assert DIALECTS["v0"].read(b'{"errors":[]}') == Answer(b'{"errors":[]}')


def test_bare_annotations_become_a_decision() -> None:
    body = b'{"result":{"a":{"b":1}},"decision_id":"d"}'
    assert DIALECTS["annotations"].read(body) == Answer(b'{"annotations":{"a":{"b":1}}}', "d")


@pytest.mark.parametrize("dialect", ["v1", "review", "annotations"])
def test_an_answer_without_a_result_is_undefined(dialect: str) -> None:
    assert DIALECTS[dialect].read(b'{"decision_id":"d"}') is None


@pytest.mark.parametrize("dialect", ["v1", "review", "annotations"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"decision_id":1}', b"[" * 5000], ids=range(6)
)
def test_an_answer_of_another_shape_is_malformed(dialect: str, body: bytes) -> None:
    with pytest.raises(Failed, match=r"^the answer is not") as raised:
        DIALECTS[dialect].read(body)
    assert raised.value.why == "malformed"


def test_decision_id_and_revisions_are_kept() -> None:
    bundles = {"b": {"revision": "2"}, "a": {"revision": "1"}, "rest": {}}
    body = {"result": {}, "decision_id": "d", "provenance": {"bundles": bundles}}
    assert DIALECTS["v1"].read(json.dumps(body).encode()) == Answer(b"{}", "d", "a=1,b=2")


@pytest.mark.parametrize("provenance", [{}, {"bundles": None}, {"bundles": []}, 7, "x"])
def test_provenance_that_says_nothing_does_not_matter(provenance: object) -> None:
    body = json.dumps({"result": {}, "provenance": provenance}).encode()
    assert DIALECTS["v1"].read(body) == Answer(b"{}")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_question_about_nothing_is_a_question(dialect: str) -> None:
    nothing: object = {} if dialect == "v0" else {"input": {}}
    assert json.loads(DIALECTS[dialect].empty) == nothing
