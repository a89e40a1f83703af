"""A lane decides on every object beside what is in force, and the differences are counted.

Keeps true: OPA is asked nothing while there is no lane; a class of objects is asked about once as
long as nothing changed that the lane looks at, and an answer counts only where it is true of all
that share it. Where that changes while a turn asks, its count is told and another turn follows.
What was counted follows what changed, level by level: each turn looks at everything that is held,
and turns rest for ten times as long as the last one took. It writes nothing, holds digests and
decisions and no objects, and nobody waits for it.
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

from kube_sync.decisions.classes import shares_classes
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.records import Target
from kube_sync.errors import SyncError
from kube_sync.guard import Inventory, Placements
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.analysis.reads import Reads
from kube_sync.opa.sides import Side
from kube_sync.policies.staging.lanes import Counted
from kube_sync.replicator.differences import KINDS, Kind, difference
from kube_sync.replicator.mirror import Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_REST_SECONDS = 5.0  # at least, between two turns: a count is news for people
_SHARE = 10
_TRIES = 3  # where objects change while OPA is asked
_SLICE = 1_000  # objects between two looks at what else there is to do


class _Known(NamedTuple):
    """What is decided of a class; `now` where what is in force was asked too."""

    now: Outcome | None
    then: Outcome


@dataclass(slots=True)
class _Lane:
    """What is known of one lane, on the data as it is."""

    reads: Reads
    side: Side | None  # of which objects alone
    of: object
    known: dict[tuple[str, bytes | ObjectKey], _Known] = field(default_factory=dict)
    writes: int = 0  # of what it looks at
    asked_at: int = 0  # that number, when the oldest of what is known was asked for

    @property
    def outdated(self) -> bool:
        """Whether something was written since then."""
        return self.asked_at != self.writes

    def begin(self) -> None:
        """Know nothing but of the data as it is."""
        if self.outdated:
            self.known.clear()
            self.asked_at = self.writes


class Shadow:
    """The second decision, through one epoch of OPA's data."""

    def __init__(
        self,
        asked: PolicySetEvaluator,
        hub: DecisionHub,
        targets: Callable[[], Mapping[str, GroupVersionResource]],
        collections: Callable[[], Iterable[Mirror]],
        placements: Placements,
        tell: Callable[[Counted | None], None],
        *,
        in_force: PolicySetEvaluator | None = None,
        gauge: Gauge = metrics.shadow_differences,
        inventory: Callable[[], Inventory | None] = lambda: None,
        rest: float = _REST_SECONDS,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Decide in the lane by `asked`, and by what is in force by `in_force`.

        Without that `hub` has what is decided by it, which it has not where the lane decides.
        `tell` is told what was counted when it is another, None: there is no lane. Turns are at
        least `rest` seconds apart. Placements are compared with the clusters of `inventory`.
        """
        self._asked = asked
        self._also_asked = in_force
        self._gauge = gauge
        self._inventory = inventory
        self._hub = hub
        self._targets = targets
        self._collections = collections
        self._placements = placements
        self._tell = tell
        self._rest = rest
        self._backoff = backoff or Backoff(longest=30.0)
        self._clock = clock
        self._sleep = sleep
        self._news = asyncio.Event()
        self._lane: _Lane | None = None
        self._written: set[tuple[str, ObjectKey]] = set()  # since OPA was asked
        self._told: Counted | None = None

    def staged(self, reads: Reads | None, side: Side | None = None, of: object = None) -> None:
        """Take note that OPA holds a lane that reads this, or none any more, or another one.

        Where there is a `side`, only its objects count; `of` is what this count is to be told as.
        """
        self._lane = None if reads is None else _Lane(reads, side, of)
        if reads is None:
            self._say(None)
        self._news.set()

    @property
    def counts(self) -> bool:
        """Whether there is a lane."""
        return self._lane is not None

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Take note that OPA holds these objects' newest state."""
        if (lane := self._lane) is None:
            return
        read = lane.reads.resources.get(name)
        if read is None or read.used:
            lane.writes += 1  # what is asked for now may be of either state
        for key in keys:
            lane.known.pop((name, key), None)
            self._written.add((name, key))
        self._news.set()

    async def run(self) -> NoReturn:
        """Count as long as there is a lane, until cancelled."""
        while True:
            if self._lane is not None:
                self._hub.waiting.add(self._news)
            await self._news.wait()
            self._news.clear()
            begun = self._clock()
            try:
                await self._turn()
            except SyncError as error:
                log.warning("shadow_not_decided", error=str(error))
                self._news.set()
                await self._backoff.wait(getattr(error, "retry_after", None))
                continue
            self._backoff.progressed()
            if self._lane is not None:
                await self._sleep(max(self._rest, _SHARE * (self._clock() - begun)))

    async def _turn(self) -> None:
        """Ask for what is not known, and count where everything is; else there is more to do."""
        lane = self._lane
        if lane is None or self._hub.held:
            return  # no lane, or nothing that is decided counts: who releases it wakes us
        found = {held.name: held for held in self._collections()}
        places = {name: gvr for name, gvr in self._targets().items() if name in found}
        if any(found[name].learning for name in places):
            self._news.set()
            return
        lane.begin()
        for _ in range(_TRIES):
            for name in places:
                if not await self._ask(lane, found[name]):
                    self._news.set()
                    return
            counted, unknown = await self._count(lane, [(found[n], places[n]) for n in places])
            if not unknown:
                break
        if unknown or lane is not self._lane or lane.outdated:
            self._news.set()
        if lane is self._lane:
            self._say(counted)
        if lane.reads.impure:
            lane.known.clear()  # it may be decided otherwise the next time

    async def _ask(self, lane: _Lane, held: Mirror) -> bool:
        """Ask about one of each class that is not known; returns whether that is still the lane."""
        self._written.clear()
        missing: dict[bytes | ObjectKey, ObjectKey] = {}
        for key in await _within(lane, held):
            kind = self._kind(lane, held, key)
            if (held.name, kind) not in lane.known:
                missing.setdefault(kind, key)
        rest = [*missing.items()]
        tries = _TRIES
        while rest and lane is self._lane:
            part, writes = rest[: self._asked.room], lane.writes
            found = await self._decided(held.name, [key for _, key in part])
            # Both decisions of an object are to be of one state; of all objects they need not be,
            # or there would be no count while something changes every few seconds.
            if lane.writes != writes and (tries := tries - 1):
                continue
            rest, tries = rest[len(part) :], _TRIES
            for kind, key in part:
                same = self._kind(lane, held, key) == kind and not held.moves(key)
                if key in found and same and (held.name, key) not in self._written:
                    lane.known[held.name, kind] = found[key]
        return lane is self._lane

    async def _decided(self, name: str, keys: list[ObjectKey]) -> dict[ObjectKey, _Known]:
        then = await self._asked.evaluate(name, keys)
        if self._also_asked is None:
            return {key: _Known(None, outcome) for key, outcome in then.items()}
        now = await self._also_asked.evaluate(name, then)
        return {key: _Known(now[key], then[key]) for key in now}

    def _kind(self, lane: _Lane, held: Mirror, key: ObjectKey) -> bytes | ObjectKey:
        """Return the class that an object is known to be of, else the object for itself."""
        member = held.members.of(key) if shares_classes(lane.reads) else None
        return key if member is None or held.moves(key) else member.kind

    async def _count(
        self, lane: _Lane, places: Iterable[tuple[Mirror, GroupVersionResource]]
    ) -> tuple[Counted, int]:
        """Return what differs, and of how many objects nothing is known yet."""
        counts, objects, unknown = Counter[Kind](), 0, 0
        inventory = self._inventory()
        # By the decisions that are compared; they are kept, so that nothing else has their ids.
        alike: dict[tuple[int, bool, int], tuple[Outcome, Outcome, Kind | None]] = {}
        for held, gvr in places:
            for number, key in enumerate(await _within(lane, held), 1):
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
                known = lane.known.get((held.name, self._kind(lane, held, key)))
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
            lane.known.clear()  # most are of classes that no object is of any more
        told = Counted(objects, {kind: counts[kind] for kind in KINDS}, unknown, lane.of)
        return told, unknown

    def _in_force(self, gvr: GroupVersionResource, key: ObjectKey) -> Outcome:
        target = Target.of(gvr, key)
        entry = self._hub.log.current.get(target)
        if entry is None or entry.told is None:
            return Outcome("")
        verdict = entry.told.verdict
        return Outcome(entry.uid, verdict.decision, verdict.failure)

    def _say(self, counted: Counted | None) -> None:
        if counted == self._told:
            return
        self._told = counted
        if counted is None:
            self._gauge.clear()
        else:
            for kind, count in counted.differences.items():
                self._gauge.labels(kind).set(count)
        self._tell(counted)


async def _within(lane: _Lane, held: Mirror) -> list[ObjectKey]:
    """Return the objects that count; others have their turns meanwhile."""
    keys = [*held.keys()]
    if lane.side is None:
        return keys
    found: list[ObjectKey] = []
    for start in range(0, len(keys), _SLICE):
        found += filter(lane.side.has, keys[start : start + _SLICE])
        await asyncio.sleep(0)
    return found
