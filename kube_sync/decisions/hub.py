"""The current decision of every resource, and who wants to hear of changes.

Keeps true: a reader first gets everything, then changes; what it has not read yet is coalesced to
the latest record of each resource, so its memory is bounded by the number of resources and no
reader slows another or the writer. A hold is told before anything else, its end only after all
decisions that came before it. The hub outlives the epochs of OPA's data: decisions of the last
one stand until the next one says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics


class Subscription:
    """What one reader has not read yet."""

    def __init__(self, hub: DecisionHub) -> None:
        self._hub = hub
        self._news = asyncio.Event()
        self._pending: dict[Target, Record] = dict(hub.records)
        self._held: tuple[str, ...] | None = None  # what the reader was told, None: nothing yet
        self._marked: int | None = None

    def publish(self, record: DecisionRecord | DeletedRecord) -> None:
        """Put a change before the reader, in place of an older one of the same resource."""
        self._pending.pop(record.object, None)  # so that it moves to the end
        self._pending[record.object] = record
        self._news.set()

    def wake(self) -> None:
        """Say that a hold began or ended."""
        self._news.set()

    async def read(self, limit: int, silence: float) -> list[Record]:
        """Wait for records, at most `silence` seconds, and take up to `limit` of them.

        Without news it returns a bookmark, as a sign of life.
        """
        while True:
            if records := self._take(limit):
                return records
            self._news.clear()
            try:
                # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
                async with asyncio.timeout(silence):
                    await self._news.wait()
            except TimeoutError:
                return [self._bookmark()]

    def _take(self, limit: int) -> list[Record]:
        held = self._hub.held
        records: list[Record] = []
        if held != self._held and (held or self._held is None):
            self._held = held or ("the decisions are being sent",)
            records.append(StatusRecord(self._held, self._hub.instance))
        while self._pending and len(records) < limit:
            records.append(self._pending.pop(next(iter(self._pending))))
        if not self._pending and self._held != held:
            self._held = held
            records.append(StatusRecord(held, self._hub.instance))
        if not self._pending and self._marked != self._hub.seq:
            records.append(self._bookmark())
        return records

    def _bookmark(self) -> BookmarkRecord:
        self._marked = self._hub.seq
        return BookmarkRecord(self._hub.seq, self._hub.instance)


class DecisionHub:
    """All current decisions of one replicator process."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.seq = 0
        self.records: dict[Target, DecisionRecord] = {}
        self._holds: dict[str, str] = {}
        self._subscriptions: set[Subscription] = set()

    @property
    def held(self) -> tuple[str, ...]:
        """Why nothing may be acted on now; empty when it may."""
        return tuple(reason for _, reason in sorted(self._holds.items()))

    def hold(self, name: str, reason: str) -> None:
        """Tell every reader not to act until `name` is released."""
        if self._holds.get(name) != reason:
            self._holds[name] = reason
            self._wake()

    def hold_alone(self, name: str, reason: str) -> None:
        """Tell every reader not to act until `name` is released; other holds are out of date."""
        self.hold(name, reason)
        for other in self._holds.keys() - {name}:
            self.release(other)

    def release(self, name: str) -> None:
        """Take the hold `name` back."""
        if self._holds.pop(name, None) is not None:
            self._wake()

    def update(self, target: Target, outcome: Outcome, cause: str, policy: str) -> None:
        """Take in what was decided of a resource; an equal decision is no news.

        Undefined is told where there was a decision before, and is not kept.
        """
        old = self.records.get(target)
        undefined = outcome.decision is None and outcome.failure is None
        if undefined if old is None else _same(old, outcome):
            return
        self.seq += 1
        record = DecisionRecord(
            target,
            outcome.uid,
            outcome.decision,
            self.seq,
            cause,
            policy,
            old=old.decision if old is not None and old.uid == outcome.uid else None,
            failure=outcome.failure,
        )
        if undefined:
            del self.records[target]
        else:
            self.records[target] = record
        metrics.decision_changes.inc()
        self._publish(record)

    def delete(self, target: Target) -> None:
        """Forget a resource that is gone."""
        if self.records.pop(target, None) is not None:
            self.seq += 1
            self._publish(DeletedRecord(target, self.seq))

    def retain(self, gvr: GroupVersionResource, keys: Collection[ObjectKey]) -> None:
        """Forget every resource of a collection that is not among `keys`."""
        gone = [t for t in self.records if t.gvr == gvr and t.key not in keys]
        for target in gone:
            self.delete(target)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Open a reader; it begins with all current decisions."""
        subscription = Subscription(self)
        self._subscriptions.add(subscription)
        metrics.decision_subscribers.set(len(self._subscriptions))
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            metrics.decision_subscribers.set(len(self._subscriptions))

    def _publish(self, record: DecisionRecord | DeletedRecord) -> None:
        for subscription in self._subscriptions:
            subscription.publish(record)

    def _wake(self) -> None:
        for subscription in self._subscriptions:
            subscription.wake()


def _same(record: DecisionRecord, outcome: Outcome) -> bool:
    if outcome.failure is not None:
        return record.failure == outcome.failure
    return (
        record.failure is None and record.uid == outcome.uid and record.decision == outcome.decision
    )
