from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.placement import PLACEMENT, is_empty_placement
from kube_sync.decisions.requested import requests, restored
from kube_sync.remediator.plan import (
    Apply,
    Current,
    Forget,
    Held,
    Nothing,
    Step,
    Wanted,
    plan,
)


def _wanted(**annotations: str) -> Wanted:
    return Wanted("u", Decision(annotations))


def _preferences(clusters: Any) -> str:
    return json.dumps({"rebalance": True, "clusters": clusters})


EMPTY = _preferences({})


def test_an_object_that_nothing_was_decided_of_is_left_alone() -> None:
    assert plan(None, Current("u", {"a": "1"})) == Nothing()


def test_an_object_that_is_gone_is_left_alone() -> None:
    assert plan(_wanted(a="1"), None) == Nothing()


def test_a_decision_on_another_object_of_the_same_name_is_not_applied() -> None:
    assert plan(_wanted(a="1"), Current("other", {})) == Nothing()


def test_an_undefined_decision_leaves_what_an_earlier_one_wrote() -> None:
    assert plan(Wanted("u", None), Current("u", {PLACEMENT: "old"})) == Nothing()


def test_a_failed_decision_holds_with_its_reason() -> None:
    """Its uid is unknown, and it must be seen nevertheless."""
    step = plan(Wanted("", None, "conflict"), Current("u", {}))
    assert step == Held("no usable decision: conflict")


def test_errors_of_the_policy_hold_even_beside_annotations() -> None:
    wanted = Wanted("u", Decision({"a": "1"}, ("no PCI", "no EU")))
    assert plan(wanted, Current("u", {})) == Held("the policy objects: no PCI; no EU")


def test_annotations_as_decided_need_nothing_whatever_else_is_there() -> None:
    assert plan(_wanted(a="1"), Current("u", {"a": "1", "b": "2"})) == Nothing()


def test_a_difference_applies_all_decided_annotations() -> None:
    """A field manager gives up what an apply leaves out."""
    current = Current("u", {"a": "1", "b": "old", "c": "3"}, version="7")
    step = plan(_wanted(a="1", b="2"), current)
    assert step == Apply("u", {"a": "1", "b": "2", REQUESTED: '{"b":"old"}'}, version="7")


def test_a_difference_applies_all_decided_labels() -> None:
    wanted = Wanted("u", Decision({"a": "1"}, labels={"l": "1", "m": "2"}))
    current = Current("u", {"a": "1"}, {"l": "1", "n": "3"})
    assert plan(wanted, current) == Apply("u", {"a": "1"}, {"l": "1", "m": "2"})


def test_labels_as_decided_need_nothing() -> None:
    wanted = Wanted("u", Decision(labels={"l": "1"}))
    assert plan(wanted, Current("u", {}, {"l": "1", "n": "3"})) == Nothing()


def test_what_was_asked_for_first_stays_noted_through_every_decision() -> None:
    noted = {"a": "1", REQUESTED: '{"a":"mine"}'}
    assert plan(_wanted(a="1"), Current("u", noted)) == Nothing()
    assert plan(_wanted(a="2"), Current("u", noted)) == Apply(
        "u", {"a": "2", REQUESTED: '{"a":"mine"}'}
    )


def test_a_key_that_was_absent_is_noted_as_absent() -> None:
    assert plan(_wanted(a="1"), Current("u", {})) == Apply("u", {"a": "1", REQUESTED: '{"a":null}'})


def test_what_was_asked_for_is_given_and_then_no_longer_noted() -> None:
    """Two steps, since an apply does not remove what the webhook wrote."""
    noted = {"a": "1", REQUESTED: '{"a":"mine"}'}
    assert plan(_wanted(a="mine"), Current("u", noted, version="7")) == Apply(
        "u", {"a": "mine"}, version="7"
    )
    given = noted | {"a": "mine"}
    assert plan(_wanted(a="mine"), Current("u", given, version="8")) == Forget("8")
    assert plan(_wanted(a="mine"), Current("u", {"a": "mine"})) == Nothing()


@pytest.mark.parametrize("note", ["", "[]", '{"a":1}'])
def test_a_note_that_cannot_be_read_goes(note: str) -> None:
    assert plan(_wanted(a="1"), Current("u", {"a": "1", REQUESTED: note})) == Forget("")


def test_what_an_earlier_policy_wrote_stays_with_its_request() -> None:
    """An apply that left it out would take it away."""
    noted = {"a": "1", "b": "2", REQUESTED: '{"a":null,"b":"mine","gone":"x"}'}
    assert plan(_wanted(a="3"), Current("u", noted)) == Apply(
        "u", {"a": "3", "b": "2", REQUESTED: '{"a":null,"b":"mine","gone":"x"}'}
    )


def test_where_nothing_is_decided_not_even_a_note_is_touched() -> None:
    assert plan(_wanted(), Current("u", {REQUESTED: "?"})) == Nothing()


