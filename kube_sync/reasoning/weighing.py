"""What speaks against each cluster that is not chosen, in the words of rules that do not say it.

Keeps true: what cannot be derived is said to be so, and takes nothing from the rest of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kube_sync.errors import SyncError
from kube_sync.kube.collection import Item
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.planning.worlds import CLUSTERS
from kube_sync.reasoning.answer import Against, Standing, Told
from kube_sync.reasoning.case import Case
from kube_sync.reasoning.contrast import Ways, against, by_name, failing, gates
from kube_sync.reasoning.search import Turn
from kube_sync.reasoning.watching import Watching, watching


async def weighed(
    case: Case, told: Told, trees: Mapping[str, Any], scratch: ScratchOpa, about: Item | None = None
) -> Told:
    """Return the answer with what speaks against clusters: all, or one that it is about.

    `trees` are those of the policies as they were parsed, by id.
    """
    asked = [s for s in told.standings if about is None or s.cluster == about.key]
    silent = [s for s in asked if not s.chosen and (about is not None or not s.said)]
    if not silent:
        return replace(told, standings=tuple(asked))
    try:
        async with watching(case, trees, scratch) as watched:
            found, compared = await _derived(watched, told, silent)
    except SyncError as error:
        return replace(told, standings=tuple(asked), compared=f"reasons are not derived: {error}")
    reasons = {s.cluster: tuple(_named(case, f)) for s, f in zip(silent, found, strict=True)}
    standings = (replace(s, against=reasons.get(s.cluster, ())) for s in asked)
    return replace(told, standings=tuple(standings), compared=compared)


async def _derived(
    watched: Watching, told: Told, silent: Iterable[Standing]
) -> tuple[list[tuple[Against, ...]], str]:
    """Return what speaks against each, and what it was compared with."""
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
    found: Iterable[tuple[Against, ...]], silent: Iterable[Standing], now: Ways, watched: Watching
) -> list[tuple[Against, ...]]:
    """Return what was found and, where that is nothing, the rules that name a cluster."""
    pairs = zip(found, silent, strict=True)
    return [one or by_name(s.cluster.name, now, watched.probed) for one, s in pairs]


def _changed(told: Told, turn: Turn) -> tuple[str, Item]:
    return (CLUSTERS if turn.change.of == "cluster" else told.resource, turn.item)


def _named(case: Case, found: Iterable[Against]) -> Iterable[Against]:
    return (replace(one, file=case.file(one.file)) for one in found)
