"""The handlers of `kube-sync why` (also with `--at`) and `why-not`.

Invariant: a cluster is only read, the serving OPA gets no query, and no partial
answer is printed. Wired here and not in `processes`, as `plan` is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kube_sync.config import CLUSTERS, Decisions, Settings
from kube_sync.errors import SyncError
from kube_sync.inspect.plan import sources
from kube_sync.inspect.plan.extra_documents import in_effect
from kube_sync.inspect.plan.offline_opa import authored, gather_both, inputs_module
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Snapshot
from kube_sync.inspect.plan.worlds import worlds
from kube_sync.inspect.survey.progress import Progress
from kube_sync.inspect.why.builtin_errors import builtin_errors
from kube_sync.inspect.why.case import open_case
from kube_sync.inspect.why.explanation import WhyReport, build_report
from kube_sync.inspect.why.objections import with_objections
from kube_sync.inspect.why.report import as_json, as_text
from kube_sync.inspect.why.search import search
from kube_sync.inspect.why.subject import Subject, find_cluster, find_subject
from kube_sync.kube.naming import Reference
from kube_sync.observability.printing import joined
from kube_sync.opa.paths import object_path
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policykinds.printing import Answer

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.why.past import PastRequest

PrintLine = Callable[[str], None]
TRIES: Final = 300
Form = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask about which object, in which world, and how to print the answer."""

    subject: Reference
    namespace: str | None = None
    cluster: str | None = None  # None: all of them, without a search
    tries: int = TRIES
    form: Form = "text"
    world: Request = field(default_factory=Request)
    others: tuple[Reference, ...] = ()  # to ask the same about
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)  # what discovery calls them
    stream: Decisions | None = None  # where traces are to be looked up; None: nowhere


async def run(question: Question, settings: Settings, report: PrintLine) -> Answer:
    """Answer a question, and return the output. Raises SyncError: there is no answer."""
    progress = Progress(report)
    snapshot = await sources.snapshot_of(question.world, settings, progress)
    columns = shutil.get_terminal_size((100, 40)).columns
    found = [
        await build_answer(replace(question, subject=reference), settings, snapshot, progress)
        for reference in (question.subject, *question.others)
    ]
    if question.stream is not None:
        found = await _with_traces(found, question.stream, settings)
    texts = [as_json(one) if question.form == "json" else as_text(one, columns) for one in found]
    return Answer(joined(texts), 0)


async def run_past(requests: Sequence[PastRequest], settings: Settings) -> Answer:
    """Answer questions about the past from the ledger alone. Raises SyncError."""
    # Imported here: what reads a ledger is needed for the past only.
    from kube_sync.inspect.why.past import read_past  # noqa: PLC0415
    from kube_sync.inspect.why.past_report import past_as_json, past_as_text  # noqa: PLC0415
    from kube_sync.inspect.why.past_rules import derive  # noqa: PLC0415
    from kube_sync.ledger.reading import reading  # noqa: PLC0415

    columns, texts = shutil.get_terminal_size((100, 40)).columns, []
    for request in requests:
        with reading(Path(request.file)) as ledger:
            found = read_past(ledger, request)
        rules = await derive(found, settings, lambda: ScratchOpa.of(settings))
        in_json = request.form == "json"
        texts.append(past_as_json(found, rules) if in_json else past_as_text(found, rules, columns))
    return Answer(joined(texts), 0)


async def _with_traces(
    reports: Sequence[WhyReport], stream: Decisions, settings: Settings
) -> list[WhyReport]:
    """Return the reports with the traces of their decisions, as far as the replicator knows any."""
    from kube_sync.inspect.why.decision_trace import read_records, trace_of  # noqa: PLC0415 - slow

    kinds = {resource.name: resource.gvr for resource in settings.targets()}
    names = [(kinds[report.resource], report.key) for report in reports]
    try:
        records = await read_records(stream, names)
    except SyncError as error:
        note = f"the trace is not known: {error}"
        return [replace(report, notes=(*report.notes, note)) for report in reports]
    return [
        replace(report, trace=trace_of(records[name], report.outcome))
        if name in records
        else report
        for name, report in zip(names, reports, strict=True)
    ]


async def build_answer(
    question: Question, settings: Settings, snapshot: Snapshot, progress: Progress
) -> WhyReport:
    """Return the answer over a snapshot. Raises SyncError."""
    scratch = ScratchOpa.of(settings)
    # A misspelt name is reported at once, before anything is compiled.
    named = _find_subject(question, settings, snapshot)
    canary = await in_effect(snapshot.configmaps, settings.policies)
    canary = canary if canary is not None and canary.side.has(named.key) else None
    sides = await worlds(question.world, settings, snapshot, scratch, progress, canary)
    target = _find_subject(question, settings, sides.snapshot)
    cluster_item, more = None, {}
    if question.cluster is not None:
        cluster_item = find_cluster(question.cluster, sides.snapshot.fleet()[1])
        root = settings.replicate.root
        places = ((target.resource.name, target.key), (CLUSTERS, cluster_item.key))
        more = inputs_module(settings.placement.path, (object_path(root, *one) for one in places))
    policies = authored(settings, sides.then.modules)
    async with open_case(settings, sides, target, scratch, more) as case:
        found, trees = await gather_both(build_report(case), scratch.parsed(policies))
        found = replace(found, builtin_errors=await builtin_errors(case, scratch, cluster_item))
        if cluster_item is None:
            return await with_objections(case, found, trees, scratch)
        (result,) = (s for s in found.cluster_results if s.cluster == cluster_item.key)
        if result.chosen:
            return replace(found, cluster_results=(result,))
        changes = await search(case, cluster_item, trees, question.tries, progress)
        return await with_objections(
            case, replace(found, search=changes), trees, scratch, cluster_item
        )


def _find_subject(question: Question, settings: Settings, snapshot: Snapshot) -> Subject:
    targets, objects = settings.targets(), snapshot.objects
    return find_subject(question.subject, question.namespace, targets, objects, question.kinds)
