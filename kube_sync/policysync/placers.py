"""Several placers as one, by the policy, whatever the version that it was placed in.

Keeps true: a copy that is placed stays with the placer that has it; a new one goes to the first
that knows the cluster. A kind that is synced in another version than before keeps its copies: all
versions of a policy are one subject. A spoke that does not answer keeps no other waiting: it has
its own turns, what waits for one gives up soon, and after its rest one step alone asks it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from kube_sync.errors import Retriable, SyncError
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.policysync.copies import Placed, Placer, PolicyId
from kube_sync.policysync.plan import Apply, Leave, Step

AT_ONCE: Final = 16  # steps under way through one placer
AT_ONE: Final = 4  # steps under way to one cluster, where each is reached by itself
_SLOW: Final = 5.0  # seconds; a step that failed after so long was to a spoke that hangs
_REST: Final = 30.0  # seconds for which such a spoke is left alone


class Subject(NamedTuple):
    """A policy of the hub in whichever version."""

    group: str
    resource: str
    namespace: str
    name: str


def subject_of(policy: PolicyId) -> Subject:
    """Return what a policy is without its version."""
    return Subject(policy.gvr.group, policy.gvr.resource, policy.namespace, policy.name)


@dataclass(frozen=True, slots=True)
class PlacerRoute:
    """One placer, and which clusters it can reach; None: nobody can tell, so it may be tried."""

    placer: Placer
    reaches: Callable[[str], bool | None] = lambda _cluster: None
    apart: bool = False  # each cluster is reached by itself: one that hangs takes no other's turn


class Placers:
    """All placers that are configured, in the order in which they are asked."""

    def __init__(self, fenced: FencedWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._fenced = fenced
        self._clock = clock
        self._ways: list[tuple[PlacerRoute, asyncio.Semaphore]] = []
        self._turns: dict[str, asyncio.Semaphore] = {}  # by cluster
        self._hanging: set[str] = set()  # clusters that did not answer when last asked
        self._asked: set[str] = set()  # of those, the ones that are asked again now
        self._ids: dict[Subject, set[PolicyId]] = {}
        self._resting: dict[str, float] = {}  # until when, by cluster

    def add(self, way: PlacerRoute) -> None:
        """Ask this one after those that there are."""
        self._ways.append((way, asyncio.Semaphore(AT_ONCE)))

    @property
    def ready(self) -> bool:
        """Whether all of them know what is placed."""
        return all(way.placer.ready for way, _ in self._ways)

    def heard(self, policy: PolicyId) -> Subject:
        """Note that there are, or were, copies of a policy; to be told with each news of one."""
        subject = subject_of(policy)
        self._ids.setdefault(subject, set()).add(policy)
        return subject

    def subjects(self) -> Iterable[Subject]:
        """Return all policies that there are copies of, also those that the hub has no more."""
        return list(self._ids)

    def ids(self, subject: Subject) -> frozenset[PolicyId]:
        """Return in which versions there are copies of a policy."""
        known = self._ids.get(subject, set())
        gone = {one for one in known if not any(w.placer.placed(one) for w, _ in self._ways)}
        known -= gone
        if not known:
            self._ids.pop(subject, None)
        return frozenset(known)

    def placed(self, subject: Subject) -> dict[str, Placed]:
        """Return the copies of a policy by cluster; of several, that of the first placer."""
        found: dict[str, Placed] = {}
        for policy in sorted(self.ids(subject), reverse=True):
            for way, _ in reversed(self._ways):
                found |= way.placer.placed(policy)
        return dict(sorted(found.items()))

    async def do(self, step: Step, still: Callable[[], bool] = lambda: True) -> None:
        """Do one step, if it is `still` to be done when its turn has come.

        Raises SyncError; Fenced where this process may not write.
        """
        cluster = step.key.cluster
        self._ask(cluster)
        way, turns = self._way(step)
        async with self._turn_at(cluster) if way.apart else turns:
            self._ask(cluster)  # it may hang since
            if still():
                await self._timed(way.placer, step, cluster)

    @asynccontextmanager
    async def _turn_at(self, cluster: str) -> AsyncGenerator[None]:
        """Take one of a cluster's turns. Raises Retriable where it is slow."""
        turns = self._turns.setdefault(cluster, asyncio.Semaphore(AT_ONE))
        try:
            async with asyncio.timeout(_SLOW):
                await turns.acquire()
        except TimeoutError as error:
            msg = f"cluster {cluster}: what was asked of it before takes more than {_SLOW:.0f} s"
            raise Retriable(msg) from error
        try:
            yield
        finally:
            turns.release()

    def _ask(self, cluster: str) -> None:
        """Raise Retriable where a cluster did not answer, and is not to be asked now.

        After its rest one asks it; whoever comes meanwhile does not wait for what becomes of it.
        """
        resting = self._clock() < self._resting.get(cluster, 0.0)
        if resting or cluster in self._asked:
            msg = f"cluster {cluster} did not answer, and is left alone for a moment"
            raise Retriable(msg)

    async def _timed(self, placer: Placer, step: Step, cluster: str) -> None:
        """Do a step, and note how long its cluster took."""
        started = self._clock()
        if cluster in self._hanging:
            self._asked.add(cluster)
        try:
            await self._send(placer, step)
        except Fenced:
            raise  # of the hub, and of whoever writes there: no spoke was slow
        except Retriable:
            if self._clock() - started >= _SLOW:
                self._resting[cluster] = self._clock() + _REST
                self._hanging.add(cluster)
            raise
        except SyncError:
            self._hanging.discard(cluster)  # whatever it said, it answered
            raise
        else:
            self._resting.pop(cluster, None)
            self._hanging.discard(cluster)
        finally:
            self._asked.discard(cluster)

    async def _send(self, placer: Placer, step: Step) -> None:
        if isinstance(step, Apply):
            self.heard(step.copy.key.policy)
            await self._fenced.send("apply", partial(placer.apply, step.copy))
        elif isinstance(step, Leave):
            await self._fenced.send("leave", partial(placer.leave, step.key, step.at))
        else:
            await self._fenced.send("remove", partial(placer.remove, step.key))

    def _way(self, step: Step) -> tuple[PlacerRoute, asyncio.Semaphore]:
        """Return who has the copy, or else the first that reaches the cluster."""
        if len(self._ways) == 1:
            return self._ways[0]
        cluster = step.key.cluster
        ids = self._ids.get(subject_of(step.key.policy), ())
        for way in self._ways:
            if any(cluster in way[0].placer.placed(one) for one in ids):
                return way
        known = [(way, way[0].reaches(cluster)) for way in self._ways]
        for answer in (True, None):
            for way, reaches in known:
                if reaches is answer:
                    return way
        msg = f"cluster {cluster}: no placer reaches it"
        raise Retriable(msg)
