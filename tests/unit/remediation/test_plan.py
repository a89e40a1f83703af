from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision, is_empty_placement
from kube_sync.decisions.requested import requested_annotations, requests
from kube_sync.decisions.sealing import Place, Seals
from kube_sync.guard import ADDITION, HISTORY, Placements
from kube_sync.kube.meta import Amend, Apply
from kube_sync.remediation.plan import (
    KEEP,
    Current,
    Nothing,
    Step,
    Unusable,
    Wanted,
    after,
    plan,
    with_history,
)


def _wanted(**annotations: str) -> Wanted:
    return Wanted("u", Decision(annotations))


def _preferences(clusters: Any) -> str:
    return json.dumps({"rebalance": True, "clusters": clusters})


EMPTY = _preferences({})
NO_LABELS = frozenset(["labels"])


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
    assert step == Unusable("failed", "no usable decision: conflict")


def test_errors_of_the_policy_hold_even_beside_annotations() -> None:
    wanted = Wanted("u", Decision({"a": "1"}, ("no PCI", "no EU")))
    assert plan(wanted, Current("u", {})) == Unusable("errors", "the policy objects: no PCI; no EU")


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


def test_what_was_asked_for_is_given_and_no_longer_noted_in_one_step() -> None:
    noted = {"a": "1", REQUESTED: '{"a":"mine"}'}
    step = plan(_wanted(a="mine"), Current("u", noted, version="7"))
    assert step == Amend("u", {"a": "mine", REQUESTED: None}, version="7", bare=NO_LABELS)


@pytest.mark.parametrize("note", ["", "[]", '{"a":1}'])
def test_a_note_that_cannot_be_read_goes(note: str) -> None:
    step = plan(_wanted(a="1"), Current("u", {"a": "1", REQUESTED: note}))
    assert step == Amend("u", {REQUESTED: None}, bare=NO_LABELS)


def test_what_the_policy_does_not_decide_any_more_becomes_what_was_asked_for() -> None:
    """Whoever wrote it: what the webhook wrote has no owner."""
    noted = {"a": "1", "b": "2", "c": "3", REQUESTED: '{"a":"mine","b":null,"gone":"x"}'}
    step = plan(_wanted(c="4"), Current("u", noted, {"l": "1"}))
    assert step == Amend(
        "u", {"a": "mine", "b": None, "c": "4", "gone": "x", REQUESTED: '{"c":"3"}'}
    )


def test_a_decision_that_wants_nothing_gives_everything_back() -> None:
    step = plan(_wanted(), Current("u", {"a": "1", REQUESTED: '{"a":null}'}, {"l": "1"}))
    assert step == Amend("u", {"a": None, REQUESTED: None})


def test_what_only_the_remediator_owns_goes_with_the_decision() -> None:
    """Its owner took it back, or the note was taken away: nobody asks for it."""
    current = Current("u", {"a": "1", "b": "2"}, {"l": "1"}, ours=frozenset("a"))
    assert plan(_wanted(), current) == Amend("u", {"a": None})
    assert plan(_wanted(a="1"), current) == Nothing()


def test_what_is_as_it_was_asked_for_again_is_not_applied() -> None:
    """Its owner lost it to an apply; who owns it alone would remove it with the next decision."""
    noted = {"a": "1", "b": "2", REQUESTED: '{"a":null,"b":"mine"}'}
    step = plan(_wanted(a="1", b="mine"), Current("u", noted, {"l": "1"}))
    assert step == Amend("u", {"b": "mine", REQUESTED: '{"a":null}'})


def test_what_only_the_note_tells_to_be_asked_for_stays_noted() -> None:
    noted = {"a": "mine", "b": "2", REQUESTED: '{"a":"mine","b":null}'}
    current = Current("u", noted, {"l": "1"}, ours=frozenset("ab"))
    assert plan(_wanted(), current) == Amend("u", {"b": None, REQUESTED: '{"a":"mine"}'})


def test_labels_that_only_the_remediator_owns_go_with_the_decision() -> None:
    current = Current("u", {}, {"l": "1", "m": "2"}, our_labels=frozenset("l"))
    assert plan(_wanted(), current) == Amend("u", {}, {"l": None}, bare=frozenset(["annotations"]))
    wanted = Wanted("u", Decision(labels={"m": "3"}))
    assert plan(wanted, current) == Amend(
        "u", {}, {"l": None, "m": "3"}, bare=frozenset(["annotations"])
    )


@pytest.mark.parametrize(
    "current",
    [
        Current("u", {"a": "1", REQUESTED: "{}"}),
        Current("u", {"a": "1"}, ours=frozenset("a")),
        Current("u", {}, {"l": "1"}, our_labels=frozenset("l")),
    ],
)
def test_an_undefined_decision_holds_what_an_earlier_one_wrote(current: Current) -> None:
    assert plan(Wanted("u", None), current) == Unusable("undefined", "the decision is undefined")


