"""Which placement counts as let through, by what an object carries alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

import pytest

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.guard import HISTORY, Placements, placement_digest
from kube_sync.guard.history import Entry, write_history
from kube_sync.remediation.argocd.let_through import Answered, Carried, Refusal, let_through
from kube_sync.remediation.plan import Wanted

NOW = 1_000.0
PLACEMENTS = Placements()


def preferences(clusters: Iterable[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


def guarded(clusters: Iterable[str], approval: str = "") -> Carried:
    """Return an object as the remediator leaves it."""
    annotations = {PLACEMENT: preferences(clusters)}
    entry = Entry(900, placement_digest(PLACEMENTS, annotations), (), approval)
    return Carried("u", {**annotations, HISTORY: write_history((entry,))})


def by_hand(clusters: Iterable[str], before: Carried | None = None) -> Carried:
    """Return an object whose placement somebody else wrote."""
    kept: Mapping[str, str] = {} if before is None else before.annotations
    return Carried("u", {**kept, PLACEMENT: preferences(clusters)})


def decided(clusters: Iterable[str] | None, reasons: Mapping[str, str] | None = None) -> Wanted:
    annotations = {} if clusters is None else {PLACEMENT: preferences(clusters)}
    return Wanted("u", Decision(annotations, reasons=reasons or {}), policy="p1")


def answer(
    carried: Carried,
    wanted: Wanted | None = None,
    approvals: Collection[str] = (),
    before: Iterable[str] | None = None,
    uid: str = "u",
) -> dict[str, str]:
    answered = None if before is None else Answered(uid, frozenset(before))
    return let_through(carried, wanted, PLACEMENTS, approvals, NOW, answered)


def refusal(
    carried: Carried,
    wanted: Wanted | None = None,
    before: Iterable[str] | None = None,
    uid: str = "u",
) -> str:
    with pytest.raises(Refusal) as raised:
        answer(carried, wanted, before=before, uid=uid)
    assert raised.value.status == 409
    return str(raised.value)


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        Wanted("u", None),
        Wanted("u", None, "the evaluation failed"),
        Wanted("u", Decision({PLACEMENT: preferences("c")}, ("it fits nowhere",))),
        Wanted("another", Decision({PLACEMENT: preferences("c")})),
        decided(["c"]),
        decided([]),
        decided(None),
    ],
)
def test_what_the_guard_let_through_stands_whatever_is_decided_now(wanted: Wanted | None) -> None:
    assert list(answer(guarded(["b", "a"]), wanted)) == ["a", "b"]


def test_a_reason_is_that_of_the_policy_while_its_decision_is_in_force() -> None:
    wanted = decided(["a", "b"], {"a": "in the EU"})
    found = answer(guarded(["a", "b"]), wanted)
    assert found == {"a": "in the EU", "b": "selected by the policies"}
    assert answer(guarded(["a"]), wanted) == {
        "a": "let through earlier, while the present decision is held"
    }


def test_without_a_placement_there_is_no_answer() -> None:
    assert refusal(Carried("u", {})) == "no placement was let through yet"


def test_a_placement_that_ended_is_no_answer_either() -> None:
    entry = Entry(900, placement_digest(PLACEMENTS, {}))
    ended = Carried("u", {HISTORY: write_history((entry,))})
    assert refusal(ended, decided(None)) == "it has no placement any more"


def test_a_placement_written_by_hand_is_not_let_through() -> None:
    """The remediator is about to put it right, and its Applications would be gone by then."""
    changed = by_hand(["a"], guarded(["a", "b"]))
    assert "somebody else, and is not what is decided" in refusal(changed, decided(["a", "b"]))
    assert "no usable decision on it is known" in refusal(changed)


def test_a_placement_that_the_webhook_wrote_counts_while_it_is_decided() -> None:
    assert list(answer(by_hand(["a"]), decided(["a"]))) == ["a"]


def test_a_placement_that_its_owner_asks_for_counts_where_no_policy_decides() -> None:
    found = answer(by_hand(["a"]), decided(None))
    assert found == {"a": "asked for by the resource itself"}


def test_a_history_from_the_future_or_of_another_placement_proves_nothing() -> None:
    entry = Entry(5_000, placement_digest(PLACEMENTS, guarded(["a"]).annotations))
    forged = Carried("u", {PLACEMENT: preferences(["a"]), HISTORY: write_history((entry,))})
    assert "somebody else" in refusal(forged)


@pytest.mark.parametrize("text", ['{"clusters":{"*":{"weight":1}}}', "no JSON"])
def test_a_placement_that_names_no_clusters_is_not_answered(text: str) -> None:
    annotations = {PLACEMENT: text}
    entry = Entry(900, placement_digest(PLACEMENTS, annotations))
    carried = Carried("u", {**annotations, HISTORY: write_history((entry,))})
    assert refusal(carried) == "its placement does not name its clusters one by one"


def test_nothing_is_an_answer_only_if_a_person_approved_it() -> None:
    unapproved = guarded([])
    why = refusal(unapproved, decided([]))
    _, command, after = why.split("`")
    assert after == " confirms that"
    name = command.removeprefix("kube-sync remediate approve ")
    assert answer(unapproved, decided([]), {name}) == {}
    assert answer(guarded([], "moves-1a2b"), decided([])) == {}, "approved when it was held"


def test_an_approval_of_nothing_is_of_one_object_and_one_time() -> None:
    first, again = guarded([]), guarded([])
    entry = Entry(950, placement_digest(PLACEMENTS, first.annotations))
    again = Carried("u", {**first.annotations, HISTORY: write_history((entry,))})
    other = Carried("u2", first.annotations)
    names = {refusal(one, decided([])).split("`")[1] for one in (first, again)}
    with pytest.raises(Refusal) as raised:
        answer(other)
    assert len(names | {str(raised.value).split("`")[1]}) == 3


def moved(clusters: Iterable[str]) -> Carried:
    """Return an object that the remediator placed and then moved."""
    carried = guarded(clusters)
    entries = (Entry(800, "another"), Entry(900, placement_digest(PLACEMENTS, carried.annotations)))
    return Carried("u", {**carried.annotations, HISTORY: write_history(entries)})


def test_what_the_webhook_wrote_past_the_brakes_takes_nothing_away_unless_approved() -> None:
    """An owner's update during an outage carries a decision that the remediator holds."""
    written = by_hand(["a"], moved(["a", "b"]))
    why = refusal(written, decided(["a"]), before=["a", "b"])
    assert why.startswith("no brake has let through that it leaves b; `kube-sync remediate approve")
    name = why.split("`")[1].rpartition(" ")[2]
    assert list(answer(written, decided(["a"]), {name}, before=["a", "b"])) == ["a"]
    assert list(answer(written, decided(["a"]), before=["a"])) == ["a"], "after it was approved"


