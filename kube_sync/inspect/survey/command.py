"""The handler of `kube-sync analyze`, from the request to the output.

Invariant: nothing is written but the output; a cluster and an OPA are only
read, and a server is contacted only if it is needed. Wired here and not in `processes`: it
needs none of the long-running parts, and must start without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

from kube_sync.config import Settings, masked
from kube_sync.errors import Misconfigured, SyncError, Terminal
from kube_sync.inspect.sarif.report import of_error, write_sarif
from kube_sync.inspect.survey import sarif
from kube_sync.inspect.survey.clusterobjects import objects_of
from kube_sync.inspect.survey.exported import Exported, Found, read_objects
from kube_sync.inspect.survey.findings import Finding, Savings, find, tallies
from kube_sync.inspect.survey.places import discover_places, guess_places
from kube_sync.inspect.survey.policysets import PolicySet, set_of_opa, sets_of_files
from kube_sync.inspect.survey.progress import Progress
from kube_sync.inspect.survey.report import as_json, as_tree
from kube_sync.inspect.survey.sources import read_sources
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.objects import SECRET_VALUES
from kube_sync.opa.analysis.result import Collection
from kube_sync.opa.client import opa_client
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policykinds.printing import Answer

PrintLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What to analyse, what to compare it with, and how to print it."""

    paths: tuple[str, ...]  # folders and files; none: the policies of the configured OPA
    decision: str | None = None  # None: the configured one
    json: bool = False
    max_whole: int | None = None
    cluster: bool = False
    objects: str | None = None  # a file, "-" for standard input
    cluster_scoped: frozenset[str] = frozenset()  # resources by their name in OPA
    sarif: str | None = None  # a file for the report for code scanning


@dataclass(slots=True)
class _Objects:
    """The source of objects, if one is requested, and their places."""

    source: str
    places: Mapping[str, Collection]
    client: KubeClient | None = None
    exported: Exported | None = None
    unknown: frozenset[str] = field(default_factory=frozenset)


async def run(request: Request, settings: Settings, report: PrintLine) -> Answer:
    """Analyse, measure, and return the output. Raises SyncError."""
    try:
        return await _run(request, settings, report)
    except SyncError as error:
        write_sarif(request.sarif, "analyze", of_error(error))
        raise


async def _run(request: Request, settings: Settings, report: PrintLine) -> Answer:
    progress = Progress(report)
    decision = request.decision or settings.placement.path
    async with AsyncExitStack() as stack:
        objects = await _open_objects(request, settings, stack, report)
        sets = await _read_policies(request, settings, progress, report)
        findings = await _analyze(sets, decision, objects.places, settings, progress)
        saved = await _measure(findings, settings, objects, progress)
    write_sarif(request.sarif, "analyze", sarif.findings(findings, request.max_whole))
    show = as_json if request.json else as_tree
    violations = tuple(_violations(findings, request.max_whole))
    return Answer(show(decision, findings, saved), 1 if violations else 0, violations)


async def _open_objects(
    request: Request, settings: Settings, stack: AsyncExitStack, report: PrintLine
) -> _Objects:
    replicate = settings.replicate
    if request.cluster:
        client = await stack.enter_async_context(kube_client(settings.kubernetes))
        places, unknown = await discover_places(client, replicate)
        return _Objects(client.server, places, client, unknown=unknown)
    if request.objects is None:
        return _Objects("", guess_places(replicate, request.cluster_scoped))
    exported = await asyncio.to_thread(read_objects, request.objects)
    for kind, number in sorted(exported.unknown_kinds(replicate.resources).items()):
        report(f"{exported.file}: {number} of {kind} left out: not in replicate.resources")
    places = guess_places(replicate, request.cluster_scoped, exported)
    return _Objects(exported.file, places, exported=exported)


async def _read_policies(
    request: Request, settings: Settings, progress: Progress, report: PrintLine
) -> Sequence[PolicySet]:
    if request.paths:
        sources = await asyncio.to_thread(
            read_sources, request.paths, settings.policies.rego_version
        )
        compiler = ScratchOpa.of(settings)
        return await sets_of_files(sources, ", ".join(request.paths), compiler, progress)
    async with opa_client(settings.opa) as opa:
        policies = await opa.compiled_policies()
        name = masked(settings.opa.url)
        return [await set_of_opa(policies, name, _parser(settings, report), progress)]


def _parser(settings: Settings, report: PrintLine) -> ScratchOpa | None:
    """Return the scratch OPA that determines rows; the analysis works without it."""
    try:
        return ScratchOpa.of(settings)
    except Misconfigured as error:
        report(f"rows are not known: {error}")
        return None


async def _analyze(
    sets: Sequence[PolicySet],
    decision: str,
    places: Mapping[str, Collection],
    settings: Settings,
    progress: Progress,
) -> list[Finding]:
    findings = []
    for policies in sets:
        with progress.during(f"analysing {policies.name}"):
            findings.append(await asyncio.to_thread(find, policies, decision, places, settings))
    if not any(finding.defined for finding in findings):
        msg = f"no policy of {', '.join(f.name for f in findings)} has a rule at {decision}"
        raise Terminal(msg)
    return findings


async def _measure(
    findings: Sequence[Finding], settings: Settings, objects: _Objects, progress: Progress
) -> dict[str, Savings]:
    if not objects.source:
        return {}
    targets = settings.placement.names
    saved = {
        finding.name: Savings(objects.source, tallies(finding.reads, targets), objects.unknown)
        for finding in findings
        if finding.defined
    }
    async with aclosing(_read_objects(settings, objects, progress)) as found:
        await _count(saved, found, {r.name for r in settings.replicate.resources if r.withholds})
    return saved


async def _read_objects(
    settings: Settings, objects: _Objects, progress: Progress
) -> AsyncGenerator[Found]:
    replicate = settings.replicate
    if objects.client is not None:
        known = {n: place for n, place in objects.places.items() if n not in objects.unknown}
        async with aclosing(objects_of(objects.client, replicate, known, progress)) as listed:
            async for found in listed:
                yield found
    elif objects.exported is not None:
        for found in objects.exported.of(replicate.resources):
            yield found


async def _count(
    saved: Mapping[str, Savings], objects: AsyncIterator[Found], withholding: Container[str]
) -> None:
    """Count all objects, those of `withholding` resources without the values of Secrets."""
    async for name, whole, size in objects:
        value = whole
        if name in withholding:
            value = {key: found for key, found in whole.items() if key not in SECRET_VALUES}
        for savings in saved.values():
            savings.tallies[name].add(value, size)


def _violations(findings: Sequence[Finding], most: int | None) -> list[str]:
    if most is None:
        return []
    return [
        f"{finding.name}: everything counts as read: {finding.reads.gave_up}"
        if finding.reads.gave_up is not None
        else f"{finding.name}: {_whole_fields_text(finding.whole)}, --max-whole allows {most}"
        for finding in findings
        if finding.defined and (finding.whole > most or finding.reads.gave_up is not None)
    ]


def _whole_fields_text(number: int) -> str:
    return "1 field is read whole" if number == 1 else f"{number} fields are read whole"