def test_the_history_of_placements_is_not_a_policys_to_decide() -> None:
    wanted = Wanted("u", Decision({HISTORY: "[]"}))
    reason = "the policy decides kube-sync.io/moves, which is not its own"
    assert plan(wanted, Current("u", {})) == Unusable("errors", reason)


def test_the_history_of_placements_stays_through_every_apply() -> None:
    """A field manager gives up what an apply leaves out."""
    step = plan(_wanted(a="1"), Current("u", {HISTORY: "[]"}))
    assert step == Apply("u", {"a": "1", HISTORY: "[]", REQUESTED: '{"a":null}'})
    assert isinstance(step, Apply)
    assert with_history(step, "[1]").annotations == {**step.annotations, HISTORY: "[1]"}


def test_the_record_of_an_addition_is_not_a_policys_to_decide() -> None:
    reason = "the policy decides kube-sync.io/addition, which is not its own"
    step = plan(Wanted("u", Decision({ADDITION: "{}"})), Current("u", {}))
    assert step == Unusable("errors", reason)


def test_the_record_of_an_addition_is_written_with_what_is_decided() -> None:
    wanted = replace(_wanted(a="2"), addition="r")
    step = plan(wanted, Current("u", {"a": "1"}))
    assert step == Apply("u", {"a": "2", ADDITION: "r", REQUESTED: '{"a":"1"}'})
    assert plan(wanted, Current("u", {"a": "2", ADDITION: "r"})) == Nothing()


def test_a_record_that_is_over_is_removed_and_one_that_is_to_stay_stays() -> None:
    current = Current("u", {"a": "1", ADDITION: "r"})
    assert plan(_wanted(a="1"), current) == Amend("u", {ADDITION: None}, bare=NO_LABELS)
    assert plan(replace(_wanted(a="1"), addition=KEEP), current) == Nothing()


def test_the_history_alone_is_not_what_a_decision_left_behind() -> None:
    current = Current("u", {HISTORY: "[]"}, ours=frozenset([HISTORY]))
    assert plan(_wanted(), current) == Nothing()


def test_an_amendment_takes_the_history_too() -> None:
    step = Amend("u", {"a": None})
    assert with_history(step, "[1]") == Amend("u", {"a": None, HISTORY: "[1]"})
    assert after(step, Current("u", {"a": "1", "b": "2"})) == {"b": "2"}


def test_where_nothing_is_decided_not_even_a_note_is_touched() -> None:
    assert plan(Wanted("other", Decision()), Current("u", {REQUESTED: "?"})) == Nothing()


def test_a_placement_that_cannot_be_read_is_not_written_whoever_decided_it() -> None:
    """The stream may be another engine's, or that of an older replicator."""
    wanted = Wanted("u", Decision({PLACEMENT: '{"clustrs":{}}'}))
    current = Current("u", {"a": "1"})
    assert isinstance(plan(wanted, current), Apply)
    step = plan(wanted, current, unreadable=Placements().unreadable)
    assert isinstance(step, Unusable)
    assert step.kind == "failed"
    assert step.reason.startswith(f"no usable decision: the policy's annotation {PLACEMENT}: expe")


def test_a_decision_without_annotations_needs_nothing() -> None:
    assert plan(_wanted(), Current("u", {"a": "1"})) == Nothing()


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


_ours = st.frozensets(_keys | st.sampled_from([REQUESTED, HISTORY]))


def _current(
    uid: str,
    has: dict[str, str],
    note: str | None,
    labels: dict[str, str],
    ours: frozenset[str],
    our_labels: frozenset[str],
) -> Current:
    annotations = has | ({} if note is None else {REQUESTED: note})
    ours, our_labels = ours & annotations.keys(), our_labels & labels.keys()
    return Current(uid, annotations, labels, "7", ours, our_labels)


_currents = st.builds(
    _current,
    st.sampled_from(["u", "v"]),
    _annotations,
    _notes,
    _labels,
    _ours,
    st.frozensets(st.sampled_from("lm")),
)


def _after(current: Current, step: Step) -> Current:
    """Do as the API server does: an apply owns what it names, and gives up the rest."""
    if not isinstance(step, Apply | Amend):
        return current
    has = after(step, current)
    labels = {**current.labels, **step.labels}
    left = {key: value for key, value in labels.items() if value is not None}
    if isinstance(step, Amend):
        touched = step.annotations.keys() | step.labels.keys()
        return Current(
            current.uid, has, left, "8", current.ours - touched, current.our_labels - touched
        )
    given_up = current.ours - step.annotations.keys()
    has = {key: value for key, value in has.items() if key not in given_up}
    return Current(current.uid, has, left, "8", frozenset(step.annotations), frozenset(step.labels))


@given(_wanteds, _currents)
def test_applying_a_plan_twice_is_applying_it_once(wanted: Wanted | None, current: Current) -> None:
    step = plan(wanted, current)
    again = plan(wanted, _after(current, step))
    assert again == (Nothing() if isinstance(step, Apply | Amend) else step)


