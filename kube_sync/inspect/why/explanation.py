"""Assembles the answer to `why`: the decision, its rules, its inputs, and each cluster.

Invariant: a part that is not available has a reason, and the others are reported; of the
object only fields that policies read are reported, and of a Secret no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from kube_sync.config import SinkName
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.input_values import Input, inputs
from kube_sync.errors import NO_JSON
from kube_sync.guard import read_addition
from kube_sync.guard.additions import described
from kube_sync.inspect.plan.extra_documents import CanaryInEffect
from kube_sync.inspect.plan.snapshot import currents
from kube_sync.inspect.why.builtin_errors import BuiltinError
from kube_sync.inspect.why.case import Case, PlacementReader
from kube_sync.inspect.why.contrast import Objection
from kube_sync.inspect.why.search import Search
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads
from kube_sync.remediation.plan import KEEP, Current, Nothing, Unusable, Wanted, plan


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """The result for one cluster: chosen or not, the policy's message, and the derived reasons."""

    cluster: ObjectKey
    chosen: bool
    reason: str = ""
    objections: tuple[Objection, ...] = ()


@dataclass(frozen=True, slots=True)
class WhyReport:
    """The decision on one object, its causes, and the result for each cluster."""

    resource: str
    key: ObjectKey
    outcome: Outcome
    decided: tuple[str, ...]  # clusters
    has: tuple[str, ...]
    pending: str  # how the object differs from the decision; "": not at all
    move: str = ""  # the step of its move, "" if none is under way
    rules: tuple[Rule, ...] = ()
    rules_failure: str | None = None
    inputs: tuple[Input, ...] = ()
    inputs_failure: str | None = None
    cluster_results: tuple[ClusterResult, ...] = ()
    compared: str = ""  # the basis of the derived reasons, or why there are none
    search: Search | None = None
    canary: CanaryInEffect | None = None  # that decides on it; None: the policies in force do
    notes: tuple[str, ...] = field(default=())
    builtin_errors: tuple[BuiltinError, ...] = ()
    trace: str = ""  # the id of the trace of the decision and its write, "" if none is known


async def build_report(case: Case) -> WhyReport:
    """Return the report on the decision, without expressions against clusters.

    Raises SyncError.
    """
    reader, subject = PlacementReader.of(case.settings), case.subject
    body = case.world.input_of(subject.resource.name, subject.key)
    explanation = await case.opa.explain(body)
    current = (await currents({subject.key: subject.item}))[subject.key]
    sinks = case.settings.sinks_of(subject.resource)
    read, failure = inputs_read(body, case.reads)
    return WhyReport(
        subject.resource.name,
        subject.key,
        case.outcome,
        reader.decided_clusters(case.outcome),
        reader.names(current.annotations) if "annotations" in sinks else (),
        pending(case.outcome, current, sinks),
        step_of_move(current),
        _with_file_names(case, explanation.rules),
        explanation.failure,
        read,
        failure,
        cluster_results(case, reader),
        canary=case.worlds.canary,
        notes=_notes(case, reader),
    )


def pending(
    outcome: Outcome, current: Current, sinks: Sequence[SinkName] = ("annotations",)
) -> str:
    """Return how an object differs from its decision, "" if it does not."""
    step = plan(Wanted(current.uid, outcome.decision, outcome.failure, addition=KEEP), current)
    if "annotations" not in sinks and not isinstance(step, Unusable):
        return f"not in its annotations but in {', '.join(sinks)}; `remediate status` has the holds"
    match step:
        case Nothing():
            return ""
        case Unusable():
            return f"nothing is written: {step.reason}"
    return "would be written: " + ", ".join(sorted({*step.annotations, *step.labels}))


def step_of_move(current: Current) -> str:
    """Return in which step of a move an object is, "" if in none."""
    record = read_addition(current.annotations, math.inf)
    return "" if record is None else described(record)


def cluster_results(case: Case, reader: PlacementReader) -> tuple[ClusterResult, ...]:
    """Return for each cluster whether it is chosen, and the policy's message."""
    decision = case.outcome.decision
    reasons: Mapping[str, str] = decision.reasons if decision else {}
    return tuple(
        ClusterResult(
            key,
            reader.is_chosen(case.outcome, key.name),
            reasons.get(str(key)) or reasons.get(key.name, ""),
        )
        for key in sorted(case.worlds.clusters)
    )


def inputs_read(body: bytes, reads: Reads) -> tuple[tuple[Input, ...], str | None]:
    """Return the fields of an object that policies read, or why they are unknown."""
    if reads.gave_up is not None:
        return (), f"not known: {reads.gave_up}"
    try:
        return inputs(msgspec.json.decode(body, type=dict), reads.input), None
    except NO_JSON:
        return (), "the object cannot be read"


def _with_file_names(case: Case, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(
        msgspec.structs.replace(rule, file=case.world.file_name(rule.file)) for rule in rules
    )


def _notes(case: Case, reader: PlacementReader) -> tuple[str, ...]:
    found = list(case.worlds.notes)
    if case.outcome == replace(case.outcome, decision=None, failure=None):
        found.append("nothing is decided of it: are all policies here?")
    if reader.is_by_selector(case.outcome):
        found.append("clusters are chosen by a selector: by name it cannot be told which")
    if case.reads.impure:
        builtins = ", ".join(case.reads.impure)
        found.append(f"decided by {builtins}, which may answer otherwise another time")
    return tuple(found)
