from __future__ import annotations

import json

import msgspec
import pytest

from kube_sync.admission.review import Kind, Malformed, Review, parse_review
from tests.fakes.reviews import body as _body
from tests.fakes.reviews import create, update
from tests.fakes.reviews import resource as _resource


def _review(annotations: dict[str, str] | None) -> Review:
    return create(_resource(annotations))


def test_a_review_is_read_with_the_resource_as_it_was_sent() -> None:
    review = _review({"a": "1"})
    assert (review.uid, review.operation, review.annotations) == ("r1", "CREATE", {"a": "1"})
    assert json.loads(bytes(review.object)) == _resource({"a": "1"})


@pytest.mark.parametrize("annotations", [None, {}])
def test_a_missing_map_is_told_from_an_empty_one(annotations: dict[str, str] | None) -> None:
    """A JSON Patch cannot add a member to a map that is not there."""
    assert _review(annotations).annotations == annotations


@pytest.mark.parametrize("document", [{"kind": "Any"}, {"metadata": None}, {"metadata": {}}])
def test_an_object_without_metadata_has_no_maps(document: dict[str, object]) -> None:
    review = parse_review(_body(document))
    assert (review.annotations, review.labels) == (None, None)


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
        _body({"metadata": []}),
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


def test_the_resource_is_passed_on_byte_by_byte() -> None:
    """Numbers past 2**53 and the order of keys must not change on the way to the policy."""
    resource = b'{"z":12345678901234567890,"metadata":{"name":"x"},"a":1.10}'
    body = _body("HERE").replace(b'"HERE"', resource)
    assert msgspec.json.encode({"input": parse_review(body).object}) == (
        b'{"input":' + resource + b"}"
    )


def test_who_asks_and_what_was_there_before_is_read() -> None:
    review = update(_resource({"a": "2"}, {"l": "2"}), _resource({"a": "1"}, {"l": "1"}), "me", "k")
    assert (review.user.username, review.manager) == ("me", "k")
    assert (review.annotations, review.labels) == ({"a": "2"}, {"l": "2"})
    assert (review.old_annotations, review.old_labels) == ({"a": "1"}, {"l": "1"})


@pytest.mark.parametrize("options", [None, {}, {"kind": "DeleteOptions", "propagationPolicy": "x"}])
def test_a_request_without_a_field_manager_has_none(options: object) -> None:
    assert parse_review(_body(_resource(None), options=options)).manager == ""


def test_a_kind_names_its_api_version_as_objects_do() -> None:
    assert Kind("apps", "v1", "ReplicaSet").api_version == "apps/v1"
    assert Kind("", "v1", "Pod").api_version == "v1"
