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
    Against,
    EvaluationPaths,
    against,
    by_name,
    failing,
    gates,
)
from kube_sync.inspect.why.explanation import ClusterResult, WhyReport
from kube_sync.inspect.why.probes import (
    ASKED,
    BUILTINS,
    EVERYTHING,
    FLEET,
    MODULE,
    Note,
    Probed,
    Visible,
    module,
    probed,
)
from kube_sync.inspect.why.search import TurningChange
from kube_sync.kube.collection import Item
from kube_sync.opa.modules import file_of
from kube_sync.opa.scratch import ScratchOpa

_SECONDS: Final = 20.0
_SECRET: Final = b'"Secret"'  # the kind, or a false positive
_ROUNDS: Final = 3  # of leaving out modules that do not compile with probes
_NOTE: Final = re.compile(r'.*\bNote "(?P<said>[A-Za-z0-9+/=]+)"')

_notes = msgspec.json.Decoder(Note)


async def weighed(
    case: Case,
    told: WhyReport,
    trees: Mapping[str, Any],
    scratch: ScratchOpa,
    about: Item | None = None,
) -> WhyReport:
    """Return the report with expressions against all clusters, or against one (`about`).

    `trees` are the parsed syntax trees of the policies, by id.
    """
    asked = [s for s in told.standings if about is None or s.cluster == about.key]
    silent = [s for s in asked if not s.chosen and (about is not None or not s.said)]
    if not silent:
        return replace(told, standings=tuple(asked))
    try:
        async with _watching(case, trees, scratch) as watched:
            found, compared = await _derived(watched, told, silent)
    except SyncError as error:
        return replace(told, standings=tuple(asked), compared=f"reasons are not derived: {error}")
    reasons = {s.cluster: tuple(_named(case, f)) for s, f in zip(silent, found, strict=True)}
    standings = (replace(s, against=reasons.get(s.cluster, ())) for s in asked)
    return replace(told, standings=tuple(standings), compared=compared)


async def _derived(
    watched: Watching, told: WhyReport, silent: Iterable[ClusterResult]
) -> tuple[list[tuple[Against, ...]], str]:
    """Return the expressions against each cluster, and what it was compared with."""
    probed = watched.probed
    now = await watched.ways()
    chosen = [str(s.cluster) for s in told.standings if s.chosen]
    found = [against(str(s.cluster), now, now, chosen, probed) for s in silent]
    if any(found):
        return _with_named(found, silent, now, watched), "compared with those that are chosen"
    if told.search is not None and told.search.found:
        (standing,) = silent
        then = await watched.ways(_changed(told, told.search.found[0]))
        name = str(standing.cluster)
        if one := against(name, now, then, [name], probed):
            return [one], "compared with itself after the smallest change"
    if chosen:
        return _with_named(found, silent, now, watched), "compared with those that are chosen"
    ends = [failing(str(s.cluster), now, probed) for s in silent]
    named = _with_named(ends, silent, now, watched)
    return [one or gates(now, probed) for one in named], "none is chosen to compare with"


def _with_named(
    found: Iterable[tuple[Against, ...]],
    silent: Iterable[ClusterResult],
    now: EvaluationPaths,
    watched: Watching,
) -> list[tuple[Against, ...]]:
    """Return what was found and, where that is nothing, the rules that name a cluster."""
    pairs = zip(found, silent, strict=True)
    return [one or by_name(s.cluster.name, now, watched.probed) for one, s in pairs]


def _changed(told: WhyReport, turn: TurningChange) -> tuple[str, Item]:
    return (CLUSTERS if turn.change.of == "cluster" else told.resource, turn.item)


def _named(case: Case, found: Iterable[Against]) -> Iterable[Against]:
    return (replace(one, file=case.world.called(one.file)) for one in found)


class Watching:
    """Evaluates probes for the current state, and with another object in its place."""

    def __init__(self, case: Case, opa: OfflineOpa, probed: Probed) -> None:
        self._case = case
        self._opa = opa
        self.probed = probed

    async def ways(self, change: tuple[str, Item] | None = None) -> EvaluationPaths:
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
        question = b'{"input":' + as_requested(body) + b"}"
        found = await self._opa.client.explain(ASKED, question, LONGEST, _SECONDS, what="notes")
        return EvaluationPaths.of(_said(found.explanation))


@asynccontextmanager
async def _watching(
    case: Case, trees: Mapping[str, Any], scratch: ScratchOpa
) -> AsyncGenerator[Watching]:
    """Yield the evaluation of probes, in an OPA of its own. Raises SyncError."""
    found = await _compiling(case, trees, scratch)
    world = replace(case.world, modules=found.modules)
    async with serving_world(scratch, case.settings, world, given=BUILTINS) as opa:
        await opa.client.put_data(FLEET, _fleet(case.worlds.clusters.values()))
        yield Watching(case, opa, found)


async def _compiling(case: Case, trees: Mapping[str, Any], scratch: ScratchOpa) -> Probed:
    visible, left = _visible(case), dict(trees)
    path = case.settings.placement.path
    modules = {**case.world.modules, MODULE: module(path)}
    for _ in range(_ROUNDS):
        found = probed(modules, left, path, visible)
        causes = await scratch.check(found.modules, BUILTINS)
        if not causes:
            return found
        files = {(cause.get("location") or {}).get("file") for cause in causes}
        left = {i: tree for i, tree in left.items() if not files & {i, file_of(i)}}
    return probed(modules, {}, path, visible)


def _visible(case: Case) -> Visible:
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


def _said(explanation: Iterable[str]) -> Iterator[Note]:
    for line in explanation:
        if found := _NOTE.fullmatch(line):
            yield _notes.decode(base64.b64decode(found["said"]))
