"""What counts as a difference: all that is expected and not so, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.decisions.decision import parse_decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.guard import Placements
from kube_sync.guard.placements import PREFERENCES, SELECTOR
from kube_sync.inspect.scenarios.comparing import Difference, differences
from kube_sync.inspect.scenarios.scenario import Expectation, ExpectedMessage

FLEET = frozenset({"c1", "c2", "c3"})
PLACEMENTS = Placements({"example.com/on": "names"})
ZERO = {"weight": 0}
ON_C1 = {"c1": {"weight": 1}}
UNDEFINED = Outcome("u")
FAILED = Outcome("u", failure="rego: conflicting rules")


def decided(clusters: Any = None, **more: Any) -> Outcome:
    if clusters is not None:
        more["annotations"] = {PREFERENCES: {"clusters": clusters}} | more.get("annotations", {})
    return Outcome("u", parse_decision(msgspec.json.encode(more)))


CAT_AND_DOG = decided(errors=["cat", "dog"])
OTHER = ExpectedMessage("another failure", exact=False)


def compared(wanted: Expectation, outcome: Outcome) -> list[tuple[str, str, str, str]]:
    found = differences(wanted, outcome, PLACEMENTS, FLEET)
    return [(d.what, d.name, d.expected, d.got) for d in found]


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [
        (Expectation({"c1": {}, "c2": {}}), decided({"c1": {"weight": 1}, "c2": {"weight": 7}})),
        (Expectation({"c1": {"weight": 2}}), decided({"c1": {"weight": 2, "maxReplicas": 5}})),
        (Expectation({"c1": {"weight": 1}}), decided({"c1": {}, "c2": {"weight": 0}})),
        (Expectation({"c1": {}, "c2": {}}), decided({"*": {"weight": 1}, "c3": {"weight": 0}})),
        (Expectation({"c2": {"weight": 4}}), decided({"*": {"weight": 4}, "c1": ZERO, "c3": ZERO})),
        (Expectation({}), decided({})),
        (Expectation({"c1": {}}), decided(annotations={"example.com/on": "c1"})),
        (Expectation(contains=("c1",), excludes=("c2",)), decided({"c1": {}, "c3": {}})),
        (Expectation(excludes=("c2",)), decided(annotations={"a": "b"})),
        (
            Expectation({"c2": {}}, placement="example.com/on"),
            decided(ON_C1, annotations={"example.com/on": ["c2"]}),
        ),
        (Expectation(annotations={"a": "b", "c": None}), decided(ON_C1, annotations={"a": "b"})),
        (
            Expectation(annotations={"a": {"y": [1], "x": True}}),
            decided(annotations={"a": {"x": True, "y": [1]}}),
        ),
        (Expectation(labels={"l": "m", "n": None}), decided(labels={"l": "m", "o": "p"})),
        (Expectation(evict=True), decided(evict=True)),
        (
            Expectation(
                reasons={
                    "c1": ExpectedMessage("a; b"),
                    "c2": None,
                    "c3": ExpectedMessage("x", exact=False),
                }
            ),
            decided(ON_C1, reasons={"c1": ["a", "b"], "c3": "axe"}),
        ),
        (
            Expectation(errors=(ExpectedMessage("b"), ExpectedMessage("a"))),
            decided(ON_C1, errors=["a", "b"]),
        ),
        (Expectation(errors=(ExpectedMessage("a", exact=False),), complete=False), CAT_AND_DOG),
        (Expectation(errors=()), decided(ON_C1)),
        (Expectation(undecided=True), UNDEFINED),
        (Expectation(fails=ExpectedMessage("conflict", exact=False)), FAILED),
        (Expectation(unchanged=True), decided(reasons={"c1": "a"})),
    ],
)  # fmt: skip
def test_what_is_as_expected_does_not_differ(wanted: Expectation, outcome: Outcome) -> None:
    assert compared(wanted, outcome) == []


@pytest.mark.parametrize(
    ("wanted", "outcome", "found"),
    [
        (
            Expectation({"c1": {}, "c2": {}}),
            decided({"c2": {"weight": 1}, "c3": {"weight": 3}}),
            [
                ("cluster", "c1", "placed", "not placed"),
                ("cluster", "c3", "not placed", "weight 3"),
            ],
        ),
        (
            Expectation({"c1": {"weight": 2}}),
            decided(ON_C1),
            [("cluster", "c1", "weight 2", "weight 1")],
        ),
        (
            Expectation({"c1": {"weight": 1}}),
            decided(annotations={"example.com/on": "c1"}),
            [("cluster", "c1", "weight 1", "placed")],
        ),
        (Expectation({}), decided(ON_C1), [("cluster", "c1", "not placed", "weight 1")]),
        (
            Expectation(contains=("c2",), excludes=("c1",)),
            decided(ON_C1),
            [
                ("cluster", "c1", "not placed", "weight 1"),
                ("cluster", "c2", "placed", "not placed"),
            ],
        ),
        (
            Expectation(annotations={"a": "1", "b": None, "c": [1]}),
            decided(annotations={"a": 2, "b": "x", "c": "no json"}),
            [
                ("annotation", "a", "1", "2"),
                ("annotation", "b", "nothing", "x"),
                ("annotation", "c", "[1]", "no json"),
            ],
        ),
        (
            Expectation(labels={"l": "m", "n": None}),
            decided(labels={"l": "", "n": "o"}),
            [("label", "l", "m", '""'), ("label", "n", "nothing", "o")],
        ),
        (Expectation(evict=True), decided(ON_C1), [("evict", "", "true", "false")]),
        (
            Expectation(reasons={"c1": ExpectedMessage("a"), "c2": None}),
            decided(ON_C1, reasons={"c2": "b"}),
            [("reason", "c1", "a", "nothing"), ("reason", "c2", "nothing", "b")],
        ),
        (
            Expectation(errors=(ExpectedMessage("a"),)),
            decided(errors=["b"]),
            [("error", "", "a", "nothing"), ("error", "", "nothing", "b")],
        ),
        (
            Expectation(errors=(ExpectedMessage("a", exact=False),), complete=False),
            decided(errors=["b"]),
            [("error", "", "…a…", "nothing")],
        ),
        (
            Expectation(errors=(ExpectedMessage("a"),)),
            decided(ON_C1),
            [("decision", "", "refused: a", "it is not refused")],
        ),
        (Expectation(errors=()), decided(errors=["b"]), [("error", "", "nothing", "b")]),
        (
            Expectation(unchanged=True),
            decided(annotations={"a": "b"}, labels={"l": "m"}),
            [("annotation", "a", "nothing", "b"), ("label", "l", "nothing", "m")],
        ),
    ],
)
def test_each_thing_that_is_otherwise_is_told(
    wanted: Expectation, outcome: Outcome, found: list[tuple[str, str, str, str]]
) -> None:
    assert compared(wanted, outcome) == found


@pytest.mark.parametrize(
    ("outcome", "got"),
    [
        (UNDEFINED, "nothing is decided (undefined)"),
        (FAILED, "the evaluation fails: rego: conflicting rules"),
        (decided(ON_C1, errors=["no"]), "refused: no"),
        (decided(labels={"l": "m"}), "the policy writes no placement"),
        (
            decided(annotations={PREFERENCES: "eu"}),
            f"{PREFERENCES} cannot be read: eu",
        ),
        (
            decided(annotations={SELECTOR: "[]"}),
            f"{SELECTOR} selects clusters and names none: compare the annotation",
        ),
        (
            decided(ON_C1, annotations={"example.com/on": "c1"}),
            f"several placements, example.com/on, {PREFERENCES}: say which (`placement`)",
        ),
    ],
)
def test_what_would_not_be_written_as_a_placement_is_none(outcome: Outcome, got: str) -> None:
    for wanted, said in (
        (Expectation({"c1": {}}), "placed on c1"),
        (Expectation(contains=("c1",)), "placed on c1"),
        (Expectation({}), "placed on no cluster"),
    ):
        assert compared(wanted, outcome) == [("decision", "", said, got)]


@pytest.mark.parametrize(
    ("wanted", "outcome", "got"),
    [
        (Expectation(undecided=True), FAILED, "the evaluation fails: rego: conflicting rules"),
        (Expectation(undecided=True), decided(), "a decision"),
        (Expectation(fails=OTHER), FAILED, "the evaluation fails: rego: conflicting rules"),
        (Expectation(fails=OTHER), UNDEFINED, "nothing is decided (undefined)"),
        (Expectation(errors=(ExpectedMessage("a"),)), UNDEFINED, "nothing is decided (undefined)"),
        (Expectation(unchanged=True), UNDEFINED, "nothing is decided (undefined)"),
        (Expectation(labels={"a": None}), FAILED, "the evaluation fails: rego: conflicting rules"),
        (Expectation(excludes=("c1",)), decided(errors=["no"]), "refused: no"),
    ],
)  # fmt: skip
def test_silence_is_told_from_a_decision(wanted: Expectation, outcome: Outcome, got: str) -> None:
    ((what, _, _, found),) = compared(wanted, outcome)
    assert (what, found) == ("decision", got)


def test_what_the_policy_says_of_a_cluster_is_told_with_it() -> None:
    outcome = decided({"c9": {}}, reasons={"c1": "full", "c9": "new"})
    found = differences(Expectation({"c1": {}}), outcome, PLACEMENTS, FLEET)
    assert found == (
        Difference("cluster", "c1", "placed", "not placed", "full"),
        Difference("cluster", "c9", "not placed", "weight 1", "there is no such cluster; new"),
    )
