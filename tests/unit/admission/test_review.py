from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.admission.answer import allow, deny, patch
from kube_sync.admission.review import Malformed, Review, parse_review
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.placement import PLACEMENT


def _body(resource: object, **request: object) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "r1", "operation": "CREATE", "object": resource} | request,
        }
    ).encode()


def _resource(annotations: dict[str, str] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "web"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": 3}}


def _review(annotations: dict[str, str] | None) -> Review:
    return parse_review(_body(_resource(annotations)))


def _response(answer: bytes) -> dict[str, Any]:
    document = json.loads(answer)
    assert (document["apiVersion"], document["kind"]) == (
        "admission.k8s.io/v1",
        "AdmissionReview",
    )
    response: dict[str, Any] = document["response"]
    assert response["uid"] == "r1"
    return response


def _operations(response: dict[str, Any]) -> list[dict[str, Any]]:
    assert response.get("patchType") == ("JSONPatch" if "patch" in response else None)
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return operations


def _patched(document: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Interpret `add` of RFC 6902, which refuses a path whose parent is not there."""
    result: dict[str, Any] = json.loads(json.dumps(document))
    for operation in operations:
        assert operation["op"] == "add"
        empty, *parents, leaf = operation["path"].split("/")
        assert empty == ""
        below = result
        for part in parents:
            below = below[part]
        below[leaf.replace("~1", "/").replace("~0", "~")] = operation["value"]
    return result


def test_a_review_is_read_with_the_resource_as_it_was_sent() -> None:
    review = _review({"a": "1"})
    assert (review.uid, review.operation, review.annotations) == ("r1", "CREATE", {"a": "1"})
    assert json.loads(bytes(review.object)) == _resource({"a": "1"})


@pytest.mark.parametrize("annotations", [None, {}])
def test_a_missing_map_is_told_from_an_empty_one(annotations: dict[str, str] | None) -> None:
    """A JSON Patch cannot add a member to a map that is not there."""
    assert _review(annotations).annotations == annotations


def test_a_deletion_has_no_object_and_is_no_mistake() -> None:
    review = parse_review(_body(None, operation="DELETE"))
    assert (bytes(review.object), review.annotations) == (b"null", None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        _body(_resource(None)).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        _body(_resource(None)).replace(b"AdmissionReview", b"TokenReview"),
        _body(_resource(None)).replace(b'"uid": "r1", ', b""),
        _body(_resource(None), uid=7),
        _body("HERE").replace(b'"HERE"', b'{"metadata":{},"x":' + b"[" * 100_000),
        _body("text"),
        _body([]),
        _body({"kind": "ReplicaSet"}),
        _body({"metadata": {"annotations": {"a": 1}}}),
        _body({"metadata": {"annotations": ["a"]}}),
    ],
)
def test_a_body_that_is_no_review_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse_review(body)


def test_another_version_is_named() -> None:
    body = _body(_resource(None)).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1")
    with pytest.raises(Malformed, match=r"found admission\.k8s\.io/v1beta1 AdmissionReview"):
        parse_review(body)


def test_nothing_to_change_is_admitted_without_a_patch() -> None:
    response = _response(allow(_review({"a": "1"}), Decision({"a": "1"})))
    assert response == {"uid": "r1", "allowed": True}


def test_a_missing_map_is_created_whole() -> None:
    response = _response(allow(_review(None), Decision({"a/b": "1", "c": "2"})))
    assert response["allowed"] is True
    assert _operations(response) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1", "c": "2"}}
    ]


def test_only_keys_that_differ_are_touched() -> None:
    response = _response(
        allow(_review({"same": "1", "old": "x", "own": "y"}), Decision({"same": "1", "old": "2"}))
    )
    assert _operations(response) == [
        {"op": "add", "path": "/metadata/annotations/old", "value": "2"}
    ]


def test_slashes_and_tildes_in_keys_are_escaped() -> None:
    operations = patch({}, {"team.io/a~b~1": "v"})
    assert operations == [
        {"op": "add", "path": "/metadata/annotations/team.io~1a~0b~01", "value": "v"}
    ]


@pytest.mark.parametrize(
    ("existing", "decided", "merged"),
    [
        ({"foo": "bar", "bar": "baz"}, {"foo": "bar-2"}, {"foo": "bar-2", "bar": "baz"}),
        (None, {"foo": "bar"}, {"foo": "bar"}),
        ({}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {"baz": "qux"}, {"foo": "bar", "baz": "qux"}),
        ({"foo": "bar"}, {}, {"foo": "bar"}),
        (None, {}, None),
    ],
)
def test_decided_annotations_are_merged_as_the_old_plugin_did(
    existing: dict[str, str] | None, decided: dict[str, str], merged: dict[str, str] | None
) -> None:
    assert _patched(_resource(existing), patch(existing, decided)) == _resource(merged)


_keys = st.text("ab~/01.", max_size=6)
_maps = st.dictionaries(_keys, st.text(max_size=3), max_size=5)


@given(existing=st.none() | _maps, decided=_maps)
def test_any_patch_fits_and_a_second_one_is_empty(
    existing: dict[str, str] | None, decided: dict[str, str]
) -> None:
    after = _patched(_resource(existing), patch(existing, decided))
    merged = {**(existing or {}), **decided}
    assert after == _resource(merged if merged or existing is not None else None)
    assert patch(after["metadata"].get("annotations"), decided) == []


@given(existing=st.none() | _maps, decided=_maps)
def test_any_answer_carries_the_patch(
    existing: dict[str, str] | None, decided: dict[str, str]
) -> None:
    response = _response(allow(_review(existing), Decision(decided)))
    assert _operations(response) == patch(existing, decided)


def test_a_denial_carries_the_reason_for_the_author() -> None:
    assert _response(deny(_review(None), "no PCI; no EU")) == {
        "uid": "r1",
        "allowed": False,
        "status": {"code": 403, "message": "no PCI; no EU", "reason": "Forbidden"},
    }


def test_a_denial_for_want_of_a_decision_has_its_own_code() -> None:
    assert _response(deny(_review(None), "OPA is away", 503))["status"]["code"] == 503


def test_the_resource_is_passed_on_byte_by_byte() -> None:
    """Numbers past 2**53 and the order of keys must not change on the way to the policy."""
    resource = b'{"z":12345678901234567890,"metadata":{"name":"x"},"a":1.10}'
    body = _body("HERE").replace(b'"HERE"', resource)
    assert msgspec.json.encode({"input": parse_review(body).object}) == (
        b'{"input":' + resource + b"}"
    )


_WEST = '{"clusters":{"west":{"weight":1}}}'
_NOWHERE = '{"clusters":{}}'


def test_an_update_does_not_empty_a_workload() -> None:
    """The fleet that the policy saw may be empty, and the remediator's PATCH is an update too."""
    body = _body(_resource({PLACEMENT: _WEST}), operation="UPDATE")
    response = _response(allow(parse_review(body), Decision({PLACEMENT: _NOWHERE, "a": "1"})))
    assert [o["path"] for o in _operations(response)] == ["/metadata/annotations/a"]
    assert "placement is kept" in response["warnings"][0]


@pytest.mark.parametrize(
    ("operation", "has", "wanted"),
    [
        ("CREATE", _WEST, _NOWHERE),  # there is nothing yet that could be emptied
        ("UPDATE", _NOWHERE, '{"clusters":{"west":{"weight":0}}}'),
        ("UPDATE", "east", _NOWHERE[:-1]),
        ("UPDATE", _WEST, '{"clusters":{"east":{"weight":1}}}'),
    ],
)
def test_any_other_placement_is_the_policys(operation: str, has: str, wanted: str) -> None:
    body = _body(_resource({PLACEMENT: has}), operation=operation)
    response = _response(allow(parse_review(body), Decision({PLACEMENT: wanted})))
    assert [o["value"] for o in _operations(response)] == [wanted]
    assert "warnings" not in response
