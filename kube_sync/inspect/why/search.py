"""Searches the smallest single change that places an object on a cluster; one query tries many.

Invariant: each reported change was verified: with the changed object in OPA's data in
its place, the replicator's own query had this result. A result by `with` alone
is only a hint for the verification. If no change was found, the number of tries is reported, and
whether these were all candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from kube_sync.config import CLUSTERS
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.requested import as_requested, requests
from kube_sync.inspect.plan.snapshot import projection_of
from kube_sync.inspect.survey.progress import Progress
from kube_sync.inspect.why.candidate_changes import Side, as_number, changes
from kube_sync.inspect.why.case import Case, PlacementReader
from kube_sync.inspect.why.change import ABSENT, Change, applied
from kube_sync.inspect.why.terms import constants
from kube_sync.kube.collection import Item
from kube_sync.opa.analysis.result import FieldRead, Reads

_SHOWN: Final = 4  # changes to report, each of another spot
_DOUBTED: Final = 12  # changes that are verified at most
_MOST: Final = 50  # tries in one query
_SECONDS: Final = 1.0  # target time of one query, far less than its limit
_OTHERS: Final = 100  # clusters, and objects, whose values are tried


@dataclass(frozen=True, slots=True)
class DecisiveChange:
    """A change that turns the decision, the changed object, and the new decision."""

    change: Change
    item: Item
    decided: tuple[str, ...]  # clusters


@dataclass(frozen=True, slots=True)
class Search:
    """The result: changes that turn the decision, the smallest first, and the number of tries."""

    found: tuple[DecisiveChange, ...]
    tried: int
    possible: int


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change, the changed object, and the outcome."""

    change: Change
    item: Item
    outcome: Outcome


async def search(
    case: Case, cluster: Item, trees: Mapping[str, Any], limit: int, progress: Progress
) -> Search:
    """Return the smallest changes that put the object of a case on a cluster. Raises SyncError.

    `trees` are the parsed syntax trees of the policies, by id.
    """
    reader = PlacementReader.of(case.settings)
    every = [*changes(_sides(case, cluster, reader), constants(trees))]
    trial = ChangeTrial(case, cluster)
    tried = await trial.outcomes(every[:limit], progress)
    name = cluster.key.name
    decisive = [one for one in tried if reader.is_chosen(one.outcome, name)]
    decisive.sort(key=_size(reader, case.outcome, name))
    return Search(await _verify(trial, decisive, reader, name), len(tried), len(every))


async def _verify(
    trial: ChangeTrial, decisive: Iterable[TriedChange], reader: PlacementReader, name: str
) -> tuple[DecisiveChange, ...]:
    found: dict[object, DecisiveChange] = {}
    for one in islice(decisive, _DOUBTED):
        spot = (one.change.of, one.change.spot)
        if spot not in found and len(found) < _SHOWN:
            outcome = await trial.verify(one)
            if reader.is_chosen(outcome, name):
                found[spot] = DecisiveChange(one.change, one.item, reader.decided_clusters(outcome))
    return tuple(found.values())


def _size(
    reader: PlacementReader, now: Outcome, name: str
) -> Callable[[TriedChange], tuple[object, ...]]:
    """Return the sort key of changes: first those without other effects on the placement."""
    before = set(reader.decided_clusters(now))

    def size(tried: TriedChange) -> tuple[object, ...]:
        change, after = tried.change, set(reader.decided_clusters(tried.outcome))
        kind = 2 if change.after is ABSENT else 1 if change.before is ABSENT else 0
        whole = isinstance(change.after, dict | list)
        return (
            len(before - after),
            len(after - before - {name}),
            change.of != "cluster",
            whole,
            kind,
            _distance(change.before, change.after),
        )

    return size


def _distance(before: object, after: object) -> float:
    one, other = as_number(before), as_number(after)
    return abs(one - other) if one is not None and other is not None else 0.0


def _sides(case: Case, cluster: Item, reader: PlacementReader) -> list[Side]:
    fleet, siblings = case.worlds.clusters, case.worlds.snapshot.objects
    chosen = (key for key in fleet if reader.is_chosen(case.outcome, key.name))
    others = dict.fromkeys((*chosen, *fleet))
    others.pop(cluster.key)
    body = _body(case.subject.item)
    decision = case.outcome.decision
    noted = requests((body.get("metadata") or {}).get("annotations") or {})
    decided = {*(decision.annotations if decision else ()), *noted}
    others_of_kind = [
        i for k, i in siblings[case.subject.resource.name].items() if k != case.subject.key
    ]
    return [
        Side("cluster", _body(cluster), case.fleet.fields, _bodies([fleet[k] for k in others])),
        Side("object", body, _fields(case.reads, case), _bodies(others_of_kind), decided),
    ]


def _fields(reads: Reads, case: Case) -> Sequence[FieldRead]:
    """Return what is read of the object: as the input, and as a member of its collection."""
    collection = reads.resources.get(case.subject.resource.name)
    return (*reads.input.fields, *(collection.fields if collection else ()))


def _bodies(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [_body(item) for item in items[:_OTHERS]]


def _body(item: Item) -> dict[str, Any]:
    return msgspec.json.decode(item.body, type=dict[str, Any])


class ChangeTrial:
    """Tries changes of the object of a case, and of one cluster."""

    def __init__(
        self, case: Case, cluster: Item, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._case = case
        self._items = {"object": case.subject.item, "cluster": cluster}
        self._names = {"object": case.subject.resource.name, "cluster": CLUSTERS}
        self._reduce = {of: projection_of(case.resource(name)) for of, name in self._names.items()}

    async def outcomes(self, changes: Iterable[Change], progress: Progress) -> list[TriedChange]:
        """Return the outcome of each change. Raises SyncError."""
        changed = (
            (c, item) for c in changes if (item := applied(c, self._items[c.of])) is not None
        )
        found: list[TriedChange] = []
        size = 1
        while part := list(islice(changed, size)):
            started = self._clock()
            outcomes = await self._case.opa.evaluate_inputs([self._input(*one) for one in part])
            each = (self._clock() - started) / len(part)
            size = max(1, min(_MOST, int(_SECONDS / max(each, _SECONDS / _MOST))))
            found += [
                TriedChange(*one, outcome) for one, outcome in zip(part, outcomes, strict=True)
            ]
            progress.report(f"{len(found)} changes tried …")
        return found

    async def verify(self, tried: TriedChange) -> Outcome:
        """Return the outcome with the change in OPA's data. Raises SyncError."""
        return await self._case.evaluate_with(self._names[tried.change.of], tried.item)

    def _input(self, change: Change, item: Item) -> dict[str, Any]:
        items = {**self._items, change.of: item}
        bodies = {of: reduce(items[of]) for of, reduce in self._reduce.items()}
        objects = [msgspec.Raw(bodies["object"]), msgspec.Raw(bodies["cluster"])]
        return {"asked": msgspec.Raw(as_requested(bodies["object"])), "objects": objects}
