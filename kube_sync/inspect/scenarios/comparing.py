"""Compares the outcome of a case with its expectations. Pure.

Invariant: a workload that is refused, fails or is not decided on is placed nowhere, as nothing is
written then, so an expectation of a placement fails whatever the annotations would have been.
A case fails only by its expectations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kube_sync.decisions.decision import Decision, compact
from kube_sync.decisions.evaluator import Outcome
from kube_sync.errors import NO_JSON
from kube_sync.guard import Placements
from kube_sync.inspect.scenarios.placement import Placed, read_placement, share_text
from kube_sync.inspect.scenarios.scenario import Expectation, ExpectedMessage

What = Literal["decision", "cluster", "annotation", "label", "error", "reason", "evict"]

_ABSENT = "nothing"
_DECIDED = "a decision"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `note` is the policy's message about it."""

    what: What
    name: str
    expected: str
    got: str
    note: str = ""


def differences(
    expectation: Expectation, outcome: Outcome, placements: Placements, fleet: Collection[str]
) -> tuple[Difference, ...]:
    """Return all differences, none if the outcome is as expected."""
    decision = outcome.decision
    if (
        expectation.fails is not None
        or expectation.undecided
        or decision is None
        or outcome.failure
    ):
        return tuple(_without_decision(expectation, outcome))
    if expectation.refused or decision.errors:
        return tuple(_of_errors(expectation, decision))
    return tuple(_of_decision(expectation, decision, placements, fleet))


def summary(outcome: Outcome) -> str:
    """Summarise an outcome in a few words."""
    if outcome.failure is not None:
        return f"the evaluation fails: {outcome.failure}"
    if outcome.decision is None:
        return "nothing is decided (undefined)"
    if outcome.decision.errors:
        return f"refused: {'; '.join(outcome.decision.errors)}"
    return _DECIDED


def _without_decision(expectation: Expectation, outcome: Outcome) -> Iterator[Difference]:
    got = summary(outcome)
    if expectation.fails is not None:
        if outcome.failure is None or not expectation.fails.fits(outcome.failure):
            yield Difference("decision", "", f"the evaluation fails: {expectation.fails}", got)
    elif expectation.undecided:
        if outcome.decision is not None or outcome.failure is not None:
            yield Difference("decision", "", "nothing is decided (undefined)", got)
    else:
        yield Difference("decision", "", _expected(expectation), got)


def _expected(expectation: Expectation) -> str:
    if expectation.refused:
        return f"refused: {'; '.join(map(str, expectation.errors or ()))}"
    if expectation.clusters is not None:
        return f"placed on {', '.join(sorted(expectation.clusters)) or 'no cluster'}"
    if expectation.contains:
        return f"placed on {', '.join(expectation.contains)}"
    return _DECIDED


def _of_errors(expectation: Expectation, decision: Decision) -> Iterator[Difference]:
    messages = expectation.errors or ()
    if messages and not decision.errors:
        yield Difference("decision", "", _expected(expectation), "it is not refused")
    for message in messages:
        if decision.errors and not any(map(message.fits, decision.errors)):
            yield Difference("error", "", str(message), _ABSENT)
    if not messages and (expectation.places or expectation.annotations or expectation.unchanged):
        yield Difference("decision", "", _expected(expectation), summary(Outcome("", decision)))
    elif expectation.complete or not messages:
        for error in decision.errors:
            if not any(message.fits(error) for message in messages):
                yield Difference("error", "", _ABSENT, error)
    yield from _reasons(expectation, decision)


def _of_decision(
    expectation: Expectation, decision: Decision, placements: Placements, fleet: Collection[str]
) -> Iterator[Difference]:
    if expectation.places:
        found = read_placement(decision, placements, fleet, expectation.placement)
        yield from _clusters(expectation, found, decision, fleet)
    if expectation.unchanged:
        for key, value in decision.annotations.items():
            yield Difference("annotation", key, _ABSENT, value)
        for key, value in decision.labels.items():
            yield Difference("label", key, _ABSENT, value)
    for key, value in expectation.annotations.items():
        if not _is_annotation(value, got := decision.annotations.get(key)):
            yield Difference("annotation", key, _text(value), _text(got))
    for key, label in expectation.labels.items():
        if label != (got := decision.labels.get(key)):
            yield Difference("label", key, _text(label), _text(got))
    yield from _reasons(expectation, decision)
    if expectation.evict not in (None, decision.evict):
        yield Difference("evict", "", compact(expectation.evict), compact(decision.evict))


def _clusters(
    expectation: Expectation, found: Placed, decision: Decision, fleet: Collection[str]
) -> Iterator[Difference]:
    if found.unclear:
        # A workload that is not placed runs on no excluded cluster.
        if expectation.clusters is not None or expectation.contains or found.written:
            yield Difference("decision", "", _expected(expectation), found.unclear)
        return
    got = found.clusters
    for name in _ordered(expectation, got):
        note = decision.reasons.get(name, "")
        if name in got and name not in fleet:
            note = "; ".join(filter(None, ["there is no such cluster", note]))
        if expectation.clusters is not None:
            share, expected = got.get(name), expectation.clusters.get(name)
            is_right = (share is None) == (expected is None) and all(
                (share or {}).get(key) == value for key, value in (expected or {}).items()
            )
            if not is_right:
                yield Difference("cluster", name, share_text(expected), share_text(share), note)
        elif name in expectation.contains and name not in got:
            yield Difference("cluster", name, "placed", share_text(None), note)
        elif name in expectation.excludes and name in got:
            yield Difference("cluster", name, share_text(None), share_text(got[name]), note)


def _ordered(expectation: Expectation, got: Iterable[str]) -> list[str]:
    return sorted(
        {*(expectation.clusters or ()), *expectation.contains, *expectation.excludes, *got}
    )


def _reasons(expectation: Expectation, decision: Decision) -> Iterator[Difference]:
    for cluster, expected in expectation.reasons.items():
        got = decision.reasons.get(cluster)
        if not _is_expected_message(expected, got):
            yield Difference("reason", cluster, str(expected or _ABSENT), got or _ABSENT)


def _is_expected_message(expected: ExpectedMessage | None, got: str | None) -> bool:
    return got is None if expected is None else got is not None and expected.fits(got)


def _is_annotation(value: Any, got: str | None) -> bool:  # noqa: ANN401 - any JSON
    if value is None or got is None:
        return value is None and got is None
    if isinstance(value, str):
        return value == got
    try:
        return compact(msgspec.json.decode(got)) == compact(value)
    except NO_JSON:
        return False


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) and value else compact(value)
