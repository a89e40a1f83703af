from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.admission.denials import occurrence
from kube_sync.admission.review import Review, parse_review
from kube_sync.kube.events import Occurrence, Reference

REPLICASET = {"group": "apps", "version": "v1", "kind": "ReplicaSet"}
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "d1"}
NAMESPACE = {"group": "", "version": "v1", "kind": "Namespace"}


def review(
    metadata: Any, operation: str = "CREATE", kind: Any = None, old: Any = None, **request: Any
) -> Review:
    """Parse what the API server would send."""
    body = {
        "uid": "r1",
        "operation": operation,
        "kind": kind or REPLICASET,
        "namespace": "shop",
        "object": {"metadata": metadata, "spec": {"secret": "hidden"}},
        "oldObject": old,
    } | request
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}
    return parse_review(json.dumps(document).encode())


def told(*arguments: Any, **more: Any) -> Occurrence:
    return occurrence(review(*arguments, **more), "denied", "no")


def test_an_update_is_told_about_the_object() -> None:
    found = told({"name": "web", "uid": "u1"}, "UPDATE", name="web")
    regarding = Reference("apps/v1", "ReplicaSet", "shop", "web", "u1")
    assert found == Occurrence(regarding, None, "PlacementDenied", "Update", "no")
    assert found.namespace == "shop"


def test_a_create_is_told_about_its_controller() -> None:
    others = OWNER | {"name": "other", "controller": False}
    owners = [others, OWNER | {"controller": True}]
    found = told({"name": "web", "ownerReferences": owners}, name="web")
    assert found.regarding == Reference("apps/v1", "Deployment", "shop", "shop", "d1")
    assert found.related == Reference("apps/v1", "ReplicaSet", "shop", "web")
    assert found.note == "ReplicaSet shop/web: no"
    assert (found.action, found.namespace) == ("Create", "shop")


@pytest.mark.parametrize("owners", [None, [], [OWNER]])
def test_a_create_without_controller_is_told_about_its_namespace(owners: Any) -> None:
    found = told({"name": "web", "ownerReferences": owners}, name="web")
    assert found.regarding == Reference("v1", "Namespace", "", "shop")
    assert found.related == Reference("apps/v1", "ReplicaSet", "shop", "web")
    assert found.namespace == "default"


def test_what_has_no_name_yet_is_related_to_nothing_and_one_series() -> None:
    found = told({"generateName": "web-"})
    assert found.related is None
    assert found.note == "ReplicaSet shop/web-*: no"
    assert found == told({"generateName": "web-"})


def test_a_made_up_owner_takes_no_event_out_of_the_namespace() -> None:
    """Who may create in one namespace must not be able to warn about the nodes of all."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": True}
    found = told({"name": "web", "ownerReferences": [owner]}, name="web")
    assert found.regarding == Reference("v1", "Namespace", "", "shop")
    kind = {"group": "g", "version": "v1", "kind": "ClusterThing"}
    metadata = {"name": "it", "ownerReferences": [OWNER | {"controller": True}]}
    assert told(metadata, kind=kind, name="it", namespace="").regarding.kind == "ClusterThing"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_namespace_lies_in_none_whatever_the_review_says(operation: str) -> None:
    """The API server names a Namespace as its own namespace."""
    found = told({"name": "shop"}, operation, NAMESPACE, name="shop")
    assert found.regarding == Reference("v1", "Namespace", "", "shop")
    assert (found.related, found.namespace) == (None, "default")


def test_what_lies_in_no_namespace_is_told_about_itself() -> None:
    kind = {"group": "", "version": "v1", "kind": "Node"}
    found = told({"name": "n1"}, kind=kind, name="n1", namespace="")
    assert found.regarding == Reference("v1", "Node", "", "n1")
    assert found.note == "n1: no"


def test_owners_that_cannot_be_read_are_none() -> None:
    assert told({"name": "web", "ownerReferences": [{}]}, name="web").regarding.kind == "Namespace"


def test_nothing_is_longer_than_an_event_may_be() -> None:
    """Names come before anybody has checked them."""
    owner = dict.fromkeys(OWNER, "x" * 5000) | {"controller": True}
    found = occurrence(
        review({"generateName": "g" * 5000, "uid": "u" * 5000, "ownerReferences": [owner]}),
        "denied",
        "n" * 5000,
    )
    assert len(str(found)) < 253 * 5 + 1024 + 500
    assert len(found.note.encode()) == 1024


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("denied", "PlacementDenied"),
        ("undecidable", "PlacementUndecidable"),
        ("a_b", "PlacementAB"),
    ],
)
def test_the_reason_is_a_word_of_its_own(outcome: str, reason: str) -> None:
    assert occurrence(review({"name": "web"}), outcome, "no").reason == reason


def test_nothing_of_the_object_but_names_is_told() -> None:
    assert "hidden" not in str(told({"name": "web", "annotations": {"a": "hidden"}}, name="web"))
