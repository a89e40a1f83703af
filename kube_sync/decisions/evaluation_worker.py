"""Evaluate the queue's next objects by OPA, with retries, and publish the decisions in the hub.

A changed object never waits for a sweep. While OPA decides on the next classes of a sweep, the
decisions of the last ones are published for their objects, always before those of the next. If an
object changes, or a collection is withdrawn, during a query, the answer does not count for it.
Limits are queried before decisions are published. While OPA does not answer, the hub reports that,
and the query is repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import structlog

from kube_sync.decisions.budget_watcher import BudgetWatcher
from kube_sync.decisions.collections import Collection_, TrackedCollections
from kube_sync.decisions.evaluation_queue import Evaluation, EvaluationQueue, Group
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.sharing import OBJECTS_PER_YIELD, Answer, Sharing
from kube_sync.errors import SyncError
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import tracing
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Unshared(NamedTuple):
    """The decision of a class that was published for one of its objects."""

    answer: Answer
    gvr: GroupVersionResource
    collection: Collection_


class EvaluationWorker:
    """Takes evaluations off an EvaluationQueue, one query at a time."""

    def __init__(
        self,
        evaluator: PolicySetEvaluator,
        hub: DecisionHub,
        collections: TrackedCollections,
        queue: EvaluationQueue,
        sharing: Sharing,
        *,
        budget_watcher: BudgetWatcher | None,
        backoff: Backoff,
    ) -> None:
        """Use `backoff` between two attempts; without `budget_watcher` no limits are queried."""
        self.evaluator = evaluator
        self._hub = hub
        self._collections = collections
        self._queue = queue
        self._sharing = sharing
        self._budget_watcher = budget_watcher
        self._backoff = backoff
        self._unshared: deque[_Unshared] = deque()  # the answers of a sweep's last query

    async def process_next(self) -> None:
        """Evaluate as many as fit into one query, and publish known decisions of classes."""
        await self._retry(self._process_batch)

    async def finish(self) -> bool:
        """Publish the last decisions of a sweep for all objects; return whether there were any."""
        found = bool(self._unshared)
        await self._share()
        return found

    async def settle_limits(self) -> None:
        """Query the limits alone, once all due decisions are published."""
        await self._retry(self._refresh_limits)
        # Changes that arrived during the query may be why the limits are looser now.
        if self._budget_watcher is not None and self._queue.is_empty:
            self._budget_watcher.settle(self._collections.by_name.values())

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except SyncError as error:
                log.warning("decisions_delayed", error=str(error))
                self._hub.note("delayed", f"decisions are delayed: {error}")
                self._hub.freshness.report("decisions", str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._hub.note("delayed", None)
                self._hub.freshness.report("decisions", None)
                self._hub.measure()
                self._backoff.progressed()
                return

    async def _refresh_limits(self) -> None:
        if self._budget_watcher is not None:
            await self._budget_watcher.refresh()

    async def _process_batch(self) -> None:
        await self._refresh_limits()  # known decisions are published right away
        if self._queue.changed:  # changed objects never wait
            await self._share()  # first: what is decided of them next is newer
            await self._evaluate_changed()
        elif self._queue.is_due:  # else withdrawn, or the policies are changing
            await self._evaluate_sweep()

    async def _evaluate_changed(self) -> None:
        queue, targets = self._queue, self._collections.targets
        name = next(iter(queue.changed))[0]
        gvr, collection = targets[name], self._collections.by_name[name]
        # Taken off first: an object that changes during the query is enqueued again.
        evaluations = self._sharing.take_changed(
            queue.changed, collection, gvr, self.evaluator.batch_size
        )
        for evaluation in evaluations:
            for key, _ in evaluation.with_causes():
                queue.sweep.pop((name, key), None)
        if not evaluations:
            await asyncio.sleep(0)  # all decisions were known: yield to other tasks
            return
        try:
            outcomes = await self._evaluate(collection, evaluations)
        except SyncError:
            if targets.get(name) == gvr:
                queue.requeue(
                    {
                        (name, k): c
                        for evaluation in evaluations
                        for k, c in evaluation.with_causes()
                    }
                )
            raise
        if targets.get(name) == gvr:  # else withdrawn during the query
            for evaluation in evaluations:
                outcome, changed = outcomes.get(evaluation.representative), queue.changed
                queue.requeue(self._sharing.publish(evaluation, outcome, collection, gvr, changed))

    async def _evaluate_sweep(self) -> None:
        queue, targets = self._queue, self._collections.targets
        name = next(iter(queue.sweep))[0]
        gvr, collection = targets[name], self._collections.by_name[name]
        evaluations, cached = self._sharing.take_swept(
            queue.sweep, collection, self.evaluator.batch_size
        )
        outcomes = await self._evaluate_while_sharing(collection, evaluations)
        if isinstance(outcomes, SyncError):
            if targets.get(name) == gvr:
                queue.requeue_sweep(name, [*evaluations, *(answer.evaluation for answer in cached)])
            raise outcomes
        for evaluation in evaluations:
            if targets.get(name) != gvr:  # withdrawn during the query
                return
            outcome, changed = outcomes.get(evaluation.representative), queue.changed
            is_shareable = self._sharing.publish_representative(
                evaluation, outcome, collection, gvr, changed
            )
            if outcome is not None and is_shareable:
                cached.append(Answer(evaluation, outcome))
            else:
                queue.requeue_sweep(name, [evaluation.without_representative])
        self._unshared.extend(_Unshared(answer, gvr, collection) for answer in cached)

    async def _evaluate_while_sharing(
        self, collection: Collection_, evaluations: Sequence[Evaluation]
    ) -> Mapping[ObjectKey, Outcome] | SyncError:
        """Evaluate, and publish the answers of the last query meanwhile."""

        async def ask() -> Mapping[ObjectKey, Outcome] | SyncError:
            try:
                return await self._evaluate(collection, evaluations) if evaluations else {}
            except SyncError as error:
                return error  # the other task goes on

        if not self._unshared:
            return await ask()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask())
            group.create_task(self._share())
        return asking.result()

    async def _evaluate(
        self, collection: Collection_, evaluations: Sequence[Evaluation]
    ) -> Mapping[ObjectKey, Outcome]:
        if tracing.recorder is None:
            return await self._decide(collection, evaluations)
        with _span(collection.name, evaluations):
            outcomes, trace = await self._decide(collection, evaluations), tracing.sampled()
        return {key: replace(outcome, trace=trace) for key, outcome in outcomes.items()}

    async def _decide(
        self, collection: Collection_, evaluations: Sequence[Evaluation]
    ) -> Mapping[ObjectKey, Outcome]:
        keys = [
            evaluation.representative
            for evaluation in evaluations
            if evaluation.representative not in collection.unreadable
        ]
        outcomes = dict(await self.evaluator.evaluate(collection.name, keys))
        if self._budget_watcher is not None:
            await self._budget_watcher.refresh_after(self._collections.by_name.values())
        for evaluation in evaluations:  # after the answer: objects unreadable by now count
            if (unreadable := collection.unreadable.get(evaluation.representative)) is not None:
                outcomes[evaluation.representative] = Outcome(unreadable[0], failure=unreadable[1])
        return outcomes

    async def _share(self) -> None:
        """Publish decisions for whole classes, in slices that yield to other tasks."""
        while self._unshared:
            answer, gvr, collection = self._unshared.popleft()
            for group in answer.evaluation.groups:
                for start in range(0, len(group.keys), OBJECTS_PER_YIELD):
                    if self._collections.targets.get(collection.name) != gvr:  # withdrawn meanwhile
                        break
                    part = group.part(start, start + OBJECTS_PER_YIELD)
                    for key, cause in self._sharing.share(answer, part, collection, gvr).items():
                        self._queue.sweep[key] = Group([key[1]], cause)
                    await asyncio.sleep(0)


def _span(name: str, evaluations: Sequence[Evaluation]) -> AbstractContextManager[object]:
    """Record a span of one query, for the writes that caused it."""
    names = [f"{name} {evaluation.representative}" for evaluation in evaluations]
    groups = [group for evaluation in evaluations for group in evaluation.groups]
    about = tracing.objects(names, sum(len(group.keys) for group in groups))
    return tracing.span("evaluate", about, causes=[group.cause.trace for group in groups])
