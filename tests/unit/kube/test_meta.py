from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube_sync.kube.meta import NamedObjectMeta, ObjectMeta, OwnerReference, object_meta

_WHOLE = {
    "name": "web",
    "namespace": "shop",
    "uid": "u1",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "labels": {"app": "web"},
    "annotations": {"a": "b"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u2"}],
    "managedFields": [{"manager": "kubectl"}],
}


def _object(metadata: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).encode()


def test_the_metadata_of_any_object_is_read_by_the_names_of_the_wire() -> None:
    assert object_meta(_object(_WHOLE)) == ObjectMeta(
        name="web",
        namespace="shop",
        uid="u1",
        resource_version="7",
        generation=3,
        creation_timestamp="2026-01-02T03:04:05Z",
        labels={"app": "web"},
        annotations={"a": "b"},
        owner_references=[OwnerReference("v1", "Node", "n", "u2")],
    )


def test_what_is_missing_has_its_zero_value() -> None:
    assert object_meta(_object({})) == ObjectMeta()
    assert (ObjectMeta().name, ObjectMeta().generation, ObjectMeta().labels) == ("", 0, None)


@pytest.mark.parametrize("field", ["creationTimestamp", "labels", "annotations", "ownerReferences"])
def test_null_is_none_where_the_api_server_writes_null(field: str) -> None:
    assert object_meta(_object({"name": "web", field: None})) == ObjectMeta(name="web")


@pytest.mark.parametrize(
    ("metadata", "where"),
    [
        (None, "$.metadata"),
        ({"labels": {"a": 1}}, "$.metadata.labels"),
        ({"resourceVersion": 7}, "$.metadata.resourceVersion"),
    ],
)
def test_metadata_of_other_types_are_refused_with_the_path_of_the_field(
    metadata: Any, where: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        object_meta(_object(metadata))
    assert where in str(refused.value)


def test_metadata_without_a_name_are_refused_where_a_name_is_required() -> None:
    named = msgspec.json.decode(json.dumps(_WHOLE), type=NamedObjectMeta)
    assert (named.name, named.resource_version) == ("web", "7")
    with pytest.raises(msgspec.ValidationError, match="required field `name`"):
        msgspec.json.decode(b'{"uid": "u1"}', type=NamedObjectMeta)
