from __future__ import annotations

import json
from typing import Any

from kube_sync.decisions.decision import REQUESTED
from kube_sync.decisions.requested import NOTE
from kube_sync.inspect.survey.findings import Savings, Tally, tallies
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Document, FieldRead, Reads

IMAGES: Path = ("spec", "containers", None, "image")


def document(*paths: Path) -> Document:
    return Document(tuple(FieldRead(path, whole=False, asked=()) for path in paths), used=True)


def replica_set(name: str, image: str) -> Any:
    containers = [{"image": image, "name": "c"}]
    metadata = {"name": name, "namespace": "n", "uid": name}
    return {"kind": "ReplicaSet", "metadata": metadata, "spec": {"containers": containers}}


READS = Reads(
    input=document(("kind",), IMAGES),
    resources={"clusters": document(("spec",)), "replicasets": document()},
    others=(),
    impure={},
)


def test_bytes_are_those_of_what_is_read_beside_the_names() -> None:
    tally = tallies(READS, ["replicasets"])["replicasets"]
    tally.add(replica_set("a", "i"), 1000)
    kept = {
        "kind": "ReplicaSet",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"containers": [{"image": "i"}]},
    }
    size = len(json.dumps(kept, separators=(",", ":")))
    assert (tally.objects, tally.listed, tally.projected) == (1, 1000, size)


def test_objects_that_agree_in_what_is_read_are_one_class() -> None:
    tally = tallies(READS, ["replicasets"])["replicasets"]
    for name, image in (("a", "x"), ("b", "x"), ("c", "y")):
        tally.add(replica_set(name, image), 1)
    assert len(tally.classes) == 2


def test_order_of_members_makes_no_class() -> None:
    tally = Tally((), ((),))
    tally.add({"a": 1, "b": {"c": 1, "d": 2}}, 1)
    tally.add({"b": {"d": 2, "c": 1}, "a": 1}, 1)
    assert len(tally.classes) == 1


def test_resource_that_is_not_decided_on_has_no_classes_and_no_input_paths() -> None:
    tally = tallies(READS, ["replicasets"])["clusters"]
    tally.add({"kind": "C", "metadata": {"name": "a"}, "spec": {}}, 1)
    assert (tally.deciding, tally.classes) == (None, set())
    assert tally.projected == len(b'{"metadata":{"name":"a"},"spec":{}}')


def test_objects_of_two_resources_may_be_of_one_class() -> None:
    one, other = Tally((), ((),)), Tally((), ((),))
    one.add({"a": 1}, 1)
    other.add({"a": 1}, 1)
    other.add({"a": 2}, 1)
    assert Savings("here", {"one": one, "other": other}, frozenset()).classes == 2


def test_objects_of_one_request_are_one_class_whatever_was_written() -> None:
    paths = (("metadata", "annotations", "a"), NOTE)
    tally = Tally((), paths)
    for written, note in (("1", '{"a":"mine"}'), ("2", '{"a":"mine","b":null}')):
        tally.add({"metadata": {"annotations": {"a": written, REQUESTED: note}}}, 1)
    tally.add({"metadata": {"annotations": {"a": "mine"}}}, 1)
    assert len(tally.classes) == 1