def test_a_decision_without_annotations_needs_nothing() -> None:
    assert plan(_wanted(), Current("u", {"a": "1"})) == Nothing()


def test_an_empty_placement_is_never_written() -> None:
    wanted = Wanted("u", Decision({PLACEMENT: EMPTY, "a": "1"}))
    assert plan(wanted, Current("u", {})) == Held("the decided placement is empty")


def test_an_empty_placement_that_is_there_already_needs_nothing() -> None:
    wanted = Wanted("u", Decision({PLACEMENT: EMPTY}))
    assert plan(wanted, Current("u", {PLACEMENT: EMPTY})) == Nothing()


def test_an_empty_text_under_another_key_is_applied() -> None:
    assert plan(_wanted(other=EMPTY), Current("u", {})) == Apply(
        "u", {"other": EMPTY, REQUESTED: '{"other":null}'}
    )


@pytest.mark.parametrize(
    ("preferences", "empty"),
    [
        (_preferences({}), True),
        (_preferences({"a": {"weight": 0}, "*": {"weight": 0}}), True),
        (_preferences({"a": {"weight": 0, "minReplicas": 0}}), True),
        (_preferences({"a": {"weight": 0, "minReplicas": 1}}), False),
        (_preferences({"a": {"weight": 0}, "b": {"weight": 1}}), False),
        (_preferences({"a": {}}), False),
        (_preferences({"a": None}), False),
        (_preferences(["a"]), False),
        (_preferences(None), False),
        ("{}", False),
        ("[]", False),
        ("1", False),
        ("eu-west", False),
        ("[" * 100_000, False),
        ("", False),
    ],
)
def test_placements_are_empty_only_where_they_name_no_cluster_with_weight(
    preferences: str,
    empty: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert is_empty_placement(preferences) is empty


_keys = st.sampled_from(["a", "b", PLACEMENT])
_values = st.one_of(
    st.text(max_size=3),
    st.dictionaries(
        st.sampled_from(["c1", "*"]),
        st.fixed_dictionaries({}, optional={"weight": st.integers(0, 2)}),
    ).map(_preferences),
)
_annotations = st.dictionaries(_keys, _values)
_notes = st.dictionaries(_keys, st.none() | _values).map(json.dumps) | st.just("{") | st.none()
_labels = st.dictionaries(st.sampled_from(["l", "m"]), st.sampled_from(["1", "2"]))
_wanteds = st.none() | st.builds(
    Wanted,
    st.sampled_from(["u", "v"]),
    st.none() | st.builds(Decision, _annotations, st.just(()) | st.just(("no",)), _labels),
    st.none() | st.text(),
)


def _current(uid: str, has: dict[str, str], note: str | None, labels: dict[str, str]) -> Current:
    return Current(uid, has | ({} if note is None else {REQUESTED: note}), labels, "7")


_currents = st.builds(_current, st.sampled_from(["u", "v"]), _annotations, _notes, _labels)


def _after(current: Current, step: Step) -> Current:
    match step:
        case Apply():
            has = {**current.annotations, **step.annotations}
            return Current(current.uid, has, {**current.labels, **step.labels}, "8")
        case Forget():
            has = {key: value for key, value in current.annotations.items() if key != REQUESTED}
            return Current(current.uid, has, current.labels, "8")
        case _:
            return current


@given(_wanteds, _currents)
def test_applying_a_plan_leaves_nothing_to_do_but_to_forget_the_note(
    wanted: Wanted | None, current: Current
) -> None:
    step = plan(wanted, current)
    after = _after(current, step)
    again = plan(wanted, after)
    match step:
        case Apply():
            assert isinstance(again, Nothing | Forget)
            assert plan(wanted, _after(after, again)) == Nothing()
        case Forget():
            assert again == Nothing()
        case _:
            assert again == step


@given(_wanteds, _currents)
def test_whatever_is_written_what_was_asked_for_stays_the_same(
    wanted: Wanted | None, current: Current
) -> None:
    after = _after(current, plan(wanted, current))
    assert restored(after.annotations) == restored(current.annotations)


@given(_wanteds, _currents)
def test_any_apply_is_the_whole_of_a_usable_decision_on_that_very_state_of_the_object(
    wanted: Wanted | None, current: Current
) -> None:
    step = plan(wanted, current)
    if isinstance(step, Apply):
        assert wanted is not None
        assert wanted.decision is not None
        assert (wanted.uid, wanted.failure, wanted.decision.errors) == (current.uid, None, ())
        assert (step.uid, step.version) == (current.uid, current.version)
        assert wanted.decision.annotations.items() <= step.annotations.items()
        assert step.labels == wanted.decision.labels
        others = step.annotations.items() - wanted.decision.annotations.items()
        assert {key for key, _ in others} <= {REQUESTED, *requests(current.annotations)}
        assert not is_empty_placement(wanted.decision.annotations.get(PLACEMENT, ""))
        assert _after(current, step) != Current(
            current.uid, current.annotations, current.labels, "8"
        )