def test_after_a_restart_what_the_webhook_wrote_past_the_brakes_is_not_answered() -> None:
    written = by_hand(["a"], moved(["a", "b"]))
    assert "it leaves clusters that the last placement had" in refusal(written, decided(["a"]))


def test_what_the_webhook_wrote_may_add_clusters() -> None:
    written = by_hand(["a", "b"], moved(["a"]))
    assert list(answer(written, decided(["a", "b"]), before=["a"])) == ["a", "b"]


def test_a_first_placement_takes_away_nothing_of_an_earlier_object_of_the_name() -> None:
    """The guard holds no first placement: it takes nothing away from a new object."""
    assert "it leaves b;" in refusal(guarded(["a"]), decided(["a"]), ["a", "b"], "earlier")
    assert list(answer(guarded(["a"]), decided(["a"]))) == ["a"]


def test_what_a_move_added_first_and_took_back_is_gone() -> None:
    """It leaves no entry in the history, which then has the first placement alone."""
    assert list(answer(guarded(["a"]), decided(["a"]), before=["a", "b"])) == ["a"]


def test_a_move_that_the_guard_let_through_needs_no_other_approval() -> None:
    assert list(answer(moved(["a"]), decided(["a"]), before=["a", "b"])) == ["a"]


def test_an_owner_may_take_clusters_away_where_no_policy_decides() -> None:
    assert list(answer(by_hand(["a"]), decided(None), before=["a", "b"])) == ["a"]
