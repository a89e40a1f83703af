"""Evaluate a lane of staged policies on every object, and count the differing decisions.

Invariant: without a lane OPA gets no queries. A class of objects is evaluated once as long as no
data changed that the lane reads, and a result counts only if it is valid for the whole class. If
data changes during a round, its count is reported and another round follows. Level-based: each
round goes through all objects, and the pause between rounds is ten times as long as the last round.
It writes nothing, keeps digests and decisions but no objects, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import structlog
from prometheus_client import Gauge

from kube_sync.decisions.classes import may_share_classes
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.records import Target
from kube_sync.errors import SyncError
from kube_sync.guard import Inventory, Placements
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.sides import Side
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.differences import KINDS, Kind, difference
from kube_sync.replicator.mirror import Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_REST_SECONDS = 5.0  # minimum pause between two rounds: a count is for people
_SHARE = 10
_TRIES = 3  # if objects change during a query
_SLICE = 1_000  # objects processed between two yields to other tasks


class _Known(NamedTuple):
    """The decisions on a class; `now` is set if the policies in force were queried too."""

    now: Outcome | None
    then: Outcome


@dataclass(slots=True)
class _Lane:
    """The decisions of one lane on the current data."""

    reads: Reads
    side: Side | None  # the objects that count, None: all
    of: object
    known: dict[tuple[str, bytes | ObjectKey], _Known] = field(default_factory=dict)
    writes: int = 0  # number of writes to data that the lane reads
    evaluated_at: int = 0  # that number when the oldest cached decision was requested

    @property
    def outdated(self) -> bool:
        """Whether such data has been written since then."""
        return self.evaluated_at != self.writes

    def begin(self) -> None:
        """Drop cached decisions if they are outdated."""
        if self.outdated:
            self.known.clear()
            self.evaluated_at = self.writes


class Shadow:
    """Evaluates a lane beside the policies in force, through one epoch of OPA's data."""

    def __init__(
        self,
        evaluator: PolicySetEvaluator,
        hub: DecisionHub,
        targets: Callable[[], Mapping[str, GroupVersionResource]],
        collections: Callable[[], Iterable[Mirror]],
        placements: Placements,
        on_count: Callable[[Counted | None], None],
        *,
        in_force: PolicySetEvaluator | None = None,
        gauge: Gauge = metrics.shadow_differences,
        inventory: Callable[[], Inventory | None] = lambda: None,
        rest: float = _REST_SECONDS,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Evaluate the lane by `evaluator`, and the policies in force by `in_force`.

        Without `in_force` the decisions in force come from `hub`, which lacks them if the lane
        decides. `on_count` is called with a new count when it differs, None: there is no lane.
        `rest`: seconds between rounds. `inventory` has the clusters that placements may name.
        """
        self._evaluator = evaluator
        self._reference = in_force
        self._gauge = gauge
        self._inventory = inventory
        self._hub = hub
        self._targets = targets
        self._collections = collections
        self._placements = placements
        self._on_count = on_count
        self._rest = rest
        self._backoff = backoff or Backoff(longest=30.0)
        self._clock = clock
        self._sleep = sleep
        self._wake = asyncio.Event()
        self._lane: _Lane | None = None
        self._written: set[tuple[str, ObjectKey]] = set()  # since the query began
        self._published: Counted | None = None

    def staged(self, reads: Reads | None, side: Side | None = None, of: object = None) -> None:
        """Handle a new lane in OPA that reads this, None: there is none.

        With a `side`, only its objects count; `of` identifies this count.
        """
        self._lane = None if reads is None else _Lane(reads, side, of)
        if reads is None:
            self._publish(None)
        self._wake.set()

    @property
    def counts(self) -> bool:
        """Whether there is a lane."""
        return self._lane is not None

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Handle a write of these objects into OPA."""
        if (lane := self._lane) is None:
            return
        read = lane.reads.resources.get(name)
        if read is None or read.used:
            lane.writes += 1  # pending evaluations may be of either state
        for key in keys:
            lane.known.pop((name, key), None)
            self._written.add((name, key))
        self._wake.set()

    async def run(self) -> NoReturn:
        """Count as long as there is a lane, until cancelled."""
        while True:
            if self._lane is not None:
                self._hub.waiting.add(self._wake)
            await self._wake.wait()
            self._wake.clear()
            begun = self._clock()
            try:
                await self._turn()
            except SyncError as error:
                log.warning("shadow_not_decided", error=str(error))
                self._wake.set()
                await self._backoff.wait(getattr(error, "retry_after", None))
                continue
            self._backoff.progressed()
            if self._lane is not None:
                await self._sleep(max(self._rest, _SHARE * (self._clock() - begun)))

    async def _turn(self) -> None:
        """Evaluate unknown classes, then count; wake again if classes are left."""
        lane = self._lane
        if lane is None or self._hub.held:
            return  # no lane, or no valid decisions: their release wakes us
        found = {mirror.name: mirror for mirror in self._collections()}
        places = {name: gvr for name, gvr in self._targets().items() if name in found}
        if any(found[name].learning for name in places):
            self._wake.set()
            return
        lane.begin()
        for _ in range(_TRIES):
            for name in places:
                if not await self._evaluate(lane, found[name]):
                    self._wake.set()
                    return
            counted, unknown = await self._count(lane, [(found[n], places[n]) for n in places])
            if not unknown:
                break
        if unknown or lane is not self._lane or lane.outdated:
            self._wake.set()
        if lane is self._lane:
            self._publish(counted)
        if lane.reads.impure:
            lane.known.clear()  # impure: the next evaluation may differ

    async def _evaluate(self, lane: _Lane, mirror: Mirror) -> bool:
        """Evaluate one object of each unknown class; return whether the lane is still the same."""
        self._written.clear()
        missing: dict[bytes | ObjectKey, ObjectKey] = {}
        for key in await _within(lane, mirror):
            kind = self._kind(lane, mirror, key)
            if (mirror.name, kind) not in lane.known:
                missing.setdefault(kind, key)
        rest = [*missing.items()]
        tries = _TRIES
        while rest and lane is self._lane:
            part, writes = rest[: self._evaluator.batch_size], lane.writes
            found = await self._decided(mirror.name, [key for _, key in part])
            # Both decisions on an object must be on one state of the data. For all objects together
            # that is not required, or there would be no count while something changes every few
            # seconds.
            if lane.writes != writes and (tries := tries - 1):
                continue
            rest, tries = rest[len(part) :], _TRIES
            for kind, key in part:
                same = self._kind(lane, mirror, key) == kind and not mirror.is_pending(key)
                if key in found and same and (mirror.name, key) not in self._written:
                    lane.known[mirror.name, kind] = found[key]
        return lane is self._lane

    async def _decided(self, name: str, keys: list[ObjectKey]) -> dict[ObjectKey, _Known]:
        then = await self._evaluator.evaluate(name, keys)
        if self._reference is None:
            return {key: _Known(None, outcome) for key, outcome in then.items()}
        now = await self._reference.evaluate(name, then)
        return {key: _Known(now[key], then[key]) for key in now}

    def _kind(self, lane: _Lane, mirror: Mirror, key: ObjectKey) -> bytes | ObjectKey:
        """Return an object's class if known, else its key."""
        member = mirror.members.of(key) if may_share_classes(lane.reads) else None
        return key if member is None or mirror.is_pending(key) else member.kind

    async def _count(
        self, lane: _Lane, places: Iterable[tuple[Mirror, GroupVersionResource]]
    ) -> tuple[Counted, int]:
        """Count the differences, and the objects without a decision."""
        counts, objects, unknown = Counter[Kind](), 0, 0
        inventory = self._inventory()
        # Keyed by identity; the values keep the decisions alive, so that no id is reused.
        alike: dict[tuple[int, bool, int], tuple[Outcome, Outcome, Kind | None]] = {}
        for mirror, gvr in places:
            for number, key in enumerate(await _within(lane, mirror), 1):
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
                known = lane.known.get((mirror.name, self._kind(lane, mirror, key)))
                if known is None:
                    unknown += 1
                    continue
                now = self._in_force(gvr, key) if known.now is None else known.now
                then = known.then
                pair = id(now.decision), now.failure is None, id(then)
                if pair not in alike:
                    kind = difference(key.namespace, now, then, self._placements, inventory)
                    alike[pair] = now, then, kind
                objects += 1
                if (kind := alike[pair][2]) is not None:
                    counts[kind] += 1
        if len(lane.known) > 2 * objects + _SLICE:
            lane.known.clear()  # most are of classes without objects
        counted = Counted(objects, {kind: counts[kind] for kind in KINDS}, unknown, lane.of)
        return counted, unknown

    def _in_force(self, gvr: GroupVersionResource, key: ObjectKey) -> Outcome:
        target = Target.of(gvr, key)
        entry = self._hub.log.get(target)
        if entry is None or entry.encoded is None:
            return Outcome("")
        verdict = entry.encoded.verdict
        return Outcome(entry.uid, verdict.decision, verdict.failure)

    def _publish(self, counted: Counted | None) -> None:
        if counted == self._published:
            return
        self._published = counted
        if counted is None:
            self._gauge.clear()
        else:
            for kind, count in counted.differences.items():
                self._gauge.labels(kind).set(count)
        self._on_count(counted)


async def _within(lane: _Lane, mirror: Mirror) -> list[ObjectKey]:
    """Return the objects that count; yields to other tasks meanwhile."""
    keys = [*mirror.keys()]
    if lane.side is None:
        return keys
    found: list[ObjectKey] = []
    for start in range(0, len(keys), _SLICE):
        found += filter(lane.side.has, keys[start : start + _SLICE])
        await asyncio.sleep(0)
    return found
