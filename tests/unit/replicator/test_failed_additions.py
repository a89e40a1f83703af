from __future__ import annotations

import json

from kube_sync.guard import ADDITION
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side
from kube_sync.replicator.failed_additions import FailedAdditions

ALL, NONE = Side("ns/p", "1"), Side("ns/p", "0")


def _item(name: str, **record: str) -> Item:
    text = json.dumps({"to": "d", "at": 5, **record}) if record else None
    annotations = {ADDITION: text} if text else {}
    body = {"metadata": {"name": name, "annotations": annotations}}
    return Item(ObjectKey("ns", name), "u", ResourceVersion("1"), json.dumps(body).encode())


class Failures(FailedAdditions):
    def __init__(self) -> None:
        self.told = 0
        super().__init__(self._tell)

    def _tell(self) -> None:
        self.told += 1


def test_objects_that_were_not_healthy_count_by_policy_and_side() -> None:
    found = Failures()
    found.note("a", _item("web", step="reverted", policy="p1"))
    found.note("b", _item("web", step="kept", policy="p1"))
    found.note("a", _item("api", step="reverted", policy="p2"))
    assert (found.count("p1", ALL), found.count("p2", ALL), found.count("p1", NONE)) == (2, 1, 0)
    assert found.told == 3


def test_an_addition_that_may_still_become_healthy_and_no_addition_count_as_none() -> None:
    found = Failures()
    found.note("a", _item("web", step="added", policy="p1"))
    found.note("a", _item("api"))
    assert (found.count("p1", ALL), found.told) == (0, 0)


def test_a_failure_is_forgotten_with_its_record_and_told_once() -> None:
    found = Failures()
    for _ in range(2):
        found.note("a", _item("web", step="reverted", policy="p1"))
    found.note("a", _item("web"))
    assert (found.count("p1", ALL), found.told) == (0, 2)


def test_an_object_that_cannot_be_read_counts_as_none() -> None:
    found = Failures()
    body = b'{"metadata": {"annotations": {"' + ADDITION.encode() + b'": 7}}}'
    found.note("a", Item(ObjectKey("ns", "web"), "u", ResourceVersion("1"), body))
    assert found.told == 0
