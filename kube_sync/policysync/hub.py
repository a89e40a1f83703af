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
from typing import Final, NoReturn, Protocol

import structlog

from kube_sync.errors import Retriable, SyncError
from kube_sync.guard import Withheld
from kube_sync.kube.fencedwriter import Fenced
from kube_sync.observability import metrics
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.events import News
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.placers import Placers, Subject, subject_of
from kube_sync.policysync.plan import Braked, Remove, Step, braked, copy_states, plan
from kube_sync.policysync.policy_state import PolicyState, unknown
from kube_sync.policysync.policystatus import Pace, PolicyStatus
from kube_sync.policysync.removal_guard import Brakes
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.freshness import Stale
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

WORKERS: Final = 16  # concurrent workers
_LOOKS_SECONDS: Final = 1.0  # between two surveys
_PATIENT_LOOKS: Final = 3  # surveys in a row that may be skipped while policies are queued
_AGAIN_SECONDS: Final = 600.0  # resync period: after it every policy is enqueued
_MISSING_SECONDS: Final = 1.0  # for which a policy must be missing: its kind may be going, not it
_QUIET_SECONDS: Final = 0.3
_SLICE: Final = 20  # policies per slice, after which other tasks may run


class Leadership(Protocol):
    """Leader election."""

    @property
    def held(self) -> bool:
        """Whether this process is the leader."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the hub queries anew each time."""

    look: Callable[[Subject], PolicyState]
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
        note: Callable[[str, str], None],
        news: News,
        grace: float,
        clock: Callable[[], float],
        quiet: float = _QUIET_SECONDS,
        backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 120.0),
    ) -> None:
        """`clock` is monotonic Unix seconds; `note` takes a name and its problem.

        Callbacks of placers wait `quiet` seconds for more of the same policy.
        """
        self._state = state
        self._placers = placers
        self._brakes = brakes
        self._status = status
        self._leadership = leadership
        self._facts = facts
        self._note, self._news = note, news
        self._grace, self._quiet, self._clock = grace, quiet, clock
        self._queue = WorkQueue[Subject]("policy_sync_policies", backoff)
        self._missing: dict[Subject, float] = {}  # since when
        self._unclean: dict[Subject, PolicyId] = {}  # annotations and statuses to be removed
        self._stirred: set[Subject] = set()  # may have changed since it was last surveyed
        self._told: dict[Subject, frozenset[PolicyId]] = {}  # to the brakes
        self._held: dict[Subject, Mapping[str, Withheld]] = {}
        self._copies: dict[Subject, tuple[int, int]] = {}  # wanted and placed
        self._pace = Pace(clock)
        self._woken = asyncio.Event()
        self._weighed: tuple[object, ...] = ()
        self._surveyed, self._put_off, self._all_at = False, 0, 0.0

    def add(self, policy: PolicyId) -> None:
        """Enqueue a policy of the hub."""
        self._stir(subject_of(policy))

    def heard(self, policy: PolicyId) -> None:
        """Enqueue a policy whose copies changed."""
        # Many clusters report at about the same time: they are handled together.
        self._queue.add_after(self._placers.record_version(policy), self._quiet)

    def add_all(self) -> None:
        """Enqueue every policy of the hub, and every policy with copies."""
        self._all_at = self._clock()
        for subject in self._subjects():
            self._stir(subject)

    def _stir(self, subject: Subject) -> None:
        self._stirred.add(subject)
        self._queue.add(subject)

    def wake(self) -> None:
        """Start anew: this process became the leader."""
        self._surveyed = False
        self._news.begin()
        self._woken.set()

    # Surveys

    async def look(self) -> NoReturn:
        """Weigh all unwanted copies, and enqueue what is due, until cancelled."""
        while True:
            self._woken.clear()
            await self.look_once()
            try:
                async with asyncio.timeout(_LOOKS_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def look_once(self) -> None:
        """Weigh all unwanted copies, unless policies have to be reconciled first."""
        metrics.policy_sync_waiting.set(len(self._queue))
        if not self._may():
            return
        if not self._surveyed:
            await self._survey()
        elif len(self._queue) and self._put_off < _PATIENT_LOOKS:
            # Policies in the queue may have more unwanted copies.
            self._put_off += 1
            return
        self._put_off = 0
        self._weigh()
        if self._clock() - self._all_at >= _AGAIN_SECONDS:
            self.add_all()

    def _may(self) -> bool:
        if not self._leadership.held:
            self._surveyed = False
            self._note("copies", "another one brings them")
            return False
        if not (self._state.ready and self._placers.ready):
            self._surveyed = False
            self._note("copies", "not everything that they stand on is listed yet")
            return False
        return True

    async def _survey(self) -> None:
        """Report the state of every policy to the brakes, before anything is weighed."""
        for number, subject in enumerate(self._subjects(), 1):
            # What fails here fails again in its own reconcile, and is retried there.
            with suppress(Retriable), self._alone(subject):
                self._stand(subject, self._look(subject))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._surveyed = self._may()
        self.add_all()
        log.info("surveyed", policies=len(self._told))

    def _weigh(self) -> None:
        approved = frozenset(self._facts.approved())
        found = self._brakes.weigh(self._facts.stale(), approved, self._clock())
        seen = (found.holds, approved)
        if seen != self._weighed:
            self._weighed = seen
            for subject in list(self._held):
                self._queue.add(subject)
        held = sum(len(one) for one in self._held.values())
        _tell_all(self._note, self._copies.values(), held, found.holds)

    def _subjects(self) -> list[Subject]:
        found = dict.fromkeys(self._placers.subjects())
        for gvr in sorted(self._state.cached_kinds):
            for key in self._state.policies(gvr).objects:
                found[subject_of(PolicyId(gvr, key.namespace, key.name))] = None
        return list(found)

    # One policy

    async def work(self) -> NoReturn:
        """Reconcile one policy after the other until cancelled."""
        await work(self._queue, self._reconciled)

    async def _reconciled(self, subject: Subject) -> Result:
        if not self._surveyed or not self._may():
            return Result()  # everything is enqueued when it is ready
        with metrics.policy_sync_reconcile_seconds.time(), self._alone(subject):
            try:
                troubles = await self._reconcile(subject)
            except Fenced:
                return Result()  # the new leader enqueues everything
            except SyncError as error:
                troubles = {"": error}
        if troubles:
            raise _failed(subject, troubles)
        return Result()

    @contextmanager
    def _alone(self, subject: Subject) -> Iterator[None]:
        """Convert any error of a policy to Retriable, so that it affects that policy alone."""
        try:
            yield
        except Exception as error:  # an author of one policy must not be able to stop all others
            log.exception("policy_failed", **_named(subject))
            msg = "it failed"
            raise Retriable(msg) from error

    async def _reconcile(self, subject: Subject) -> Mapping[str, SyncError]:
        """Return the errors by cluster; enqueue later steps for their time. Raises SyncError."""
        self._stirred.discard(subject)
        found = self._look(subject)
        self._stand(subject, found)
        now = self._clock()
        wanted = plan(found.wanted, found.placed, now=now, grace=self._grace, gone=found.gone)
        steps = braked(wanted, found.placed, self._brakes, now)
        self._hold(subject, steps.held)
        self._news.removals(found, steps.held, steps.approved)
        # Before its copies: after an interruption the copies remain, and the cleaning is repeated.
        unclean = await self._clean(subject, found, steps)
        troubles = await self._do(subject, steps.plan.steps)
        after = self._look(subject)
        self._stand(subject, after)
        wait = await self._tell(subject, after, steps.held, troubles)
        self._add_due(subject, steps, wait)
        return unclean | troubles

    async def _tell(
        self,
        subject: Subject,
        found: PolicyState,
        held: Mapping[str, Withheld],
        troubles: Mapping[str, SyncError],
    ) -> float:
        """Write the policy's status; return the seconds to wait before, 0 if it was written."""
        wait = self._pace.wait(subject)
        if not wait and await self._status.tell(found, held, _words(troubles)):
            self._pace.told(subject, len(found.placed))
        return wait

    async def _clean(
        self, subject: Subject, found: PolicyState, steps: Braked
    ) -> dict[str, SyncError]:
        """Clean a policy all of whose copies go, now or later; they do not wait for it."""
        if not found.vanished:
            self._unclean.pop(subject, None)
        elif _takes_all(steps, found):
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

    def _look(self, subject: Subject) -> PolicyState:
        found = self._facts.look(subject)
        if not found.missing:
            self._missing.pop(subject, None)
            return found
        since = self._missing.setdefault(subject, self._clock())
        if self._clock() - since >= _MISSING_SECONDS:
            return found
        return PolicyState(found.policy, unknown(found.placed), found.placed)

    def _stand(self, subject: Subject, found: PolicyState) -> None:
        """Report the state of a policy's copies to the brakes, each in its own version."""
        stands = copy_states(
            found.wanted,
            found.placed,
            gone=found.gone,
            managed=found.managed,
            vanished=found.vanished,
        )
        ids = frozenset(one.key.policy for one in found.placed.values())
        for policy in ids | self._told.get(subject, frozenset()):
            own = {c: s for c, s in stands.items() if found.placed[c].key.policy == policy}
            self._brakes.set_copies(policy, own, self._clock())
        self._told[subject] = ids
        wanted = len(found.wanted.copies) if found.wanted is not None else 0
        self._copies[subject] = wanted, len(found.placed)
        if not ids and found.body is None:
            for known in (self._told, self._copies, self._missing):
                known.pop(subject, None)
            self._pace.forget(subject)

    def _hold(self, subject: Subject, held: Mapping[str, Withheld]) -> None:
        if held:
            self._held[subject] = held
        else:
            self._held.pop(subject, None)

    def _still(self, subject: Subject, step: Step) -> bool:
        """Return whether a step is still wanted: it may have waited long for its turn."""
        if not isinstance(step, Remove):
            return True  # the next round corrects whatever it writes
        if subject in self._stirred:
            # The round that is enqueued already does the rest.
            self._stirred.discard(subject)
            self._stand(subject, self._look(subject))
        now = self._clock()
        said = self._brakes.permit(step.key, now)
        right = not isinstance(said, Withheld) and said <= now
        if not right:
            self._queue.add_after(subject, _LOOKS_SECONDS)
        return right

    async def _do(self, subject: Subject, steps: Iterable[Step]) -> dict[str, SyncError]:
        """Run all steps concurrently, as the placers allow; return the errors by cluster."""
        troubles: dict[str, SyncError] = {}

        async def do(step: Step) -> None:
            try:
                await self._placers.run(step, partial(self._still, subject, step))
            except SyncError as error:
                troubles[step.key.cluster] = error

        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(do(step))
        if fenced := next((one for one in troubles.values() if isinstance(one, Fenced)), None):
            raise fenced
        return dict(sorted(troubles.items()))

    def _add_due(self, subject: Subject, steps: Braked, wait: float) -> None:
        # Not as a Result: it stays due although something may fail.
        times = (
            [] if steps.plan.plan_again_at is None else [steps.plan.plan_again_at - self._clock()]
        )
        times += [wait] if wait else []
        if subject in self._missing:
            times.append(self._missing[subject] + _MISSING_SECONDS - self._clock())
        if times:
            self._queue.add_after(subject, max(0.0, min(times)))


def _tell_all(
    note: Callable[[str, str], None],
    copies: Iterable[tuple[int, int]],
    held: int,
    holds: Iterable[Withheld],
) -> None:
    """Report the number of wanted and placed copies of all policies, and what holds removals."""
    wanted, placed = [sum(column) for column in zip(*copies, strict=True)] or [0, 0]
    metrics.policy_sync_wanted.set(wanted)
    metrics.policy_sync_placed.set(placed)
    metrics.policy_sync_held.set(held)
    note("copies", f"{placed} placed, {wanted} wanted")
    why = "; ".join(f"{one.reason} (released by: {one.release})" for one in holds)
    note("removals", f"{held} held: {why}" if held and why else "none held")


def _failed(subject: Subject, troubles: Mapping[str, SyncError]) -> Retriable:
    """Log the errors by cluster, and return them as one error of the policy."""
    for cluster, error in troubles.items():
        log.warning("policy_not_synced", **_named(subject), cluster=cluster, error=str(error))
    asked = [one.retry_after or 0.0 for one in troubles.values() if isinstance(one, Retriable)]
    return Retriable(f"clusters: {len(troubles)}", max(asked, default=None))


def _named(subject: Subject) -> dict[str, str]:
    return {
        "resource": f"{subject.resource}.{subject.group}",
        "key": f"{subject.namespace}/{subject.name}",
    }


def _takes_all(steps: Braked, found: PolicyState) -> bool:
    removed = {one.key.cluster for one in steps.plan.steps if isinstance(one, Remove)}
    return bool(removed) and removed == found.placed.keys()


def _words(troubles: Mapping[str, SyncError]) -> dict[str, str]:
    return {cluster: f"it could not be placed: {error}" for cluster, error in troubles.items()}
