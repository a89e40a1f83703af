from __future__ import annotations

from dataclasses import dataclass, field

from kube_sync.objects import ObjectKey
from kube_sync.runtime.workqueue import WorkQueue
from tests.memory import remembered


@dataclass
class Foreign:
    """What a test gives to what it tries."""

    names: list[str] = field(default_factory=lambda: ["mine"])


def test_keys_and_values_of_whatever_is_inside_are_found() -> None:
    queue: WorkQueue[object] = WorkQueue("test")
    queue.add(("a", ObjectKey("ns", "b")))
    assert {*remembered(queue, str)} == {"a", "ns", "b"}
    assert remembered(queue, ObjectKey) == [ObjectKey("ns", "b")]


def test_names_of_attributes_are_no_memory() -> None:
    queue: WorkQueue[object] = WorkQueue("test")
    assert vars(queue)
    assert remembered(queue, str) == []


def test_what_belongs_to_a_test_is_not_looked_into() -> None:
    kept = {"one": Foreign(), "other": lambda: Foreign}
    assert remembered(kept, str) == ["one", "other"]
