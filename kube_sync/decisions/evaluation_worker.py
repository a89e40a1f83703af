"""Evaluate the queue's next objects by OPA, with retries, and publish the decisions in the hub.

A changed object never waits for a sweep. If an object changes, or a collection is withdrawn, during
a query, the answer does not count for it. Limits are queried before decisions are published. While
OPA does not answer, the hub reports that, and the query is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from kube_sync.decisions.budget_watcher import Limiting
from kube_sync.decisions.collections import Collection_, TrackedCollections
from kube_sync.decisions.evaluation_queue import EvaluationQueue, Group, Question
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.policysets import PolicySetEvaluator
from kube_sync.decisions.sharing import TURN, Answer, Sharing
from kube_sync.errors import SyncError
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class EvaluationWorker:
    """Takes questions off an EvaluationQueue, one query at a time."""

    def __init__(
        self,
        evaluator: PolicySetEvaluator,
        hub: DecisionHub,
        collections: TrackedCollections,
        queue: EvaluationQueue,
        sharing: Sharing,
        *,
        limiting: Limiting | None,
        backoff: Backoff,
    ) -> None:
        """Use `backoff` between two attempts; without `limiting` no limits are queried."""
        self.evaluator = evaluator
        self._hub = hub
        self._collections = collections
        self._queue = queue
        self._sharing = sharing
        self._limiting = limiting
        self._backoff = backoff

    async def process_next(self) -> None:
        """Evaluate as many as fit into one query, and publish known decisions of classes."""
        await self._insist(self._turn)

    async def settle_limits(self) -> None:
        """Query the limits alone, once all due decisions are published."""
        await self._insist(self._keep_limits)
        # Changes that arrived during the query may be why the limits are looser now.
        if self._limiting is not None and self._queue.is_empty:
            self._limiting.settle(self._collections.found.values())

    async def _insist(self, step: Callable[[], Awaitable[None]]) -> None:
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

    async def _keep_limits(self) -> None:
        if self._limiting is not None:
            await self._limiting.keep()

    async def _turn(self) -> None:
        await self._keep_limits()  # known decisions are published right away
        if self._queue.changed:  # changed objects never wait
            await self._ask_about_changed()
        elif self._queue.is_due:  # else withdrawn, or the policies are changing
            await self._ask_about_all()

    async def _ask_about_changed(self) -> None:
        queue, targets = self._queue, self._collections.targets
        name = next(iter(queue.changed))[0]
        gvr, found = targets[name], self._collections.found[name]
        # Taken off first: an object that changes during the query is enqueued again.
        questions = self._sharing.questions(queue.changed, found, gvr, self.evaluator.room)
        for question in questions:
            for key in question.keys:
                queue.sweep.pop((name, key), None)
        if not questions:
            await asyncio.sleep(0)  # all decisions were known: yield to other tasks
            return
        try:
            outcomes = await self._answers(found, questions)
        except SyncError:
            if targets.get(name) == gvr:
                queue.add_again({(name, k): c for one in questions for k, c in one.keys.items()})
            raise
        if targets.get(name) == gvr:  # else withdrawn during the query
            for question in questions:
                outcome, changed = outcomes.get(question.one), queue.changed
                queue.add_again(self._sharing.answered(question, outcome, found, gvr, changed))

    async def _ask_about_all(self) -> None:
        queue, targets = self._queue, self._collections.targets
        name = next(iter(queue.sweep))[0]
        gvr, found = targets[name], self._collections.found[name]
        questions, known = self._sharing.swept(queue.sweep, found, self.evaluator.room)
        if questions:
            try:
                outcomes = await self._answers(found, questions)
            except SyncError:
                if targets.get(name) == gvr:
                    queue.sweep_again(name, [*questions, *(answer.question for answer in known)])
                raise
            for question in questions:
                if targets.get(name) != gvr:  # withdrawn during the query
                    return
                outcome, changed = outcomes.get(question.one), queue.changed
                same = self._sharing.answered_one(question, outcome, found, gvr, changed)
                if outcome is not None and same:
                    known.append(Answer(question, outcome))
                else:
                    queue.sweep_again(name, [question.others])
        for answer in known:
            await self._share(answer, gvr, found)

    async def _answers(
        self, found: Collection_, questions: Iterable[Question]
    ) -> Mapping[ObjectKey, Outcome]:
        asked = [one.one for one in questions if one.one not in found.unreadable]
        outcomes = dict(await self.evaluator.evaluate(found.name, asked))
        if self._limiting is not None:
            await self._limiting.keep_after(self._collections.found.values())
        for question in questions:  # after the answer: objects unreadable by now count
            if (unread := found.unreadable.get(question.one)) is not None:
                outcomes[question.one] = Outcome(unread[0], failure=unread[1])
        return outcomes

    async def _share(self, answer: Answer, gvr: GroupVersionResource, found: Collection_) -> None:
        """Publish a decision for a whole class, in slices that yield to other tasks."""
        keys = [*answer.question.keys]
        for start in range(0, len(keys), TURN):
            if self._collections.targets.get(found.name) != gvr:  # withdrawn meanwhile
                return
            part = keys[start : start + TURN]
            for key, cause in self._sharing.share(answer, part, found, gvr).items():
                self._queue.sweep[key] = Group([key[1]], cause)
            await asyncio.sleep(0)
