from __future__ import annotations

import json

import msgspec
import pytest

from kube_sync.admission.requested_values import asked, old_view, view
from kube_sync.admission.review import parse_review
from kube_sync.decisions.decision import REQUESTED
from tests.fakes.reviews import body, create, resource, update

REMEDIATOR = "system:serviceaccount:kube-sync:kube-sync-remediator"
NOTED = {"a": "1", "b": "2", REQUESTED: '{"a":"mine","b":null}'}


def _seen(raw: msgspec.Raw) -> object:
    return json.loads(bytes(raw))


@pytest.mark.parametrize("annotations", [None, {}, {"a": "1"}])
def test_the_policy_sees_what_was_sent_where_nothing_is_noted(
    annotations: dict[str, str] | None,
) -> None:
    """Byte by byte: numbers past 2**53 and the order of keys must not change."""
    text = b'{"z":12345678901234567890,"metadata":HERE,"a":1.10}'
    metadata = json.dumps(resource(annotations)["metadata"]).encode()
    review = parse_review(body("HERE").replace(b'"HERE"', text.replace(b"HERE", metadata)))
    assert bytes(view(review, REMEDIATOR)) == text.replace(b"HERE", metadata)


def test_all_but_the_annotations_passes_byte_by_byte() -> None:
    metadata = json.dumps({"generation": 12345678901234567890, "annotations": NOTED})
    text = '{"z":1.10,"metadata":%s,"a":12345678901234567890}'
    review = parse_review(body("HERE").replace(b'"HERE"', (text % metadata).encode()))
    seen = '{"generation":12345678901234567890,"annotations":{"a":"mine"}}'
    assert bytes(view(review, REMEDIATOR)).decode() == text % seen


def test_a_create_is_seen_as_it_was_asked_for() -> None:
    assert _seen(view(create(resource(NOTED)), REMEDIATOR)) == resource({"a": "mine"})


def test_an_update_of_anything_else_is_seen_as_it_was_asked_for() -> None:
    new = resource({**NOTED, "own": "x"})
    review = update(new, resource(NOTED))
    assert _seen(view(review, REMEDIATOR)) == resource({"a": "mine", "own": "x"})


def test_a_change_is_seen_as_the_request() -> None:
    review = update(resource({**NOTED, "a": "other"}), resource(NOTED))
    assert _seen(view(review, REMEDIATOR)) == resource({"a": "other"})


def test_a_request_is_seen_again_where_all_annotations_went() -> None:
    """Of `a` it is the request that counts, which stood beside nothing."""
    old = resource({REQUESTED: '{"a":"mine"}'})
    assert _seen(view(update(resource(None), old), REMEDIATOR)) == resource({"a": "mine"})


@pytest.mark.parametrize("by", [{"user": REMEDIATOR}, {"manager": "kube-sync-remediator"}])
def test_what_the_remediator_writes_is_no_request(by: dict[str, str]) -> None:
    new = {"a": "3", "b": "4", REQUESTED: '{"a":"newer","b":null}'}
    review = update(resource(new), resource(NOTED), **by)
    assert _seen(view(review, REMEDIATOR)) == resource({"a": "newer"})
    assert asked(review, REMEDIATOR).earlier == {}


def test_the_object_before_is_seen_as_it_was_asked_for() -> None:
    review = update(resource({"a": "3"}), resource(NOTED))
    assert _seen(old_view(review)) == resource({"a": "mine"})
    assert old_view(update(resource(NOTED), resource({"a": "3"}))) is not None
    assert _seen(old_view(update(resource(NOTED), resource({"a": "3"})))) == resource({"a": "3"})
    assert _seen(old_view(create(resource(NOTED)))) is None


def test_a_deletion_shows_nothing() -> None:
    review = parse_review(body(None, operation="DELETE", oldObject=resource({"a": "1"})))
    assert _seen(view(review, REMEDIATOR)) is None
