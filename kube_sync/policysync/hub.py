"""The controller of policy sync: reconciles each policy's copies and status.

Level-based: the queue holds policies, never events, and each is computed anew. Invariant:
only the leader writes; nothing is done before everything was listed, and no copy is removed before
all unwanted copies were weighed together, nor once it is wanted again; a failure of one policy,
whatever it is, delays no other. It ends only by cancellation, at any point: the next process finds
all state that it needs in the works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import structlog

from kube_sync.errors import Retriable, SyncError
from kube_sync.guard import Withheld
from kube_sync.kube.fencedwriter import Fenced
from kube_sync.kube.lease import Leadership
from kube_sync.observability import metrics
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.placers import Placers, Subject, subject_of
from kube_sync.policysync.plan import Braked, Remove, Step, braked, copy_states, plan
from kube_sync.policysync.policy_state import PolicyState, keep_all
from kube_sync.policysync.policy_status_writer import Pace, PolicyStatus
from kube_sync.policysync.removal_guard import Brakes
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.freshness import Stale
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

WORKERS: Final = 16  # concurrent workers
_SURVEY_SECONDS: Final = 1.0  # between two surveys
_MAX_SKIPPED_SURVEYS: Final = 3  # surveys in a row that may be skipped while policies are queued
_RESYNC_SECONDS: Final = 600.0  # resync period: after it every policy is enqueued
_MISSING_SECONDS: Final = 1.0  # for which a policy must be missing: its kind may be going, not it
_QUIET_SECONDS: Final = 0.3
_SLICE: Final = 20  # policies per slice, after which other tasks may run


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the hub queries anew each time."""

    observe: Callable[[Subject], PolicyState]
    stale: Callable[[], Iterable[Stale]]
    approved: Callable[[], Collection[str]]  # the names that operators approved