@given(_wanteds, _currents)
def test_whatever_is_written_what_was_asked_for_stays_the_same(
    wanted: Wanted | None, current: Current
) -> None:
    """But for what nobody asked for, since nobody but the remediator owns it."""
    then = requested_annotations(_after(current, plan(wanted, current)).annotations)
    asked = requested_annotations(current.annotations)
    noted = requests(current.annotations)
    assert {
        k: v for k, v in asked.items() if then.get(k) != v
    }.keys() <= current.ours - noted.keys()
    assert then.items() <= asked.items()


@given(_wanteds, _currents)
@example(
    Wanted("u", Decision(), None),
    _current("u", {"a": "", "b": ""}, '{"b":"","a":null}', {}, frozenset("b"), frozenset()),
)
def test_any_write_makes_a_usable_decision_true_of_that_very_state_of_the_object(
    wanted: Wanted | None, current: Current
) -> None:
    step = plan(wanted, current)
    if isinstance(step, Apply | Amend):
        assert wanted is not None
        assert wanted.decision is not None
        assert (wanted.uid, wanted.failure, wanted.decision.errors) == (current.uid, None, ())
        assert (step.uid, step.version) == (current.uid, current.version)
        then = _after(current, step)
        assert wanted.decision.annotations.items() <= then.annotations.items()
        assert wanted.decision.labels.items() <= then.labels.items()
        # What is as somebody asked for, and only the note says so, stays ours with the note.
        left = then.ours - wanted.decision.annotations.keys() - {REQUESTED, HISTORY}
        noted = requests(then.annotations)
        assert {key: then.annotations[key] for key in left}.items() <= noted.items()


@given(_wanteds, _currents)
def test_a_write_touches_nothing_but_what_is_decided_or_was(
    wanted: Wanted | None, current: Current
) -> None:
    step = plan(wanted, current)
    if isinstance(step, Apply | Amend):
        assert wanted is not None
        assert wanted.decision is not None
        before = {*requests(current.annotations), *current.ours, REQUESTED, HISTORY}
        assert step.annotations.keys() <= {*wanted.decision.annotations, *before}
        assert step.labels.keys() <= {*wanted.decision.labels, *current.our_labels}


PLACE = Place("apps", "replicasets", "shop", "web")


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    (tmp_path / "key").write_text("k" * 43, encoding="utf-8")
    return Seals(str(tmp_path / "key"))


def test_the_note_that_is_written_is_sealed_for_the_placement_beside_it(seals: Seals) -> None:
    asked = Current("u", {PLACEMENT: "us"})
    step = plan(_wanted(**{PLACEMENT: "eu"}), asked, PLACE, seals)
    assert isinstance(step, Apply)
    assert seals.has_valid_seal(step.annotations, PLACE)
    written = Current("u", after(step, asked))
    assert requests(written.annotations) == {PLACEMENT: "us"}
    assert plan(_wanted(**{PLACEMENT: "eu"}), written, PLACE, seals) == Nothing()
    step = plan(_wanted(**{PLACEMENT: "asia"}), written, PLACE, seals)
    assert isinstance(step, Apply)
    assert seals.has_valid_seal(step.annotations, PLACE)


def test_a_seal_alone_is_renewed_with_the_placement_and_never_made(seals: Seals) -> None:
    as_requested = Current("u", {PLACEMENT: "eu"})
    wanted = _wanted(**{PLACEMENT: "eu"})
    assert plan(wanted, as_requested, PLACE, seals) == Nothing()
    alone = {PLACEMENT: "us", REQUESTED: seals.sealed_note({}, {PLACEMENT: "us"}, PLACE)}
    kept = Current("u", alone)
    assert plan(_wanted(**{PLACEMENT: "us"}), kept, PLACE, seals) == Nothing()
    step = plan(wanted, kept, PLACE, seals)
    assert isinstance(step, Apply)
    assert seals.has_valid_seal(after(step, kept), PLACE)
    assert requests(after(step, kept)) == {PLACEMENT: "us"}


@pytest.mark.parametrize("requests", [{PLACEMENT: "us"}, {}])
def test_who_has_no_key_would_not_write_a_sealed_note_again(
    seals: Seals, requests: dict[str, str | None]
) -> None:
    has = {PLACEMENT: "eu" if requests else "us"}
    sealed = {**has, REQUESTED: seals.sealed_note(requests, has, PLACE)}
    assert plan(_wanted(**has), Current("u", sealed)) == Nothing()
    step = plan(_wanted(**{PLACEMENT: "asia"}), Current("u", sealed))
    assert isinstance(step, Apply)
    assert step.annotations[REQUESTED] != sealed[REQUESTED]


def test_a_note_by_the_name_that_was_generated_from_is_not_written_anew(seals: Seals) -> None:
    generated = Place("apps", "replicasets", "shop", "", "web-")
    stored = {PLACEMENT: "eu"}
    text = seals.sealed_note({PLACEMENT: "us"}, stored, generated)
    current = Current("u", {**stored, REQUESTED: text})
    assert plan(_wanted(**stored), current, PLACE, seals) == Nothing()
