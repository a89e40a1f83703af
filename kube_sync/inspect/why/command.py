"""The handlers of `kube-sync why` (also with `--at`) and `why-not`.

Invariant: a cluster is only read, the serving OPA gets no query, and no partial
answer is printed. Wired here and not in `processes`, as `plan` is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kube_sync.config import CLUSTERS, Settings
from kube_sync.inspect.plan import sources
from kube_sync.inspect.plan.comparison import worlds
from kube_sync.inspect.plan.extra_documents import in_effect
from kube_sync.inspect.plan.offline import authored, both, inputs_module
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Snapshot
from kube_sync.inspect.survey.progress import Progress
from kube_sync.inspect.why.case import opened_case
from kube_sync.inspect.why.explanation import WhyReport, told
from kube_sync.inspect.why.objections import weighed
from kube_sync.inspect.why.report import as_json, as_text
from kube_sync.inspect.why.search import search
from kube_sync.inspect.why.subject import Subject, cluster, subject
from kube_sync.kube.naming import Reference
from kube_sync.opa.paths import object_path
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policykinds.printing import Answer

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.why.past import Recalled

Say = Callable[[str], None]
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


async def run(question: Question, settings: Settings, say: Say) -> Answer:
    """Answer a question, and return the output. Raises SyncError: there is no answer."""
    progress = Progress(say)
    snapshot = await sources.snapshot_of(question.world, settings, progress)
    columns = shutil.get_terminal_size((100, 40)).columns
    texts = []
    for one in (question.subject, *question.others):
        found = await answered(replace(question, subject=one), settings, snapshot, progress)
        texts.append(as_json(found) if question.form == "json" else as_text(found, columns))
    return Answer("\n\n".join(texts), 0)


async def run_past(asked: Recalled, settings: Settings) -> Answer:
    """Answer a question about the past from the ledger alone. Raises SyncError."""
    # Imported here: what reads a ledger is needed for the past only.
    from kube_sync.inspect.why.past import past  # noqa: PLC0415
    from kube_sync.inspect.why.pastreport import past_as_json, past_as_text  # noqa: PLC0415
    from kube_sync.inspect.why.pastrules import derived  # noqa: PLC0415
    from kube_sync.ledger.reading import reading  # noqa: PLC0415

    with reading(Path(asked.file)) as ledger:
        found = past(ledger, asked)
    rules = await derived(found, settings, lambda: ScratchOpa.of(settings))
    if asked.form == "json":
        return Answer(past_as_json(found, rules), 0)
    return Answer(past_as_text(found, rules, shutil.get_terminal_size((100, 40)).columns), 0)


async def answered(
    question: Question, settings: Settings, snapshot: Snapshot, progress: Progress
) -> WhyReport:
    """Return the answer over a snapshot. Raises SyncError."""
    scratch = ScratchOpa.of(settings)
    # A misspelt name is reported at once, before anything is compiled.
    meant = _subject(question, settings, snapshot)
    on = await in_effect(snapshot.configmaps, settings.policies)
    on = on if on is not None and on.side.has(meant.key) else None
    sides = await worlds(question.world, settings, snapshot, scratch, progress, on)
    asked = _subject(question, settings, sides.snapshot)
    about, more = None, {}
    if question.cluster is not None:
        about = cluster(question.cluster, sides.snapshot.fleet()[1])
        root = settings.replicate.root
        places = ((asked.resource.name, asked.key), (CLUSTERS, about.key))
        more = inputs_module(settings.placement.path, (object_path(root, *one) for one in places))
    policies = authored(settings, sides.then.modules)
    async with opened_case(settings, sides, asked, scratch, more) as case:
        found, trees = await both(told(case), scratch.parsed(policies))
        if about is None:
            return await weighed(case, found, trees, scratch)
        (standing,) = (s for s in found.standings if s.cluster == about.key)
        if standing.chosen:
            return replace(found, standings=(standing,))
        turning = await search(case, about, trees, question.tries, progress)
        return await weighed(case, replace(found, search=turning), trees, scratch, about)


def _subject(question: Question, settings: Settings, snapshot: Snapshot) -> Subject:
    targets, objects = settings.targets(), snapshot.objects
    return subject(question.subject, question.namespace, targets, objects, question.kinds)
