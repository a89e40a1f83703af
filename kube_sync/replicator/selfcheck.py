"""Whether decisions over what is replicated are those over whole objects: a sample, all the time.

It should never find anything: it is there for the day that the analysis is wrong. Only `input` can
be checked this way; what is kept of other collections is the same for both questions. Keeps true:
it accuses nobody for what changes meanwhile, since both are asked about one body from the API
server, and a difference counts when it was found again and again, each time with the same answer
before and after. It waits for nobody and nobody for it: what comes too fast is not sampled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any, NoReturn

import msgspec
import structlog

from kube_sync.decisions.canary import Canary
from kube_sync.decisions.requested import as_asked
from kube_sync.errors import NO_JSON, SyncError, Undecided
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
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
_TIMES = 3  # that a difference has to be found


class SelfCheck:
    """Checks a share of the decisions of one epoch."""

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
        """`decision` is a path, `share` between 0 (never) and 1 (each time)."""
        self._opa = opa
        self._kube = kube
        self._decision = decision
        self._targets = targets
        self._replicated = replicated
        self._share = share
        self._chance = chance
        self._queue = WorkQueue[tuple[str, ObjectKey]]("selfcheck")
        self._told = asyncio.Event()
        self._policies: str | None = None  # None: none yet, or such that say now this, now that
        self._canary: Canary | None = None

    def policies_changed(self, digest: str, *, pure: bool) -> None:
        """Take note which policies are in force; what is not `pure` cannot be compared."""
        self._policies = digest if pure else None
        self._told.set()

    def canary_changed(self, canary: Canary | None) -> None:
        """Take note what decides on the objects of its side."""
        self._canary = canary

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Take note that OPA holds something new, and check a part of it."""
        if not self._share or name not in self._targets():
            return
        for key in keys:
            if len(self._queue) < _WAITING and self._chance() < self._share:
                self._queue.add((name, key))

    async def run(self) -> NoReturn:
        """Once policies are in force, check one after another."""
        await self._told.wait()
        await work(self._queue, self._checked)

    async def _checked(self, asked: tuple[str, ObjectKey]) -> Result:
        name, key = asked
        try:
            await self._check(name, key)
        except (SyncError, *NO_JSON, KeyError) as error:  # not tried again: it is only a sample
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
        """Tell whether the decision on an object as it is now depends on what is left out."""
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
        if form.namespaced != bool(key.namespace) or (body := await self._body(gvr, key)) is None:
            return False
        kept = narrowing(form.paths)(body)
        before = await self._decide(decision, kept)
        whole = await self._decide(decision, narrowing([(), *form.paths])(body))
        after = await self._decide(decision, kept)
        metrics.selfcheck_decisions.labels(name).inc()
        now = self._policies, self._canary, self._replicated.narrowed_to(name)
        stands = (policies, canary, form) == now
        return stands and before == after != whole

    async def _body(self, gvr: GroupVersionResource, key: ObjectKey) -> bytes | None:
        # A LIST of one: the right to get single objects is not among the replicator's.
        where = f"metadata.name={key.name}"
        one = KubeCollection(self._kube, gvr, namespace=key.namespace or None, field_selector=where)
        async with aclosing(one.list()) as pages:
            async for page in pages:
                for item in page.items:
                    return item.body
        return None

    async def _decide(self, decision: str, body: bytes) -> Any:  # noqa: ANN401 - whatever a policy says
        try:
            answer = await self._opa.query(decision, b'{"input":' + as_asked(body) + b"}")
        except Undecided:
            return "failed"
        return None if answer is None else [msgspec.json.decode(answer)]
