from __future__ import annotations

from kube_sync.decisions.decision import Decision
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.plan import Current, Nothing, Wanted, Write
from kube_sync.remediation.sinks.annotations import AnnotationSink

KEY = (GroupVersionResource("batch", "v1", "jobs"), ObjectKey("ns", "a"))


async def test_annotations_are_read_planned_and_written_on_the_target_itself() -> None:
    written: list[tuple[GroupVersionResource, ObjectKey, Write]] = []

    async def patch(gvr: GroupVersionResource, key: ObjectKey, step: Write) -> None:
        written.append((gvr, key, step))

    sink, target = AnnotationSink(patch), Current("u", {"place": "us"}, version="1")
    assert sink.read(KEY, target) is target
    step = sink.plan(KEY, Wanted("u", Decision({"place": "eu"})), target)
    assert not isinstance(step, Nothing)
    assert isinstance(step, Write)
    await sink.write(KEY, step)
    assert written == [(*KEY, step)]


def test_of_a_target_that_is_gone_no_annotations_are_left() -> None:
    sink = AnnotationSink(_nothing)
    assert (sink.keys(), sink.unknown) == ((), "")
    assert sink.plan(KEY, None, None) == Nothing()


async def _nothing(*_: object) -> None: ...
