from __future__ import annotations

from kube_sync.observability.readiness import Readiness


def test_nothing_said_is_ready() -> None:
    readiness = Readiness()
    assert (readiness.reasons, readiness.conditions) == ({}, {})


def test_a_waiting_condition_says_why_until_it_is_met() -> None:
    readiness = Readiness()
    readiness.waiting("opa", "refused")
    readiness.waiting("opa", "no answer in time")
    assert readiness.reasons == {"opa": "no answer in time"}
    readiness.met("opa")
    assert readiness.reasons == {}
    assert readiness.conditions == {"opa": "ok"}


def test_a_condition_that_was_met_can_wait_again() -> None:
    readiness = Readiness()
    readiness.met("opa")
    readiness.waiting("opa", "away")
    assert readiness.conditions == {"opa": "away"}


def test_conditions_are_told_in_the_order_of_their_names() -> None:
    readiness = Readiness()
    readiness.waiting("c", "x")
    readiness.met("b")
    readiness.waiting("a", "y")
    assert list(readiness.conditions.items()) == [("a", "y"), ("b", "ok"), ("c", "x")]
    assert list(readiness.reasons) == ["a", "c"]


def test_a_reporter_speaks_for_one_condition() -> None:
    readiness = Readiness()
    report = readiness.reporter("opa")
    report("away")
    assert readiness.reasons == {"opa": "away"}
    report(None)
    assert readiness.conditions == {"opa": "ok"}


def test_a_note_is_shown_and_leaves_the_process_ready() -> None:
    readiness = Readiness()
    readiness.waiting("configuration", "x")
    readiness.noted("configuration", "the last good one is in force")
    assert readiness.reasons == {}
    assert readiness.conditions == {"configuration": "the last good one is in force"}
    readiness.met("configuration")
    assert readiness.conditions == {"configuration": "ok"}


def test_what_is_forgotten_is_neither_waited_for_nor_shown() -> None:
    readiness = Readiness()
    readiness.waiting("a", "x")
    readiness.met("b")
    for condition in ("a", "b", "never heard of"):
        readiness.forget(condition)
    assert (readiness.reasons, readiness.conditions) == ({}, {})
