from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.placement import PLACEMENT, is_empty_placement
from kube_sync.remediator.plan import (
    Apply,
    Current,
    Held,
    Nothing,
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
    step = plan(_wanted(a="1", b="2"), Current("u", {"a": "1", "b": "old", "c": "3"}))
    assert step == Apply("u", {"a": "1", "b": "2"})


def test_a_decision_without_annotations_needs_nothing() -> None:
    assert plan(_wanted(), Current("u", {"a": "1"})) == Nothing()


def test_an_empty_placement_is_never_written() -> None:
    wanted = Wanted("u", Decision({PLACEMENT: EMPTY, "a": "1"}))
    assert plan(wanted, Current("u", {})) == Held("the decided placement is empty")


def test_an_empty_placement_that_is_there_already_needs_nothing() -> None:
    wanted = Wanted("u", Decision({PLACEMENT: EMPTY}))
    assert plan(wanted, Current("u", {PLACEMENT: EMPTY})) == Nothing()


def test_an_empty_text_under_another_key_is_applied() -> None:
    assert plan(_wanted(other=EMPTY), Current("u", {})) == Apply("u", {"other": EMPTY})


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
_wanteds = st.none() | st.builds(
    Wanted,
    st.sampled_from(["u", "v"]),
    st.none() | st.builds(Decision, _annotations, st.just(()) | st.just(("no",))),
    st.none() | st.text(),
)
_currents = st.none() | st.builds(Current, st.sampled_from(["u", "v"]), _annotations)


@given(_wanteds, _currents)
def test_applying_a_plan_once_leaves_nothing_to_do(
    wanted: Wanted | None, current: Current | None
) -> None:
    step = plan(wanted, current)
    if isinstance(step, Apply):
        assert current is not None
        after = Current(current.uid, {**current.annotations, **step.annotations})
        assert plan(wanted, after) == Nothing()
    else:
        assert plan(wanted, current) == step


@given(_wanteds, _currents)
def test_any_apply_is_the_whole_of_a_usable_decision_on_that_very_object(
    wanted: Wanted | None, current: Current | None
) -> None:
    step = plan(wanted, current)
    if isinstance(step, Apply):
        assert wanted is not None
        assert current is not None
        assert wanted.decision is not None
        assert (wanted.uid, wanted.failure, wanted.decision.errors) == (current.uid, None, ())
        assert step == Apply(current.uid, wanted.decision.annotations)
        assert not is_empty_placement(step.annotations.get(PLACEMENT, ""))
        assert not step.annotations.items() <= current.annotations.items()
