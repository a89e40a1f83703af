"""Compare decisions over projected objects with those over whole objects, for a sample.

It should never find a difference: it is there in case that the analysis of policies is wrong. Only
`input` can be checked this way; other collections are the same for both queries. Invariant: no
false alarm for concurrent changes. Both queries use one body from the API server, and a difference
counts only if it was found several times, each time with the same answer before and after. It
blocks nothing and waits for nothing: objects beyond the queue's limit are not sampled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

import msgspec
import structlog

from kube_sync.decisions.canary import Canary
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import NO_JSON, SyncError, Undecided
from kube_sync.kube.client import KubeClient
from kube_sync.kube.wholeobjects import listed_object
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import QueryApi
from kube_sync.opa.lanes import lane_path
from kube_sync.replicator.path_projection import narrowing
from kube_sync.replicator.resources import Resources
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_WAITING = 100  # objects
_TIMES = 3  # how often a difference has to be found


class SelfCheck:
    """Checks a sample of the decisions of one epoch."""

    def __init__(
        self,
        opa: QueryApi,
        kube: KubeClient,
        decision: str,
        targets: Callable[[], Mapping[str, GroupVersionResource]],
        replicated: Resources,
        share: float,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`decision` is a path, `share` between 0 (never) and 1 (always)."""
        self._opa = opa
        self._kube = kube
        self._decision = decision
        self._targets = targets
        self._replicated = replicated
        self._share = share
        self._chance = chance
        self._queue = WorkQueue[tuple[str, ObjectKey]]("selfcheck")
        self._ready = asyncio.Event()
        self._policies: str | None = None  # None: no policies yet, or not deterministic ones
        self._canary: Canary | None = None

    def policies_changed(self, digest: str, *, pure: bool) -> None:
        """Handle a change of the policies; without `pure` ones nothing can be compared."""
        self._policies = digest if pure else None
        self._ready.set()

    def canary_changed(self, canary: Canary | None) -> None:
        """Handle a change of the canary that decides on part of the objects."""
        self._canary = canary

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Handle a write of these objects, and enqueue a sample of them."""
        if not self._share or name not in self._targets():
            return
        for key in keys:
            if len(self._queue) < _WAITING and self._chance() < self._share:
                self._queue.add((name, key))

    async def run(self) -> NoReturn:
        """Once policies are in force, check the queued objects until cancelled."""
        await self._ready.wait()
        await work(self._queue, self._checked)

    async def _checked(self, item: tuple[str, ObjectKey]) -> Result:
        name, key = item
        try:
            await self._check(name, key)
        except (SyncError, *NO_JSON, KeyError) as error:  # no retry: it is only a sample
            log.info("decision_not_checked", resource=name, error=str(error))
        return Result()

    async def _check(self, name: str, key: ObjectKey) -> None:
        for _ in range(_TIMES):
            if not await self._differs(name, key):
                return
        metrics.selfcheck_differences.labels(name).inc()
        log.error("decision_differs", resource=name, key=str(key), policies=self._policies)
        self._replicated.distrust(name)

    async def _differs(self, name: str, key: ObjectKey) -> bool:
        """Return whether the decision on an object depends on fields that are not replicated."""
        policies, canary = self._policies, self._canary
        form = self._replicated.narrowed_to(name)
        decision = self._decision
        if canary is not None and canary.side.has(key):
            decision, policies = (
                lane_path("canary", decision),
                None if canary.reads.impure else policies,
            )
        gvr = self._targets().get(name)
        if policies is None or form is None or gvr is None:
            return False
        if form.namespaced != bool(key.namespace):
            return False
        # By a LIST: the replicator has no permission to get single objects.
        if (item := await listed_object(self._kube, gvr, key)) is None:
            return False
        body = item.body
        kept = narrowing(form.paths)(body)
        before = await self._decide(decision, kept)
        whole = await self._decide(decision, narrowing([(), *form.paths])(body))
        after = await self._decide(decision, kept)
        metrics.selfcheck_decisions.labels(name).inc()
        now = self._policies, self._canary, self._replicated.narrowed_to(name)
        unchanged = (policies, canary, form) == now
        return unchanged and before == after != whole

    async def _decide(self, decision: str, body: bytes) -> Any:  # noqa: ANN401 - whatever a policy says
        try:
            answer = await self._opa.query(decision, b'{"input":' + as_requested(body) + b"}")
        except Undecided:
            return "failed"
        return None if answer is None else [msgspec.json.decode(answer)]
