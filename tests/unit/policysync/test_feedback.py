"""What the agent said of an earlier work is not what it says of this one."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.policysync.copies import Feedback
from kube_sync.policysync.feedback import feedback_of

Work = dict[str, Any]


def value(name: str, kind: str, **one: Any) -> Work:
    return {"name": name, "fieldValue": {"type": kind, **one}}


VALUES = [
    value("enforcedStatus", "String", string="False"),
    value("generation", "Integer", integer=2),
    value("ready", "Boolean", boolean=False),
    value("list", "JsonRaw", jsonRaw='["a"]'),
]


def work(*values: Work, generation: int = 1, **applied: Any) -> Work:
    """Return a work of generation 2 that was applied at a generation."""
    condition = {"type": "Applied", "status": "True", "observedGeneration": generation, **applied}
    manifest = {"conditions": [], "statusFeedback": {"values": list(values)}}
    return {
        "metadata": {"generation": 2},
        "status": {"conditions": [condition], "resourceStatus": {"manifests": [manifest]}},
    }


def test_scalars_are_read_with_their_types() -> None:
    assert feedback_of(work(*VALUES, generation=2)) == Feedback(
        applied=True,
        values={"enforcedStatus": "False", "generation": 2, "ready": False, "list": '["a"]'},
    )


@pytest.mark.parametrize(
    "one",
    [
        value("x", "Float", float=0.5),
        value("x", "String", integer=1),
        value("x", "Integer", integer=True),
        value("", "Integer", integer=1),
        {"name": "x"},
    ],
)
def test_a_value_that_is_not_as_it_says_is_none(one: Work) -> None:
    found = feedback_of(work(one, VALUES[1], generation=2))
    assert found is not None
    assert found.values == {"generation": 2}


@pytest.mark.parametrize("said", [{}, {"status": None}, {"status": {}}])
def test_a_work_that_no_agent_has_seen_says_nothing(said: Work) -> None:
    assert feedback_of({"metadata": {"generation": 1}, **said}) is None


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        ({"generation": 2}, True),
        ({"generation": 1}, None),
        ({"generation": 1, "status": "False"}, None),
        ({"generation": 2, "status": "False"}, False),
        ({"generation": 2, "status": "Unknown"}, None),
        ({"observedGeneration": None}, True),
        ({"type": "Available"}, None),
    ],
)
def test_whether_it_is_applied_is_known_of_this_generation_only(
    applied: Work, *, expected: bool | None
) -> None:
    found = feedback_of(work(**applied))
    assert found is not None
    assert found.applied is expected


def trouble(made: Work, *conditions: Work) -> str:
    made["status"]["resourceStatus"]["manifests"][0]["conditions"] = list(conditions)
    found = feedback_of(made)
    assert found is not None
    return found.problem


FAILED = {"type": "Applied", "status": "False", "message": "Failed to apply manifest: conflict"}
UNREAD = {"type": "StatusFeedbackSynced", "status": "False", "reason": "StatusFeedbackSyncFailed"}


def test_why_it_is_not_applied_is_told_in_the_words_of_the_spoke() -> None:
    refused = work(generation=2, status="False", message="1 of 1 failed")
    assert trouble(refused, FAILED) == FAILED["message"]
    assert trouble(refused, FAILED, UNREAD) == f"{FAILED['message']}; StatusFeedbackSyncFailed"
    assert trouble(refused) == "1 of 1 failed"
    assert trouble(work(generation=2, status="False")) == "Applied is False"


def test_what_failed_of_an_earlier_generation_is_not_told() -> None:
    assert trouble(work(generation=1, status="False"), FAILED) == ""


def test_a_path_that_could_not_be_read_is_told() -> None:
    assert trouble(work(generation=2), UNREAD) == "StatusFeedbackSyncFailed"


@pytest.mark.parametrize(
    "status",
    [
        1,
        {"conditions": [1]},
        {"conditions": [{"type": "Applied", "observedGeneration": "x"}]},
        {"resourceStatus": {"manifests": [{"statusFeedback": []}]}},
        {"resourceStatus": {"manifests": [{"conditions": "x"}]}, "conditions": [{"type": "X"}]},
    ],
)
def test_a_status_that_cannot_be_read_is_told(status: Any) -> None:
    found = feedback_of({"metadata": {}, "status": status})
    assert found is not None
    assert found.applied is None
    assert found.problem.startswith("the status of the work cannot be read: ")
