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
from kube_sync.inspect.scenarios.placement import Placed, placed, shown
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
    wanted: Expectation, outcome: Outcome, placements: Placements, fleet: Collection[str]
) -> tuple[Difference, ...]:
    """Return all differences, none if the outcome is as expected."""
    decision = outcome.decision
    if wanted.fails is not None or wanted.undecided or decision is None or outcome.failure:
        return tuple(_of_silence(wanted, outcome))
    if wanted.refused or decision.errors:
        return tuple(_of_errors(wanted, decision))
    return tuple(_of_decision(wanted, decision, placements, fleet))


def summary(outcome: Outcome) -> str:
    """Summarise an outcome in a few words."""
    if outcome.failure is not None:
        return f"the evaluation fails: {outcome.failure}"
    if outcome.decision is None:
        return "nothing is decided (undefined)"
    if outcome.decision.errors:
        return f"refused: {'; '.join(outcome.decision.errors)}"
    return _DECIDED


def _of_silence(wanted: Expectation, outcome: Outcome) -> Iterator[Difference]:
    got = summary(outcome)
    if wanted.fails is not None:
        if outcome.failure is None or not wanted.fails.fits(outcome.failure):
            yield Difference("decision", "", f"the evaluation fails: {wanted.fails}", got)
    elif wanted.undecided:
        if outcome.decision is not None or outcome.failure is not None:
            yield Difference("decision", "", "nothing is decided (undefined)", got)
    else:
        yield Difference("decision", "", _expected(wanted), got)


def _expected(wanted: Expectation) -> str:
    if wanted.refused:
        return f"refused: {'; '.join(map(str, wanted.errors or ()))}"
    if wanted.clusters is not None:
        return f"placed on {', '.join(sorted(wanted.clusters)) or 'no cluster'}"
    if wanted.contains:
        return f"placed on {', '.join(wanted.contains)}"
    return _DECIDED


def _of_errors(wanted: Expectation, decision: Decision) -> Iterator[Difference]:
    expected = wanted.errors or ()
    if expected and not decision.errors:
        yield Difference("decision", "", _expected(wanted), "it is not refused")
    for said in expected:
        if decision.errors and not any(map(said.fits, decision.errors)):
            yield Difference("error", "", str(said), _ABSENT)
    if not expected and (wanted.places or wanted.annotations or wanted.unchanged):
        yield Difference("decision", "", _expected(wanted), summary(Outcome("", decision)))
    elif wanted.complete or not expected:
        for message in decision.errors:
            if not any(said.fits(message) for said in expected):
                yield Difference("error", "", _ABSENT, message)
    yield from _reasons(wanted, decision)


def _of_decision(
    wanted: Expectation, decision: Decision, placements: Placements, fleet: Collection[str]
) -> Iterator[Difference]:
    if wanted.places:
        found = placed(decision, placements, fleet, wanted.placement)
        yield from _clusters(wanted, found, decision, fleet)
    if wanted.unchanged:
        for key, value in decision.annotations.items():
            yield Difference("annotation", key, _ABSENT, value)
        for key, value in decision.labels.items():
            yield Difference("label", key, _ABSENT, value)
    for key, value in wanted.annotations.items():
        if not _is_annotation(value, got := decision.annotations.get(key)):
            yield Difference("annotation", key, _text(value), _text(got))
    for key, label in wanted.labels.items():
        if label != (got := decision.labels.get(key)):
            yield Difference("label", key, _text(label), _text(got))
    yield from _reasons(wanted, decision)
    if wanted.evict not in (None, decision.evict):
        yield Difference("evict", "", compact(wanted.evict), compact(decision.evict))


def _clusters(
    wanted: Expectation, found: Placed, decision: Decision, fleet: Collection[str]
) -> Iterator[Difference]:
    if found.unclear:
        # A workload that is not placed runs on no excluded cluster.
        if wanted.clusters is not None or wanted.contains or found.written:
            yield Difference("decision", "", _expected(wanted), found.unclear)
        return
    got = found.clusters
    for name in _ordered(wanted, got):
        note = decision.reasons.get(name, "")
        if name in got and name not in fleet:
            note = "; ".join(filter(None, ["there is no such cluster", note]))
        if wanted.clusters is not None:
            share, expected = got.get(name), wanted.clusters.get(name)
            is_right = (share is None) == (expected is None) and all(
                (share or {}).get(key) == value for key, value in (expected or {}).items()
            )
            if not is_right:
                yield Difference("cluster", name, shown(expected), shown(share), note)
        elif name in wanted.contains and name not in got:
            yield Difference("cluster", name, "placed", shown(None), note)
        elif name in wanted.excludes and name in got:
            yield Difference("cluster", name, shown(None), shown(got[name]), note)


def _ordered(wanted: Expectation, got: Iterable[str]) -> list[str]:
    return sorted({*(wanted.clusters or ()), *wanted.contains, *wanted.excludes, *got})


def _reasons(wanted: Expectation, decision: Decision) -> Iterator[Difference]:
    for cluster, said in wanted.reasons.items():
        got = decision.reasons.get(cluster)
        if not _is_said(said, got):
            yield Difference("reason", cluster, str(said or _ABSENT), got or _ABSENT)


def _is_said(said: ExpectedMessage | None, got: str | None) -> bool:
    return got is None if said is None else got is not None and said.fits(got)


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
