"""Derives what speaks against each cluster that is not chosen, if the policy does not say it.

An OPA that holds the policies with probes evaluates the decision. Invariant: no reported decision
comes from it; a module that would not compile with probes is loaded without. A result that is
too large is left out completely; a part that cannot be derived is reported as such, and does not
affect the rest of an answer.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from kube_sync.config import CLUSTERS
from kube_sync.decisions.explaining import LONGEST
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import SyncError
from kube_sync.inspect.plan.offline_opa import OfflineOpa, serving_world
from kube_sync.inspect.why.case import Case
from kube_sync.inspect.why.contrast import (
    EvaluationPaths,
    Objection,
    by_name,
    failing,
    gates,
    objections_to,
)
from kube_sync.inspect.why.explanation import ClusterResult, WhyReport
from kube_sync.inspect.why.probes import (
    BUILTINS,
    EVERYTHING,
    FLEET,
    MODULE,
    PROBED_DECISION,
    Note,
    Probed,
    Visible,
    insert_probes,
    module,
)
from kube_sync.inspect.why.search import DecisiveChange
from kube_sync.kube.collection import Item
from kube_sync.opa.modules import file_of
from kube_sync.opa.scratch import ScratchOpa

_SECONDS: Final = 20.0
_SECRET: Final = b'"Secret"'  # the kind, or a false positive
_ROUNDS: Final = 3  # of leaving out modules that do not compile with probes
_NOTE: Final = re.compile(r'.*\bNote "(?P<said>[A-Za-z0-9+/=]+)"')

_notes = msgspec.json.Decoder(Note)


async def with_objections(
    case: Case,
    report: WhyReport,
    trees: Mapping[str, Any],
    scratch: ScratchOpa,
    cluster: Item | None = None,
) -> WhyReport:
    """Return the report with expressions against all clusters, or against one (`cluster`).

    `trees` are the parsed syntax trees of the policies, by id.
    """
    results = [s for s in report.cluster_results if cluster is None or s.cluster == cluster.key]
    unexplained = [s for s in results if not s.chosen and (cluster is not None or not s.reason)]
    if not unexplained:
        return replace(report, cluster_results=tuple(results))
    try:
        async with _probed_evaluation(case, trees, scratch) as probes:
            found, compared = await _derive(probes, report, unexplained)
    except SyncError as error:
        return replace(
            report, cluster_results=tuple(results), compared=f"reasons are not derived: {error}"
        )
    reasons = {
        s.cluster: tuple(_with_file_names(case, f)) for s, f in zip(unexplained, found, strict=True)
    }
    explained = (replace(s, objections=reasons.get(s.cluster, ())) for s in results)
    return replace(report, cluster_results=tuple(explained), compared=compared)


async def _derive(
    probes: ProbedEvaluation, report: WhyReport, unexplained: Iterable[ClusterResult]
) -> tuple[list[tuple[Objection, ...]], str]:
    """Return the expressions against each cluster, and what it was compared with."""
    probed = probes.probed
    paths = await probes.paths()
    chosen = [str(s.cluster) for s in report.cluster_results if s.chosen]
    found = [objections_to(str(s.cluster), paths, paths, chosen, probed) for s in unexplained]
    if any(found):
        return _or_by_name(found, unexplained, paths, probes), "compared with those that are chosen"
    if report.search is not None and report.search.found:
        (result,) = unexplained
        changed_paths = await probes.paths(_changed_item(report, report.search.found[0]))
        name = str(result.cluster)
        if one := objections_to(name, paths, changed_paths, [name], probed):
            return [one], "compared with itself after the smallest change"
    if chosen:
        return _or_by_name(found, unexplained, paths, probes), "compared with those that are chosen"
    ends = [failing(str(s.cluster), paths, probed) for s in unexplained]
    named = _or_by_name(ends, unexplained, paths, probes)
    return [one or gates(paths, probed) for one in named], "none is chosen to compare with"


def _or_by_name(
    found: Iterable[tuple[Objection, ...]],
    unexplained: Iterable[ClusterResult],
    paths: EvaluationPaths,
    probes: ProbedEvaluation,
) -> list[tuple[Objection, ...]]:
    """Return what was found and, where that is nothing, the rules that name a cluster."""
    pairs = zip(found, unexplained, strict=True)
    return [one or by_name(s.cluster.name, paths, probes.probed) for one, s in pairs]


def _changed_item(report: WhyReport, change: DecisiveChange) -> tuple[str, Item]:
    return (CLUSTERS if change.change.of == "cluster" else report.resource, change.item)


def _with_file_names(case: Case, found: Iterable[Objection]) -> Iterable[Objection]:
    return (replace(one, file=case.world.file_name(one.file)) for one in found)


class ProbedEvaluation:
    """Evaluates probes for the current state, and with another object in its place."""

    def __init__(self, case: Case, opa: OfflineOpa, probed: Probed) -> None:
        self._case = case
        self._opa = opa
        self.probed = probed

    async def paths(self, change: tuple[str, Item] | None = None) -> EvaluationPaths:
        """Return the paths of all clusters, after a lasting change of an object of a collection.

        Raises SyncError.
        """
        subject = self._case.subject
        name, key = subject.resource.name, subject.key
        body = self._case.world.bodies[name][key]
        if change is not None:
            of, item = change
            reduced = await self._case.put(self._opa, of, item)
            body = reduced if (of, item.key) == (name, key) else body
        query = b'{"input":' + as_requested(body) + b"}"
        found = await self._opa.client.explain(
            PROBED_DECISION, query, LONGEST, _SECONDS, what="notes"
        )
        return EvaluationPaths.of(_decode_notes(found.explanation))


@asynccontextmanager
async def _probed_evaluation(
    case: Case, trees: Mapping[str, Any], scratch: ScratchOpa
) -> AsyncGenerator[ProbedEvaluation]:
    """Yield the evaluation of probes, in an OPA of its own. Raises SyncError."""
    found = await _insert_probes(case, trees, scratch)
    world = replace(case.world, modules=found.modules)
    async with serving_world(scratch, case.settings, world, given=BUILTINS) as opa:
        await opa.client.put_data(FLEET, _fleet(case.worlds.clusters.values()))
        yield ProbedEvaluation(case, opa, found)


async def _insert_probes(case: Case, trees: Mapping[str, Any], scratch: ScratchOpa) -> Probed:
    visible, remaining = _visible_terms(case), dict(trees)
    path = case.settings.placement.path
    modules = {**case.world.modules, MODULE: module(path)}
    for _ in range(_ROUNDS):
        found = insert_probes(modules, remaining, path, visible)
        causes = await scratch.check(found.modules, BUILTINS)
        if not causes:
            return found
        files = {(cause.get("location") or {}).get("file") for cause in causes}
        remaining = {i: tree for i, tree in remaining.items() if not files & {i, file_of(i)}}
    return insert_probes(modules, {}, path, visible)


def _visible_terms(case: Case) -> Visible:
    """Return the terms whose values are shown: variables may have those of Secrets in OPA."""
    everything = case.world.bodies
    if _SECRET in everything[case.subject.resource.name][case.subject.key]:
        return ()
    secrets = any(_SECRET in body for objects in everything.values() for body in objects.values())
    return ("input.",) if secrets else EVERYTHING


def _fleet(clusters: Iterable[Item]) -> bytes:
    names: dict[str, list[str]] = {}
    uids: dict[str, str] = {}
    for item in clusters:
        names.setdefault(item.key.name, []).append(str(item.key))
        if item.uid:
            uids[item.uid] = str(item.key)
    return msgspec.json.encode({"names": names, "uids": uids})


def _decode_notes(explanation: Iterable[str]) -> Iterator[Note]:
    for line in explanation:
        if found := _NOTE.fullmatch(line):
            yield _notes.decode(base64.b64decode(found["said"]))
