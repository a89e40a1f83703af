from __future__ import annotations

from kube_sync.decisions.evaluation_queue import (
    OBJECT_CHANGED,
    Cause,
    Evaluation,
    EvaluationQueue,
    Group,
)
from kube_sync.decisions.records import Source
from kube_sync.objects import ObjectKey

A, B, C = (ObjectKey("ns", name) for name in "abc")
DATA, POLICY = Cause("data"), Cause("policy")


class Timed:
    """A queue and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.queue = EvaluationQueue(lambda: self.now)

    def took(self, seconds: float) -> None:
        """Have a sweep take so long."""
        self.queue.request_sweep(DATA)
        self.queue.begin_sweep()
        self.now += seconds
        assert self.queue.end_sweep()


def test_new_queue_has_nothing_to_ask() -> None:
    queue = Timed().queue
    assert (queue.is_due, queue.is_empty, queue.scheduled) == (False, True, None)
    assert queue.begin_sweep() is None
    assert not queue.end_sweep()


def test_object_that_changed_is_due_also_while_policies_change() -> None:
    queue = Timed().queue
    queue.policies_changing()
    queue.add("sets", [A], OBJECT_CHANGED)
    assert queue.changed == {("sets", A): OBJECT_CHANGED}
    assert (queue.is_due, queue.is_empty) == (True, False)


def test_what_is_asked_again_comes_first_with_the_cause_of_its_last_change() -> None:
    queue = Timed().queue
    queue.add("sets", [B, A], OBJECT_CHANGED)
    queue.requeue({("sets", A): POLICY, ("sets", C): POLICY})
    assert [*queue.changed.items()] == [
        (("sets", A), OBJECT_CHANGED),
        (("sets", C), POLICY),
        (("sets", B), OBJECT_CHANGED),
    ]


def test_question_of_a_sweep_is_asked_again_as_a_class_or_alone_before_all_others() -> None:
    queue = Timed().queue
    queue.replace_sweep({("sets", b"k"): Group([A], DATA)})
    alone = Evaluation(None, [Group([B], DATA)], 0, 0)
    shared = Evaluation(b"l", [Group([C, A], DATA)], 0, 0)
    queue.requeue_sweep("sets", [alone, shared, shared.without_representative])
    assert [*queue.sweep.items()] == [
        (("sets", B), Group([B], DATA)),
        (("sets", b"l"), Group([C, A, A], DATA)),
        (("sets", b"k"), Group([A], DATA)),
    ]


def test_dropped_collection_is_asked_about_no_more() -> None:
    queue = Timed().queue
    queue.replace_sweep({(name, b"k"): Group([A], DATA) for name in ("sets", "pods")})
    for name in ("sets", "pods"):
        queue.add(name, [A], OBJECT_CHANGED)
    queue.drop("sets")
    assert (queue.changed, queue.sweep) == (
        {("pods", A): OBJECT_CHANGED},
        {("pods", b"k"): Group([A], DATA)},
    )


def test_sweep_in_place_of_another_begins_with_what_that_one_left() -> None:
    queue = Timed().queue
    queue.replace_sweep({("sets", kind): Group([A], DATA) for kind in (b"gone", b"k")})
    queue.replace_sweep({("sets", kind): Group([A], POLICY) for kind in (b"j", b"k")})
    assert [*queue.sweep] == [("sets", b"k"), ("sets", b"j")]
    assert {group.cause for group in queue.sweep.values()} == {POLICY}


def test_requests_for_one_sweep_are_merged_and_taken_once() -> None:
    queue = Timed().queue
    queue.request_sweep(Cause("data", Source("clusters", "c1", 2)))
    queue.request_sweep(Cause("data", Source("clusters", "c9", 3)))
    assert not queue.is_empty
    assert queue.begin_sweep() == Cause("data", Source("clusters", "c1", 5))
    assert (queue.begin_sweep(), queue.is_empty) == (None, True)


def test_planned_sweep_is_not_put_off_and_the_first_one_is_due_first() -> None:
    timed = Timed()
    timed.queue.schedule_sweep(DATA, 30.0)
    timed.queue.schedule_sweep(OBJECT_CHANGED, 2.0)
    timed.now += 1.5
    timed.queue.schedule_sweep(OBJECT_CHANGED, 2.0)
    assert timed.queue.scheduled == (0.5, OBJECT_CHANGED)
    timed.now += 9.0
    assert timed.queue.scheduled == (0.0, OBJECT_CHANGED)


def test_sweep_that_begins_stands_for_all_planned_ones() -> None:
    queue = Timed().queue
    queue.schedule_sweep(OBJECT_CHANGED, 2.0)
    assert queue.begin_sweep() is None
    assert queue.scheduled is not None
    queue.request_sweep(POLICY)
    queue.begin_sweep()
    assert queue.scheduled is None


def test_planned_sweep_waits_ten_times_as_long_as_the_last_one_took() -> None:
    timed = Timed()
    timed.took(3.0)
    timed.queue.schedule_sweep(OBJECT_CHANGED, 2.0)
    assert timed.queue.scheduled == (30.0, OBJECT_CHANGED)


def test_sweeps_that_follow_each_other_take_as_long_as_all_of_them() -> None:
    timed = Timed()
    timed.queue.request_sweep(DATA)
    timed.queue.begin_sweep()
    timed.now += 1.0
    timed.took(1.0)
    timed.queue.schedule_sweep(OBJECT_CHANGED, 2.0)
    assert timed.queue.scheduled == (20.0, OBJECT_CHANGED)


def test_sweep_waits_for_what_changing_policies_read_but_not_for_ever() -> None:
    timed = Timed()
    queue = timed.queue
    queue.replace_sweep({("sets", b"k"): Group([A], DATA)})
    assert (queue.is_due, queue.sweep_wait_seconds) == (True, None)
    queue.policies_changing()
    timed.now += 59.0
    queue.policies_changing()
    assert (queue.is_due, queue.is_empty, queue.sweep_wait_seconds) == (False, False, 1.0)
    timed.now += 1.0
    assert (queue.is_due, queue.may_sweep) == (True, True)


def test_sweep_goes_on_once_it_is_known_what_policies_read() -> None:
    queue = Timed().queue
    queue.policies_changing()
    assert not queue.may_sweep
    queue.policies_changed()
    assert queue.may_sweep


def test_group_keeps_each_uid_beside_its_object() -> None:
    group = Group([A, B, C], DATA, ["a", "b", "c"], 7)
    group.begin_with(2)
    assert (group.keys, group.uids) == ([C, A, B], ["c", "a", "b"])
    others = Evaluation(b"k", [group, Group([A], DATA)], 0, 0).without_representative
    first, second = others.groups
    assert (first.keys, first.uids, first.revision) == ([A, B], ["a", "b"], 7)
    assert (second.keys, second.uids) == ([A], None)
    assert [*others.with_causes()] == [(A, DATA), (B, DATA), (A, DATA)]


def test_object_that_is_added_takes_no_uid_of_another() -> None:
    evaluation = Evaluation(b"k", [Group([A], DATA, ["a"], 7)], 0, 0)
    evaluation.add(B, DATA)
    evaluation.add(C, DATA)
    assert [group.keys for group in evaluation.groups] == [[A], [B, C]]