class Hub:
    """The reconciler of all policies."""

    def __init__(
        self,
        state: HubState,
        placers: Placers,
        brakes: Brakes,
        status: PolicyStatus,
        leadership: Leadership,
        facts: Facts,
        *,
        report: Callable[[str, str], None],
        events: PolicySyncEvents,
        grace: float,
        clock: Callable[[], float],
        quiet: float = _QUIET_SECONDS,
        backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 120.0),
    ) -> None:
        """`clock` is monotonic Unix seconds; `report` takes a name and its problem.

        Callbacks of placers wait `quiet` seconds for more of the same policy.
        """
        self._state = state
        self._placers = placers
        self._brakes = brakes
        self._status = status
        self._leadership = leadership
        self._facts = facts
        self._report, self._events = report, events
        self._grace, self._quiet, self._clock = grace, quiet, clock
        self._queue = WorkQueue[Subject]("policy_sync_policies", backoff)
        self._missing: dict[Subject, float] = {}  # since when
        self._unclean: dict[Subject, PolicyId] = {}  # annotations and statuses to be removed
        self._dirty: set[Subject] = set()  # may have changed since it was last surveyed
        self._reported: dict[Subject, frozenset[PolicyId]] = {}  # to the brakes
        self._held: dict[Subject, Mapping[str, Withheld]] = {}
        self._copies: dict[Subject, tuple[int, int]] = {}  # wanted and placed
        self._pace = Pace(clock)
        self._woken = asyncio.Event()
        self._weighed: tuple[object, ...] = ()
        self._policies_reported, self._skipped_surveys, self._all_enqueued_at = False, 0, 0.0

    def enqueue(self, policy: PolicyId) -> None:
        """Enqueue a policy of the hub."""
        self._enqueue(subject_of(policy))

    def enqueue_changed_copies(self, policy: PolicyId) -> None:
        """Enqueue a policy whose copies changed."""
        # Many clusters report at about the same time: they are handled together.
        self._queue.add_after(self._placers.record_version(policy), self._quiet)

    def enqueue_all(self) -> None:
        """Enqueue every policy of the hub, and every policy with copies."""
        self._all_enqueued_at = self._clock()
        for subject in self._subjects():
            self._enqueue(subject)

    def _enqueue(self, subject: Subject) -> None:
        self._dirty.add(subject)
        self._queue.add(subject)

    def on_started_leading(self) -> None:
        """Start anew: this process became the leader."""
        self._policies_reported = False
        self._events.reset()
        self._woken.set()

    # Surveys

    async def run_surveys(self) -> NoReturn:
        """Weigh all unwanted copies, and enqueue what is due, until cancelled."""
        while True:
            self._woken.clear()
            await self.survey()
            try:
                async with asyncio.timeout(_SURVEY_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def survey(self) -> None:
        """Weigh all unwanted copies, unless policies have to be reconciled first."""
        metrics.policy_sync_waiting.set(len(self._queue))
        if not self._is_ready():
            return
        if not self._policies_reported:
            await self._report_policies()
        elif len(self._queue) and self._skipped_surveys < _MAX_SKIPPED_SURVEYS:
            # Policies in the queue may have more unwanted copies.
            self._skipped_surveys += 1
            return
        self._skipped_surveys = 0
        self._weigh()
        if self._clock() - self._all_enqueued_at >= _RESYNC_SECONDS:
            self.enqueue_all()

    def _is_ready(self) -> bool:
        if not self._leadership.held:
            self._policies_reported = False
            self._report("copies", "another one brings them")
            return False
        if not (self._state.ready and self._placers.ready):
            self._policies_reported = False
            self._report("copies", "not everything that they stand on is listed yet")
            return False
        return True

    async def _report_policies(self) -> None:
        """Report the state of every policy to the brakes, before anything is weighed."""
        for number, subject in enumerate(self._subjects(), 1):
            # What fails here fails again in its own reconcile, and is retried there.
            with suppress(Retriable), self._isolated(subject):
                self._report_state(subject, self._observe(subject))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._policies_reported = self._is_ready()
        self.enqueue_all()
        log.info("surveyed", policies=len(self._reported))

    def _weigh(self) -> None:
        approved = frozenset(self._facts.approved())
        found = self._brakes.weigh(self._facts.stale(), approved, self._clock())
        result = (found.holds, approved)
        if result != self._weighed:
            self._weighed = result
            for subject in list(self._held):
                self._queue.add(subject)
        held = sum(len(one) for one in self._held.values())
        _report_totals(self._report, self._copies.values(), held, found.holds)

    def _subjects(self) -> list[Subject]:
        found = dict.fromkeys(self._placers.subjects())
        for gvr in sorted(self._state.cached_kinds):
            for key in self._state.policies(gvr).objects:
                found[subject_of(PolicyId(gvr, key.namespace, key.name))] = None
        return list(found)

    # One policy

    async def work(self) -> NoReturn:
        """Reconcile one policy after the other until cancelled."""
        await work(self._queue, self._process)

    async def _process(self, subject: Subject) -> Result:
        if not self._policies_reported or not self._is_ready():
            return Result()  # everything is enqueued when it is ready
        with metrics.policy_sync_reconcile_seconds.time(), self._isolated(subject):
            try:
                errors = await self._reconcile(subject)
            except Fenced:
                return Result()  # the new leader enqueues everything
            except SyncError as error:
                errors = {"": error}
        if errors:
            raise _log_errors(subject, errors)
        return Result()

    @contextmanager
    def _isolated(self, subject: Subject) -> Iterator[None]:
        """Convert any error of a policy to Retriable, so that it affects that policy alone."""
        try:
            yield
        except Exception as error:  # an author of one policy must not be able to stop all others
            log.exception("policy_failed", **_log_fields(subject))
            msg = "it failed"
            raise Retriable(msg) from error

    async def _reconcile(self, subject: Subject) -> Mapping[str, SyncError]:
        """Return the errors by cluster; enqueue later steps for their time. Raises SyncError."""
        self._dirty.discard(subject)
        found = self._observe(subject)
        self._report_state(subject, found)
        now = self._clock()
        wanted = plan(found.wanted, found.placed, now=now, grace=self._grace, gone=found.gone)
        steps = braked(wanted, found.placed, self._brakes, now)
        self._set_held(subject, steps.held)
        self._events.publish_removals(found, steps.held, steps.approved)
        # Before its copies: after an interruption the copies remain, and the cleaning is repeated.
        unclean = await self._clean(subject, found, steps)
        errors = await self._run_steps(subject, steps.plan.steps)
        after = self._observe(subject)
        self._report_state(subject, after)
        wait = await self._write_status(subject, after, steps.held, errors)
        self._enqueue_due(subject, steps, wait)
        return unclean | errors

    async def _write_status(
        self,
        subject: Subject,
        found: PolicyState,
        held: Mapping[str, Withheld],
        errors: Mapping[str, SyncError],
    ) -> float:
        """Write the policy's status; return the seconds to wait before, 0 if it was written."""
        wait = self._pace.wait(subject)
        if not wait and await self._status.write(found, held, _messages(errors)):
            self._pace.record_write(subject, len(found.placed))
        return wait

    async def _clean(
        self, subject: Subject, found: PolicyState, steps: Braked
    ) -> dict[str, SyncError]:
        """Clean a policy all of whose copies go, now or later; they do not wait for it."""
        if not found.vanished:
            self._unclean.pop(subject, None)
        elif _removes_all(steps, found):
            self._unclean[subject] = found.policy
        if (policy := self._unclean.get(subject)) is None:
            return {}
        try:
            await self._status.clean(policy)
        except Fenced:
            raise
        except SyncError as error:
            return {"": error}
        self._unclean.pop(subject, None)
        return {}

    def _observe(self, subject: Subject) -> PolicyState:
        found = self._facts.observe(subject)
        if not found.missing:
            self._missing.pop(subject, None)
            return found
        since = self._missing.setdefault(subject, self._clock())
        if self._clock() - since >= _MISSING_SECONDS:
            return found
        return PolicyState(found.policy, keep_all(found.placed), found.placed)

    def _report_state(self, subject: Subject, found: PolicyState) -> None:
        """Report the state of a policy's copies to the brakes, each in its own version."""
        states = copy_states(
            found.wanted,
            found.placed,
            gone=found.gone,
            managed=found.managed,
            vanished=found.vanished,
        )
        ids = frozenset(one.key.policy for one in found.placed.values())
        for policy in ids | self._reported.get(subject, frozenset()):
            own = {c: s for c, s in states.items() if found.placed[c].key.policy == policy}
            self._brakes.set_copies(policy, own, self._clock())
        self._reported[subject] = ids
        wanted = len(found.wanted.copies) if found.wanted is not None else 0
        self._copies[subject] = wanted, len(found.placed)
        if not ids and found.body is None:
            for known in (self._reported, self._copies, self._missing):
                known.pop(subject, None)
            self._pace.forget(subject)

    def _set_held(self, subject: Subject, held: Mapping[str, Withheld]) -> None:
        if held:
            self._held[subject] = held
        else:
            self._held.pop(subject, None)

    def _is_still_wanted(self, subject: Subject, step: Step) -> bool:
        """Return whether a step is still wanted: it may have waited long for its turn."""
        if not isinstance(step, Remove):
            return True  # the next round corrects whatever it writes
        if subject in self._dirty:
            # The round that is enqueued already does the rest.
            self._dirty.discard(subject)
            self._report_state(subject, self._observe(subject))
        now = self._clock()
        decision = self._brakes.permit(step.key, now)
        is_permitted = not isinstance(decision, Withheld) and decision <= now
        if not is_permitted:
            self._queue.add_after(subject, _SURVEY_SECONDS)
        return is_permitted

    async def _run_steps(self, subject: Subject, steps: Iterable[Step]) -> dict[str, SyncError]:
        """Run all steps concurrently, as the placers allow; return the errors by cluster."""
        errors: dict[str, SyncError] = {}

        async def do(step: Step) -> None:
            try:
                await self._placers.run(step, partial(self._is_still_wanted, subject, step))
            except SyncError as error:
                errors[step.key.cluster] = error

        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(do(step))
        if fenced := next((one for one in errors.values() if isinstance(one, Fenced)), None):
            raise fenced
        return dict(sorted(errors.items()))

    def _enqueue_due(self, subject: Subject, steps: Braked, wait: float) -> None:
        # Not as a Result: it stays due although something may fail.
        times = (
            [] if steps.plan.plan_again_at is None else [steps.plan.plan_again_at - self._clock()]
        )
        times += [wait] if wait else []
        if subject in self._missing:
            times.append(self._missing[subject] + _MISSING_SECONDS - self._clock())
        if times:
            self._queue.add_after(subject, max(0.0, min(times)))


def _report_totals(
    report: Callable[[str, str], None],
    copies: Iterable[tuple[int, int]],
    held: int,
    holds: Iterable[Withheld],
) -> None:
    """Report the number of wanted and placed copies of all policies, and what holds removals."""
    wanted, placed = [sum(column) for column in zip(*copies, strict=True)] or [0, 0]
    metrics.policy_sync_wanted.set(wanted)
    metrics.policy_sync_placed.set(placed)
    metrics.policy_sync_held.set(held)
    report("copies", f"{placed} placed, {wanted} wanted")
    why = "; ".join(f"{one.reason} (released by: {one.release})" for one in holds)
    report("removals", f"{held} held: {why}" if held and why else "none held")


def _log_errors(subject: Subject, errors: Mapping[str, SyncError]) -> Retriable:
    """Log the errors by cluster, and return them as one error of the policy."""
    for cluster, error in errors.items():
        log.warning("policy_not_synced", **_log_fields(subject), cluster=cluster, error=str(error))
    delays = [one.retry_after or 0.0 for one in errors.values() if isinstance(one, Retriable)]
    return Retriable(f"clusters: {len(errors)}", max(delays, default=None))


def _log_fields(subject: Subject) -> dict[str, str]:
    return {
        "resource": f"{subject.resource}.{subject.group}",
        "key": f"{subject.namespace}/{subject.name}",
    }


def _removes_all(steps: Braked, found: PolicyState) -> bool:
    removed = {one.key.cluster for one in steps.plan.steps if isinstance(one, Remove)}
    return bool(removed) and removed == found.placed.keys()


def _messages(errors: Mapping[str, SyncError]) -> dict[str, str]:
    return {cluster: f"it could not be placed: {error}" for cluster, error in errors.items()}
