"""What a case has to tell, put together: the decision, its rules, its inputs, and each cluster.

Keeps true: each part that cannot be had says why, and the others are told all the same; of the
object nothing is told but what policies read, and of a Secret no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Explaining, Rule
from kube_sync.decisions.inputs import Input, inputs
from kube_sync.decisions.requested import as_asked
from kube_sync.planning.snapshot import currents
from kube_sync.reasoning.answer import Standing, Told
from kube_sync.reasoning.case import Case
from kube_sync.reasoning.placed import Reader
from kube_sync.remediator.plan import Current, Held, Nothing, Wanted, plan


async def told(case: Case) -> Told:
    """Return all that is known of the decision but what speaks against clusters.

    Raises SyncError.
    """
    reader, subject = Reader.of(case.settings), case.subject
    body = as_asked(case.world.bodies[subject.resource.name][subject.key])
    explanation = await Explaining(case.opa, case.settings.placement.path).explain(
        body, case.modules
    )
    current = (await currents({subject.key: subject.item}))[subject.key]
    read, failure = _inputs(case, body)
    return Told(
        subject.resource.name,
        subject.key,
        case.outcome,
        reader.decided(case.outcome),
        reader.names(current.annotations),
        pending(case.outcome, current),
        _named(case, explanation.rules),
        explanation.failure,
        read,
        failure,
        standings(case, reader),
        canary=case.worlds.canary,
        notes=_notes(case, reader),
    )


def pending(outcome: Outcome, current: Current) -> str:
    """Return how an object differs from what is decided of it, empty where it does not."""
    step = plan(Wanted(current.uid, outcome.decision, outcome.failure), current)
    match step:
        case Nothing():
            return ""
        case Held():
            return f"nothing is written: {step.reason}"
    return "would be written: " + ", ".join(sorted({*step.annotations, *step.labels}))


def standings(case: Case, reader: Reader) -> tuple[Standing, ...]:
    """Return who is chosen, and what the policy says of each."""
    decision = case.outcome.decision
    reasons: Mapping[str, str] = decision.reasons if decision else {}
    return tuple(
        Standing(
            key,
            reader.chooses(case.outcome, key.name),
            reasons.get(str(key)) or reasons.get(key.name, ""),
        )
        for key in sorted(case.worlds.clusters)
    )


def _inputs(case: Case, body: bytes) -> tuple[tuple[Input, ...], str | None]:
    reads = case.reads
    if reads.gave_up is not None:
        return (), f"not known: {reads.gave_up}"
    try:
        return inputs(msgspec.json.decode(body, type=dict), reads.input), None
    except (msgspec.DecodeError, RecursionError):
        return (), "the object cannot be read"


def _named(case: Case, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(msgspec.structs.replace(rule, file=case.file(rule.file)) for rule in rules)


def _notes(case: Case, reader: Reader) -> tuple[str, ...]:
    found = list(case.worlds.notes)
    if case.outcome == replace(case.outcome, decision=None, failure=None):
        found.append("nothing is decided of it: are all policies here?")
    if reader.by_selector(case.outcome):
        found.append("clusters are chosen by a selector: by name it cannot be told which")
    if case.reads.impure:
        asked = ", ".join(case.reads.impure)
        found.append(f"decided by {asked}, which may answer otherwise another time")
    return tuple(found)
