"""True only if True everywhere; an answer counts only if it is of the copy of now."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.kube.conditions import BRIEF
from kube_sync.policysync.aggregate import SYNCED, aggregate, extra_values
from kube_sync.policysync.copies import PLACED, STATUS, Copy, Feedback, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.policy_status_writer import PolicyAnnotations, placed_annotations
from tests.fakes.syncing import POLICY, copies, said, there

ACCEPTED = {"acceptedStatus": "True", "acceptedReason": "Accepted", "acceptedMessage": "fine"}
ENFORCED = {"enforcedStatus": "True", "enforcedReason": "Enforced", "enforcedMessage": "in force"}
OVERRIDDEN = {
    "enforcedStatus": "False",
    "enforcedReason": "Overridden",
    "enforcedMessage": "AuthPolicy is overridden by [ns/native]",
}
Answers = dict[str, dict[str, Any] | Feedback | None]


def together(
    answers: Answers, *, also: tuple[str, ...] = (), problems: tuple[str, ...] = ()
) -> dict[str, tuple[str, str, str]]:
    """Return the conditions of a policy whose clusters answered, by type."""
    wanted = copies(*answers)
    placed = {c: answered(wanted[c], one) for c, one in answers.items() if one is not None}
    desired = Desired(wanted, concerned=True, problems=problems)
    found = aggregate(desired, placed, also)
    return {one.type: (one.status, one.reason, one.message) for one in found}


def answered(copy: Copy, one: dict[str, Any] | Feedback) -> Placed:
    if isinstance(one, Feedback):
        return there(copy, one)
    return there(copy, said(copy, **one) if one else None)


def test_a_condition_is_true_only_if_it_is_true_everywhere() -> None:
    found = together({"c2": ACCEPTED | ENFORCED, "c1": ACCEPTED | ENFORCED})
    assert found == {
        SYNCED: ("True", "Synced", "synced to c1, c2"),
        "Accepted": ("True", "Accepted", "c1, c2: Accepted: fine"),
        "Enforced": ("True", "Enforced", "c1, c2: Enforced: in force"),
    }


def test_a_policy_that_one_cluster_overrides_says_which_and_why() -> None:
    found = together({"c1": ACCEPTED | ENFORCED, "c2": ACCEPTED | OVERRIDDEN})
    told = "c2: Overridden: AuthPolicy is overridden by [ns/native]"
    assert found["Enforced"] == ("False", "Overridden", told)
    assert found["Accepted"][0] == "True"


def test_it_is_unknown_while_a_cluster_has_not_answered() -> None:
    found = together({"c1": ACCEPTED, "c2": {}, "c3": None})
    told = "c2: Pending: it has not answered yet; c3: Pending: it is not placed there yet"
    assert found["Accepted"] == ("Unknown", "Pending", told)
    waits = ("Unknown", "Pending", "c2, c3: it waits to be applied")
    assert found[SYNCED] == waits


def test_one_false_is_false_whoever_has_not_answered() -> None:
    found = together({"c1": ACCEPTED | OVERRIDDEN, "c2": {}})
    assert found["Enforced"][:2] == ("False", "Overridden")


def test_what_a_cluster_does_not_say_while_another_does_is_unknown() -> None:
    found = together({"c1": ACCEPTED | ENFORCED, "c2": ACCEPTED})
    told = "c2: Pending: it says nothing of Enforced"
    assert found["Enforced"] == ("Unknown", "Pending", told)


def test_a_condition_that_no_cluster_ever_said_is_not_told() -> None:
    assert together({"c1": ACCEPTED}).keys() == {SYNCED, "Accepted"}
    assert together({"c1": None, "c2": {}}).keys() == {SYNCED}


@pytest.mark.parametrize("status", ["", "Maybe", 1, True])
def test_a_status_that_is_none_is_unknown(status: Any) -> None:
    assert together({"c1": {"acceptedStatus": status}})["Accepted"][0] == "Unknown"


@pytest.mark.parametrize(("reason", "shown"), [("", "True"), ("two words", "True"), ("Ok", "Ok")])
def test_a_reason_that_would_be_refused_is_not_passed_on(reason: str, shown: str) -> None:
    found = together({"c1": {"acceptedStatus": "True", "acceptedReason": reason}})
    assert found["Accepted"][1] == shown


def test_clusters_with_different_reasons_are_told_apart() -> None:
    other = OVERRIDDEN | {"enforcedReason": "Unknown", "enforcedMessage": ""}
    found = together({"c1": OVERRIDDEN, "c2": other})
    told = "c1: Overridden: AuthPolicy is overridden by [ns/native]; c2: Unknown"
    assert found["Enforced"] == ("False", "Various", told)


# Whether an answer is of the copy of now.


def test_an_answer_of_an_earlier_copy_is_none() -> None:
    stale = Feedback(applied=True, values={**ACCEPTED, "digest": "earlier", "generation": 1})
    found = together({"c1": stale})
    assert found["Accepted"] == ("Unknown", "Pending", "c1: Pending: it has not answered yet")
    assert found[SYNCED][0] == "True"
    nameless = Feedback(applied=True, values=ACCEPTED)
    assert together({"c1": nameless})["Accepted"][0] == "Unknown"


@pytest.mark.parametrize(
    ("observed", "status"),
    [
        ({"acceptedObservedGeneration": 1}, "Unknown"),
        ({"acceptedObservedGeneration": 2}, "True"),
        ({"observedGeneration": 1}, "Unknown"),
        ({"observedGeneration": 1, "acceptedObservedGeneration": 2}, "True"),
        ({}, "True"),
        ({"acceptedObservedGeneration": "1"}, "True"),
    ],
)
def test_an_answer_of_an_earlier_generation_is_none(observed: Any, status: str) -> None:
    found = together({"c1": ACCEPTED | {"generation": 2} | observed})
    assert found["Accepted"][0] == status


def test_an_answer_to_a_copy_that_is_not_wanted_any_more_is_none() -> None:
    wanted = copies("c1")
    placed = {"c1": Placed(wanted["c1"].key, "other", said(wanted["c1"], **ACCEPTED), None)}
    synced, accepted = aggregate(Desired(wanted, concerned=True), placed)
    assert (synced.status, accepted.status) == ("Unknown", "Unknown")


def test_what_could_not_be_applied_says_where_and_why() -> None:
    refused = Feedback(applied=False, values={}, problem="Failed to apply manifest: conflict")
    found = together({"c1": ACCEPTED, "c2": refused, "c3": {}})
    why = "it could not be applied: Failed to apply manifest: conflict"
    assert found[SYNCED] == ("False", "NotApplied", f"c2: {why}; c3: it waits to be applied")
    assert found["Accepted"][:2] == ("Unknown", "Pending")
    assert f"c2: Pending: {why}" in found["Accepted"][2]


def test_what_is_not_known_to_be_applied_is_awaited_unless_it_answers() -> None:
    unsure = Feedback(applied=None, values={})
    assert together({"c1": unsure})[SYNCED][:2] == ("Unknown", "Pending")
    wanted = copies("c1")["c1"]
    answers = Feedback(applied=None, values=said(wanted, **ACCEPTED).values)
    assert together({"c1": answers})[SYNCED][0] == "True"


def test_a_placement_that_nobody_knows_is_told() -> None:
    found = together({"c1": ACCEPTED}, problems=("Gateway ns/g: x",))
    assert found[SYNCED] == ("False", "PlacementUnknown", "Gateway ns/g: x")


def test_references_that_are_not_synced_are_told_beside() -> None:
    found = together({"c1": ACCEPTED}, also=("spec.targetRefs[1]: x",))
    assert found[SYNCED][2] == "synced to c1; not synced: spec.targetRefs[1]: x"


def test_a_path_that_a_cluster_cannot_read_is_told_and_hinders_nothing_else() -> None:
    copy = copies("c1")["c1"]
    partly = Feedback(applied=True, values=said(copy, **ACCEPTED).values, problem="x: no scalar")
    found = together({"c1": partly, "c2": ACCEPTED})
    told = "synced to c1, c2; c1: not all of its status can be read: x: no scalar"
    assert found[SYNCED] == ("True", "Synced", told)
    assert found["Accepted"][0] == "True"


def test_gateways_on_no_cluster_are_told() -> None:
    found = together({})
    assert found == {SYNCED: ("False", "NoClusters", "its Gateways are placed on no cluster")}


def test_of_a_policy_that_is_not_synced_nothing_is_said() -> None:
    assert aggregate(Desired(), {}) == ()


NAMES = [f"c{n:03}" for n in range(100)]


def test_a_message_is_bounded_for_any_number_of_clusters() -> None:
    alike = together(dict.fromkeys(NAMES, ACCEPTED))
    assert alike["Accepted"][2].endswith("c018, c019 and 80 more: Accepted: fine")
    various: Answers = {
        name: ACCEPTED | {"acceptedMessage": f"{name} {'x' * 100}"} for name in NAMES
    }
    found = together(various)["Accepted"][2]
    assert len(found) <= BRIEF
    assert found.startswith("c000: Accepted: c000 xxx")
    assert found.endswith(" more")


def test_what_could_not_be_applied_anywhere_is_bounded_and_counted() -> None:
    refused: Answers = {
        name: Feedback(applied=False, values={}, problem=f"{name} {'x' * 100}") for name in NAMES
    }
    status, _, found = together(refused)[SYNCED]
    assert status == "False"
    assert len(found) <= BRIEF
    assert found.endswith(" more")


ANSWERS = st.dictionaries(
    st.sampled_from(NAMES[:6]),
    st.sampled_from([ACCEPTED | ENFORCED, ACCEPTED | OVERRIDDEN, ACCEPTED, {}, None]),
    min_size=1,
)


@given(ANSWERS, st.randoms())
def test_the_same_answers_are_the_same_conditions_in_any_order(answers: Any, random: Any) -> None:
    shuffled = list(answers.items())
    random.shuffle(shuffled)
    found = together(answers)
    assert together(dict(shuffled)) == found
    everywhere = all((one or {}).get("enforcedStatus") == "True" for one in answers.values())
    assert (found.get("Enforced", ("",))[0] == "True") == everywhere


# What the policy carries.


def test_extra_fields_are_those_of_clusters_that_answered_of_the_copy_of_now() -> None:
    wanted = copies("c1", "c2", "c3")
    stale = Feedback(applied=True, values={"ready": 0, "digest": "earlier"})
    placed = {
        "c1": there(wanted["c1"], said(wanted["c1"], ready=2, acceptedStatus="True")),
        "c2": there(wanted["c2"], stale),
        "c3": there(wanted["c3"], said(wanted["c3"])),
    }
    assert extra_values(Desired(wanted), placed) == {"c1": {"ready": 2}}


def test_a_policy_says_where_its_copies_are() -> None:
    found = placed_annotations(POLICY, ["c2", "c1"], {"c1": {"b": 1, "a": True}}, Downstream())
    assert found.cut == ()
    assert found.annotations == {
        PLACED: '[{"cluster":"c1","name":"p","namespace":"kuadrant-my-namespace"},'
        '{"cluster":"c2","name":"p","namespace":"kuadrant-my-namespace"}]',
        STATUS: '{"c1":{"a":true,"b":1}}',
    }


def test_a_policy_without_copies_says_nothing() -> None:
    assert placed_annotations(POLICY, [], {}, Downstream()) == PolicyAnnotations(
        {PLACED: None, STATUS: None}
    )


def test_what_spokes_say_is_bounded() -> None:
    long = {name: {f"x{n}": "é" * 1000 for n in range(5)} for name in NAMES}
    notes = placed_annotations(POLICY, NAMES, long, Downstream())
    text = notes.annotations[STATUS]
    assert text is not None
    found = json.loads(text)
    told = f"the annotation {STATUS} has room for {len(found)} of {len(NAMES)} clusters"
    assert notes.cut == (told,)
    assert len(text.encode()) <= 64 * 1024
    assert 0 < len(found) < len(NAMES)
    assert list(found) == NAMES[: len(found)]
    assert found["c000"]["x0"] == "é" * 256


def test_the_list_of_copies_is_bounded_as_annotations_are() -> None:
    names = [f"{n:04d}-{'c' * 58}" for n in range(2000)]
    notes = placed_annotations(POLICY, names, {}, Downstream())
    text = notes.annotations[PLACED]
    assert text is not None
    found = [one["cluster"] for one in json.loads(text)]
    told = f"the annotation {PLACED} has room for {len(found)} of 2000 clusters"
    assert notes.cut == (told,)
    assert len(text.encode()) <= 96 * 1024
    assert found == names[: len(found)]
    assert 0 < len(found) < len(names)


def test_a_cluster_says_nothing_in_the_name_of_another() -> None:
    lie = ACCEPTED | {"acceptedMessage": "no\nway\x1b[2J; c2: Accepted: fine"}
    told = together({"c1": lie})["Accepted"][2]
    assert told == "c1: Accepted: no way [2J, c2: Accepted: fine"


def test_a_cluster_that_says_much_leaves_room_for_others() -> None:
    much = ACCEPTED | {"acceptedMessage": "x" * 40_000}
    told = together({"c1": much, "c2": ACCEPTED})["Accepted"][2]
    assert told == f"c1: Accepted: {'x' * 255}…; c2: Accepted: fine"
