"""The reconciler of target objects: compares decisions with the API server and writes what differs.

Level-based: queues carry keys; a reconcile compares the latest decision with what the leading sink
of the object has (`sinks/sink.py`; most often its annotations) and takes at most one step. `resync`
runs first: it collects the keys that may have changed, records what is wanted of them while it
waits until the decisions are complete, and has all changes weighed together (`brakes`) before the
workers (`run`) get a key. An object that needs no step is done there: most watch events are such,
our own writes among them. Objects that are held are in `waiting`, with the reason, and tried steps
in `attempts`; failures are requeued.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

import structlog

from kube_sync.decisions.records import Budget, Record
from kube_sync.errors import Retriable
from kube_sync.guard import Withheld as Braked
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics, tracing
from kube_sync.remediation.add_first import UNHEALTHY, count_progress
from kube_sync.remediation.attempts import FORBIDDEN_SECONDS, Attempts
from kube_sync.remediation.brakes import Brakes
from kube_sync.remediation.decision_cache import DecisionCache, Key
from kube_sync.remediation.holds import (
    Wait,
    Waiting,
    dry_run,
    forbidden,
    manual,
    postponed,
    refused,
    rival,
    unusable,
)
from kube_sync.remediation.led_targets import LedTargets
from kube_sync.remediation.modes import BrakesByMode, Modes
from kube_sync.remediation.plan import Current, Nothing, Unusable, Wanted, Write
from kube_sync.remediation.planner import Moves, Planned, Planner, Together
from kube_sync.remediation.policy_limits import LimitSource
from kube_sync.remediation.sinks.sink import Lead
from kube_sync.remediation.targets import Targets
from kube_sync.remediation.writer import Outcome, Writer
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, Turns, work
from kube_sync.runtime.cooperative import in_slices
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RETRY_SECONDS = 1.0
_UNSEEN = "unseen"  # not weighed with all others yet
_RESYNC_SECONDS = 1.0  # the longest interval between two weighings while changes wait


class Reconciler:
    """The state of the remediator and its loops."""

    def __init__(
        self,
        writer: Writer,
        modes: Modes,
        brakes: Brakes,
        rehearsal: Brakes,
        clock: Callable[[], float],
        lead: Lead,
        *,
        notify: Callable[[Key], None] = lambda _key: None,
        held: Callable[[Key, Wait], None] = lambda _key, _wait: None,
        warned: Callable[[Key, str, str], None] = lambda _key, _uid, _warning: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        target_changed: Callable[[Key], None] = lambda _key: None,
        moves: Moves | None = None,
    ) -> None:
        """Use `brakes` for writes and `rehearsal` in mode `dry-run`, both with the time of `clock`.

        `notify` is called with each object that is held anew, `held` with its hold as well,
        `warned` with the uid of an object and a warning about its placement, which was written;
        `target_changed` with each object that differs. `moves` divides moves, None: each is one.
        """
        self.decisions = DecisionCache(clock, self._tighten)
        self.decisions.subscribe(self._touch)
        self.waiting = Waiting(notify, clock, held)
        self._warned, self._writer, self._modes = warned, writer, modes
        self._brakes = BrakesByMode(modes, brakes, rehearsal)
        self._clock, self._sleep = clock, sleep
        self._target_changed = target_changed
        self._changed = asyncio.Event()
        moves = moves or Together()
        self._targets = LedTargets(lead, self._differs, self._changed.set, moves)
        self._planner = Planner(self.decisions.get, self._targets.get, self._targets.plan, moves)
        self._begun = self._restart = False  # anew: begin again, even during `_begin`
        self._touched: dict[Key, None] = {}
        self._recorded: dict[Key, None] = {}  # to be enqueued once all are weighed
        self._fresh, self._weighed_at = False, -math.inf  # a change is not weighed yet
        # Namespaces take turns: a mass of changes in one delays no other.
        self._queue = WorkQueue[Key]("remediation", _backoff, group=_namespace)
        self._attempts = Attempts(clock)

    @property
    def holds(self) -> tuple[str, ...]:
        """Why nothing at all is written now; empty if writes are possible."""
        reasons = (*self.decisions.holds, *self._targets.holds)
        return (*reasons, *(() if self._writer.may else (self._writer.standby(),)))

    def targets(self, gvr: GroupVersionResource) -> Targets:
        """Return the Store for one target collection."""
        return self._targets.of(gvr)

    @property
    def active(self) -> bool:
        """Whether this process may write and knows all objects."""
        return self._begun and not self.holds

    @property
    def settled(self) -> bool:
        """Whether every object that may have changed has been looked at, and weighed."""
        left = self._touched or self._recorded or self.waiting.of(_UNSEEN)
        return self.active and not left and self._queue.idle

    def objects(self) -> list[tuple[Key, Current]]:
        """Return every target object, as its leading sink has it."""
        return self._targets.objects()

    def replan(self, keys: Iterable[Key] | None) -> None:
        """Compare these objects again, None: all: their leading sink or health may have changed."""
        self._touch(self._targets.keys() if keys is None else keys)

    def lead(self) -> None:
        """Begin anew: this process may write now, and another one may have written before."""
        self._begun, self._restart = False, True
        self._changed.set()

    def weigh(self) -> None:
        """Weigh all changes again: an approval or the fleet has changed."""
        self._weighed_at = -math.inf
        self._touch(self.waiting.of(UNHEALTHY))

    @property
    def tightened(self) -> LimitSource:
        """The limits that policies tighten."""
        return self._brakes.tightened

    def apply(self, keys: Iterable[Key]) -> list[Key]:
        """Approve the steps that wait in mode `manual`; return their keys."""
        found = []
        for key in keys:
            wait = self.waiting.get(key)
            if wait is not None and wait.kind == "manual":
                self._modes.apply(key, wait.name)
                self.waiting.drop(key)
                found.append(key)
        self._touch(found)
        return found

    def apply_record(self, record: Record | None) -> None:
        """Apply one record of the stream; None: a new stream begins."""
        self.decisions.apply_record(record)
        self._changed.set()

    async def resync(self) -> NoReturn:
        """Process touched keys and weigh their changes, until cancelled; one at a time."""
        while True:
            await self._next()
            while self.decisions.settling.wait(self._clock()) > 0:
                if self.active:
                    await self._record(complete=False)
                await self._sleep(self.decisions.settling.wait(self._clock()))
            await self._resync()

    async def run(self, turns: Turns | None = None) -> NoReturn:
        """Reconcile keys until cancelled, several of these at once; `turns` limits their keys."""
        await work(self._queue, self._reconcile, limit=turns)

    def _tighten(self, budget: Budget | None) -> None:
        if self._brakes.tighten(budget):
            self.weigh()

    def _differs(self, key: Key) -> None:
        self._touch([key])
        self._target_changed(key)

    def _touch(self, keys: Iterable[Key]) -> None:
        self._touched.update(dict.fromkeys(keys))
        self._changed.set()

    async def _next(self) -> None:
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that coincides.
            async with asyncio.timeout(_RESYNC_SECONDS if self._brakes.waiting else None):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def _resync(self) -> None:
        # Yields for the renewal of the Lease: 50,000 objects take longer than it lasts.
        self.decisions.settling.begin()
        if not self._writer.may:
            self._begun = False
        if self.holds:
            return  # every key is touched again when the hold ends
        if not self._begun and not await self._begin():
            return
        await self._record(complete=True)
        if self._fresh or self._clock() >= self._weighed_at + _RESYNC_SECONDS:
            self._weigh()
        recorded, self._recorded = self._recorded, {}
        for key in recorded:
            self._queue.add(key)

    async def _begin(self) -> bool:
        """Load the histories of all objects: other processes may have written since the last write.

        Returns False if it has to begin again, since another process may have written meanwhile.
        """
        self._restart = False
        objects = self.objects()
        await self._brakes.begin(objects)
        self._begun = not self._restart
        self._attempts.begin()
        self._touched.update((key, None) for key, _ in objects)
        return self._begun

    def _weigh(self) -> None:
        self._weighed_at, self._fresh = self._clock(), False
        for key in self._brakes.weigh(self._targets.namespaces):
            self._queue.add(key)

    async def _record(self, *, complete: bool) -> None:
        """Record the wanted changes of touched objects; `complete`: no decision is missing."""
        touched, self._touched = self._touched, {}
        async for key in in_slices(touched):
            planned = self._planner.plan(key)
            self._record_wanted(key, planned)
            # What the queue knows of has an attempt that its worker has to end.
            done = complete and isinstance(planned.step, Nothing) and key not in self._queue
            if done and self.active and planned.left is None:
                self._settled(key, planned)
            else:
                self._planner.keep(key, planned)
                self._recorded[key] = None

    def _record_wanted(self, key: Key, planned: Planned) -> None:
        wanted, current, step = planned.carried_out, planned.current, planned.weighed
        brakes = self._brakes.of(key)
        if current is None:
            brakes.forget(key)
        elif wanted and isinstance(step, Write) and self._is_eligible(key, wanted, current, step):
            self._fresh |= brakes.want(key, current, step, evict=wanted.evict)
        else:
            brakes.drop(key)

    def _is_eligible(self, key: Key, wanted: Wanted, current: Current, step: Write) -> bool:
        """Return whether a step will be tried; others do not count towards a mass."""
        is_open = self._attempts.is_open(key, wanted, current, step)
        return is_open and self._modes.is_eligible(key, step)

    async def _reconcile(self, key: Key) -> Result:
        if not self.active:  # reconciled when this process may write again
            self._touched[key] = None
            return Result()
        planned = self._planner.take(key)
        wanted, current, step = planned.carried_out, planned.current, planned.step
        if current is None or wanted is None or not isinstance(step, Write | Unusable):
            return self._settled(key, planned)
        if isinstance(step, Unusable):
            self.waiting.put(key, unusable(current, step))
        elif self._modes.of(key[1].namespace) == "off":
            self.waiting.drop(key)
        elif not self._attempts.is_done(key, step):
            return await self._carry_out(key, wanted, current, step)
        return Result()

    async def _carry_out(self, key: Key, wanted: Wanted, current: Current, step: Write) -> Result:
        if not self._modes.is_eligible(key, step):
            self.waiting.put(key, manual(key, current, step))
            return Result()
        if (later := self._postponed(key, wanted, current, step)) is not None:
            return later
        brakes, rehearsed = self._brakes.of(key), self._brakes.is_rehearsed(key)
        allowed = brakes.admit(key, current, step, evict=wanted.evict)
        if isinstance(allowed, Braked):
            self.waiting.put(key, (dry_run if rehearsed else postponed)(current, step, allowed))
            return Result(brakes.seconds_until(allowed))
        if rehearsed:
            brakes.refund(key, current)
            self.waiting.put(key, dry_run(current, step))
            return Result()
        person = "remediate apply" if self._modes.of(key[1].namespace) == "manual" else ""
        with nullcontext() if tracing.recorder is None else self._span(key, wanted):
            outcome = await self._writer.write(key, allowed, current, person)
            if outcome.status == "applied":
                self._attempts.applied(key, wanted, current)
            tracing.describe({"kube_sync.outcome": outcome.status})
            return self._written(key, current, step, outcome)

    def _span(self, key: Key, wanted: Wanted) -> AbstractContextManager[object]:
        """Record a span of a write, in the trace of its decision."""
        trace, seq = self.decisions.traces.get(key, ("", 0))
        about = {"kube_sync.object": str(key[1]), "kube_sync.resource": str(key[0])}
        about |= {"kube_sync.policies": wanted.policy}
        about |= {"kube_sync.decision.seq": str(seq)} if seq else {}
        return tracing.span("remediate", about, causes=[trace])

    def _postponed(self, key: Key, wanted: Wanted, current: Current, step: Write) -> Result | None:
        """Return when to retry a step that must not be tried now, or None."""
        until = self._attempts.rival_until(key, wanted, current)
        if until is None:
            until = self._attempts.forbidden_until(key, step)
        elif self.waiting.put(key, rival(current, step, until)):
            metrics.remediation_rivals.inc()
        if until is not None:
            return Result(max(0.0, until - self._clock()))
        forbidden_before = self._attempts.release(key)
        if self.waiting.drop(key, "rival") or forbidden_before:
            # It was not weighed until now, since it was not to be written.
            self._touch([key])
            return Result()
        return None

    def _written(self, key: Key, current: Current, step: Write, outcome: Outcome) -> Result:
        """Record the outcome of a write. Raises Retriable if it has to be retried."""
        metrics.remediations.labels(outcome.status).inc()
        bound = log.bind(gvr=str(key[0]), key=str(key[1]), **_named(step))
        if outcome.written is False:
            self._brakes.of(key).refund(key, current)
        match outcome.status:
            case "applied":
                if warning := self._brakes.of(key).moved(key, current):
                    bound.warning("placed_on_unknown_clusters", warning=warning)
                    self._warned(key, current.uid, warning)
                count_progress(current, step, self._clock())
                bound.info("remediated")
            case "refused":
                self.waiting.put(key, refused(current, step, outcome.error))
                self._exclude(key)
            case "forbidden":
                self.waiting.put(key, forbidden(current, step, outcome.error))
                self._attempts.forbid(key, step)
                self._exclude(key)
                return Result(FORBIDDEN_SECONDS)
            case "retried" | "fenced":
                bound.warning("remediation_delayed", error=outcome.error)
                raise Retriable(outcome.error, outcome.retry_after)
        self._attempts.done(key, step)
        if outcome.status != "refused":
            self.waiting.drop(key)
        return Result()

    def _exclude(self, key: Key) -> None:
        """Remove an object from the mass of moves, since it will not move."""
        self._brakes.of(key).drop(key)
        self.weigh()

    def _settled(self, key: Key, planned: Planned) -> Result:
        """Record that nothing is to be written now; of a move the next step may be left."""
        self._planner.drop(key)
        self.decisions.traces.pop(key, None)  # what is written later has another cause
        self._attempts.settled(key, gone=planned.current is None)
        self._modes.forget(key)
        current, left = planned.current, planned.left
        if current is None or left is None or self._modes.of(key[1].namespace) == "off":
            self.waiting.drop(key)
            return Result()
        self.waiting.put(key, postponed(current, left.move, left))
        return Result(left.seconds(self._clock()))


def _backoff() -> Backoff:
    return Backoff(_RETRY_SECONDS)


def _namespace(key: Key) -> str:
    return key[1].namespace


def _named(step: Write) -> dict[str, list[str]]:
    """Return the keys that a step writes, without values."""
    found = {"annotations": step.annotations, "labels": step.labels}
    return {name: sorted(values) for name, values in found.items() if values}
