"""Combines several placers to one, by policy, in whatever version it was placed.

Invariant: a placed copy stays with the placer that has it; a new one goes to the first placer
that knows the cluster. A kind that is synced in a new version keeps its copies: all versions of a
policy are one subject. A spoke that does not answer delays no other: it has its own semaphore,
waiting for it is short, and after its rest one single step tries it again.
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
from kube_sync.policysync.plan import Apply, MarkForRemoval, Step

CONCURRENT_STEPS: Final = 16  # concurrent steps of one placer
CONCURRENT_STEPS_PER_CLUSTER: Final = (
    4  # concurrent steps to one cluster, if clusters are reached one by one
)
_SLOW: Final = 5.0  # seconds; a step that failed after so long counts as a hanging spoke
_RETRY_SECONDS: Final = 30.0  # seconds for which such a spoke is not tried


class Subject(NamedTuple):
    """A policy of the hub in any version."""

    group: str
    resource: str
    namespace: str
    name: str


def subject_of(policy: PolicyId) -> Subject:
    """Return a policy without its version."""
    return Subject(policy.gvr.group, policy.gvr.resource, policy.namespace, policy.name)


@dataclass(frozen=True, slots=True)
class PlacerRoute:
    """One placer, and the clusters that it can reach; None: unknown, so each may be tried."""

    placer: Placer
    reaches: Callable[[str], bool | None] = lambda _cluster: None
    per_cluster: bool = False  # clusters are reached one by one: a hanging one blocks no other


class Placers:
    """All configured placers, in order of precedence."""

    def __init__(self, fenced: FencedWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._fenced = fenced
        self._clock = clock
        self._routes: list[tuple[PlacerRoute, asyncio.Semaphore]] = []
        self._slots: dict[str, asyncio.Semaphore] = {}  # by cluster
        self._hanging: set[str] = set()  # clusters that did not answer the last step
        self._probed: set[str] = set()  # of those, the clusters that a step is trying again
        self._ids: dict[Subject, set[PolicyId]] = {}
        self._retry_at: dict[str, float] = {}  # until when, by cluster

    def add(self, route: PlacerRoute) -> None:
        """Add a placer with the lowest precedence."""
        self._routes.append((route, asyncio.Semaphore(CONCURRENT_STEPS)))

    @property
    def ready(self) -> bool:
        """Whether all placers know their copies."""
        return all(route.placer.ready for route, _ in self._routes)

    def record_version(self, policy: PolicyId) -> Subject:
        """Record the version of a policy with copies; to be called for each change of them."""
        subject = subject_of(policy)
        self._ids.setdefault(subject, set()).add(policy)
        return subject

    def subjects(self) -> Iterable[Subject]:
        """Return all policies with copies, also those that the hub no longer has."""
        return list(self._ids)

    def ids(self, subject: Subject) -> frozenset[PolicyId]:
        """Return the versions in which a policy has copies."""
        known = self._ids.get(subject, set())
        gone = {one for one in known if not any(w.placer.placed(one) for w, _ in self._routes)}
        known -= gone
        if not known:
            self._ids.pop(subject, None)
        return frozenset(known)

    def placed(self, subject: Subject) -> dict[str, Placed]:
        """Return the copies of a policy by cluster; of several, that of the first placer."""
        found: dict[str, Placed] = {}
        for policy in sorted(self.ids(subject), reverse=True):
            for route, _ in reversed(self._routes):
                found |= route.placer.placed(policy)
        return dict(sorted(found.items()))

    async def run(self, step: Step, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Run one step, if `is_wanted` when a slot is free.

        Raises SyncError; Fenced if this process is not the leader.
        """
        cluster = step.key.cluster
        self._check_available(cluster)
        route, slots = self._route(step)
        async with self._slot(cluster) if route.per_cluster else slots:
            self._check_available(cluster)  # it may hang by now
            if is_wanted():
                await self._timed(route.placer, step, cluster)

    @asynccontextmanager
    async def _slot(self, cluster: str) -> AsyncGenerator[None]:
        """Acquire one of a cluster's slots. Raises Retriable if it is slow."""
        slots = self._slots.setdefault(cluster, asyncio.Semaphore(CONCURRENT_STEPS_PER_CLUSTER))
        try:
            async with asyncio.timeout(_SLOW):
                await slots.acquire()
        except TimeoutError as error:
            msg = f"cluster {cluster}: what was asked of it before takes more than {_SLOW:.0f} s"
            raise Retriable(msg) from error
        try:
            yield
        finally:
            slots.release()

    def _check_available(self, cluster: str) -> None:
        """Raise Retriable if a cluster did not answer, and is not to be tried now.

        After its rest one step tries it; other steps do not wait for the result.
        """
        is_resting = self._clock() < self._retry_at.get(cluster, 0.0)
        if is_resting or cluster in self._probed:
            msg = f"cluster {cluster} did not answer, and is left alone for a moment"
            raise Retriable(msg)

    async def _timed(self, placer: Placer, step: Step, cluster: str) -> None:
        """Run a step, and measure how long its cluster took."""
        started = self._clock()
        if cluster in self._hanging:
            self._probed.add(cluster)
        try:
            await self._send(placer, step)
        except Fenced:
            raise  # an error of the hub, or lost leadership: no slow spoke
        except Retriable:
            if self._clock() - started >= _SLOW:
                self._retry_at[cluster] = self._clock() + _RETRY_SECONDS
                self._hanging.add(cluster)
            raise
        except SyncError:
            self._hanging.discard(cluster)  # whatever the error, it answered
            raise
        else:
            self._retry_at.pop(cluster, None)
            self._hanging.discard(cluster)
        finally:
            self._probed.discard(cluster)

    async def _send(self, placer: Placer, step: Step) -> None:
        if isinstance(step, Apply):
            self.record_version(step.copy.key.policy)
            await self._fenced.send("apply", partial(placer.apply, step.copy))
        elif isinstance(step, MarkForRemoval):
            await self._fenced.send("leave", partial(placer.mark_for_removal, step.key, step.at))
        else:
            await self._fenced.send("remove", partial(placer.remove, step.key))

    def _route(self, step: Step) -> tuple[PlacerRoute, asyncio.Semaphore]:
        """Return the placer with the copy, or else the first that reaches the cluster."""
        if len(self._routes) == 1:
            return self._routes[0]
        cluster = step.key.cluster
        ids = self._ids.get(subject_of(step.key.policy), ())
        for route in self._routes:
            if any(cluster in route[0].placer.placed(one) for one in ids):
                return route
        known = [(route, route[0].reaches(cluster)) for route in self._routes]
        for answer in (True, None):
            for route, reaches in known:
                if reaches is answer:
                    return route
        msg = f"cluster {cluster}: no placer reaches it"
        raise Retriable(msg)
