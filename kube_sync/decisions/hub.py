"""The hub of current decisions, one for each resource, to which stream readers subscribe.

Invariant: a reader gets all decisions first, then changes. Unread changes are coalesced to the
latest record of each resource, so memory is bounded by the number of resources, and no reader slows
another or the writer. If a decision fails the last good one stays until another is made. The hub
outlives the epochs of OPA's data, and so do the decisions of an epoch until the next one replaces
them. Stricter limits on moves are sent before every later decision, looser ones after every earlier
decision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from kube_sync.decisions.basis import DecisionBasis
from kube_sync.decisions.changelog import ENDED, ChangeLog, EncodedVerdict, Entry, Replaced, Verdict
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.input_reader import RecordedInput
from kube_sync.decisions.records import (
    Budget,
    DecisionFreshness,
    DecisionRecord,
    DeletedRecord,
    Source,
    Target,
)
from kube_sync.decisions.subscription import Subscription
from kube_sync.errors import Expired
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics
from kube_sync.runtime.freshness import Freshness

_CACHED_VERDICTS = 1_000  # recent verdicts, shared by the next objects with an equal decision


class Recorder(Protocol):
    """Records decisions before readers get them."""

    def record(self, entry: Entry, evidence: RecordedInput | None) -> None:
        """Record the entry of an object, and the input of its decision."""

    def retained(
        self,
        gvr: GroupVersionResource,
        keys: Collection[ObjectKey],
        decided: Collection[ObjectKey],
    ) -> None:
        """Record which objects of a collection exist, and have a decision."""


class DecisionHub:
    """All current decisions of one replicator process."""

    def __init__(
        self,
        instance: str,
        *,
        ended: int = ENDED,
        clock: Callable[[], float] = time.monotonic,
        stricter: Callable[[Any, Any], Any] = lambda _, later: later,
        recorder: Recorder | None = None,
    ) -> None:
        """Keep the last `ended` objects without a decision, for slow readers.

        `stricter` returns a document of limits as strict as both given ones, where None limits
        nothing; by default the later one.
        """
        self.instance = instance
        self.basis = DecisionBasis(instance)
        self.log = ChangeLog(ended)
        self.data = 0  # number of writes to OPA that may affect decisions
        self.budget: Budget | None = None
        self._limits: tuple[Any] | None = None  # the last good document; None: there was none yet
        # It, combined with the former one while decisions of that time are pending.
        self._in_force: tuple[Any] | None = None
        self._stricter = stricter
        self._recorder = recorder
        self.waiting: set[asyncio.Event] = set()  # of readers that have read everything
        # Called with changes, each with the verdict that it replaces; None: there was none.
        self.listeners: list[Callable[[Sequence[Replaced]], None]] = []
        self.freshness: DecisionFreshness = Freshness(clock, on_change=self._wake)
        self._holds: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._subscriptions: set[Subscription] = set()
        self._verdicts: dict[tuple[object, ...], EncodedVerdict] = {}
        self._uncounted = 0

    @property
    def seq(self) -> int:
        """The sequence number of the latest change."""
        return self.log.seq

    @property
    def count(self) -> int:
        """The number of resources with a decision, or a failure."""
        return len(self.log)

    @property
    def records(self) -> dict[Target, DecisionRecord]:
        """The current record of every resource, built at each call."""
        found = {entry.target: entry.record for entry in self.log}
        return {t: record for t, record in found.items() if not isinstance(record, DeletedRecord)}

    @property
    def held(self) -> tuple[str, ...]:
        """Why readers must not act now; empty if they may."""
        return tuple(reason for _, reason in sorted(self._holds.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that do not invalidate the decisions."""
        return tuple(text for _, text in sorted(self._notes.items()))

    def hold(self, name: str, reason: str) -> None:
        """Tell all readers not to act until `name` is released."""
        if self._holds.get(name) != reason:
            self._holds[name] = reason
            self._wake()

    def hold_alone(self, name: str, reason: str) -> None:
        """Hold `name` and release all other holds, which are out of date."""
        self.hold(name, reason)
        for other in self._holds.keys() - {name}:
            self.release(other)

    def release(self, name: str) -> None:
        """Release the hold `name`."""
        if self._holds.pop(name, None) is not None:
            self._wake()

    def note(self, name: str, text: str | None) -> None:
        """Set a warning for all readers, None: remove it; the decisions stay valid."""
        if self._notes.get(name) == text:
            return
        if text is None:
            del self._notes[name]
        else:
            self._notes[name] = text
        self._wake()

    def set_limits(self, document: Any) -> None:  # noqa: ANN401 - whatever a policy says
        """Publish the value of `data.kube_sync_budget`, None: undefined.

        The former value stays in force too, until `settle`.
        """
        before = self._in_force
        self._limits = (document,)
        self._in_force = (document if before is None else self._stricter(before[0], document),)
        self._publish_budget(None)

    def set_limits_failure(self, failure: str) -> None:
        """Publish why the value of `data.kube_sync_budget` is unusable."""
        self._publish_budget(failure)

    @property
    def is_settled(self) -> bool:
        """Whether only the last good document limits moves."""
        return self._in_force == self._limits

    def settle(self) -> None:
        """Record that every decision from before the last good document has been published."""
        self._in_force = self._limits
        self._publish_budget(self.budget.failure if self.budget else None)

    def combined_budget(self, sent: Budget | None, current: Budget | None) -> Budget | None:
        """Return the limits for a reader that was `sent` some and has more decisions to read."""
        if current is not None and current.failure is not None and not current.last_good:
            return current  # there was no good document yet
        document = self._stricter(sent and sent.document, current and current.document)
        found = _budget(document, current.failure if current else None, known=True)
        return next((same for same in (sent, current) if same == found), found)

    def _publish_budget(self, failure: str | None) -> None:
        document, known = (self._in_force or (None,))[0], self._in_force is not None
        budget = _budget(document, failure, known=known)
        if budget != self.budget:
            self.budget = budget
            self._wake()
        self.note(
            "budget", failure and f"limits of policies are not in force as they are: {failure}"
        )

    def publish(
        self,
        gvr: GroupVersionResource,
        key: ObjectKey,
        outcome: Outcome,
        cause: str,
        policy: str,
        *,
        uid: str | None = None,
        data: int = 0,
        source: Source | None = None,
    ) -> None:
        """Record the outcome for an object of a collection; an equal decision is no change.

        An undefined outcome is published if there was a decision before, and is not kept. After a
        failure the last good decision on the same object stays. `uid` is the object's, if the
        outcome was evaluated for another one.
        """
        old = self.log.of(gvr).get(key)
        uid = outcome.uid if uid is None else uid
        if _is_unchanged(old, outcome, uid):
            if old is not None and old.uid == uid:
                old.uid = uid  # of two equal strings after a load, keep the one that others share
            return
        if old is None or old.encoded is None or (uid and uid != old.uid):
            before = None
        else:
            # A failure may lack the uid: then it is that of the present decision.
            before, uid = old.encoded.verdict.decision, uid or old.uid
        encoded = self._encode_verdict(outcome, before, cause, policy, data, source)
        self._announce([self._add(gvr, key, uid, encoded, outcome.evidence)])

    def publish_shared(
        self,
        gvr: GroupVersionResource,
        members: Iterable[tuple[ObjectKey, str]],
        outcome: Outcome,
        cause: str,
        policy: str,
        *,
        data: int = 0,
        source: Source | None = None,
    ) -> None:
        """Do what `publish` does for objects with one outcome, given the key and uid of each.

        What becomes of a former verdict is worked out once for all objects that had it.
        """
        current, changes = self.log.of(gvr), list[Replaced]()
        following: dict[EncodedVerdict | None, EncodedVerdict | None] = {}  # None: none, unchanged
        for key, uid in members:
            old = current.get(key)
            if old is not None and old.uid != uid:
                self.publish(gvr, key, outcome, cause, policy, uid=uid, data=data, source=source)
                continue
            former = None if old is None else old.encoded
            if former not in following:
                before = None if former is None else former.verdict.decision
                following[former] = (
                    None
                    if _is_unchanged(old, outcome, uid)
                    else self._encode_verdict(outcome, before, cause, policy, data, source)
                )
            if (encoded := following[former]) is not None:
                changes.append(self._add(gvr, key, uid, encoded, outcome.evidence))
            elif old is not None:
                old.uid = uid  # as in `publish`
        self._announce(changes)

    def delete(self, target: Target) -> None:
        """Delete the decision on a resource that is gone."""
        self._delete(target.gvr, target.key)

    def _delete(self, gvr: GroupVersionResource, key: ObjectKey) -> None:
        ended = self.log.find_ended(gvr, key)
        # Readers know that it is undefined, and need not remember that any longer.
        if key in self.log.of(gvr) or (ended is not None and ended.encoded is not None):
            self._announce([self._add(gvr, key, "", None)])

    def retain(self, gvr: GroupVersionResource, keys: Collection[ObjectKey]) -> None:
        """Delete the decisions of a collection whose objects are not among `keys`."""
        for key in [key for key in self.log.of(gvr) if key not in keys]:
            self._delete(gvr, key)
        if self._recorder is not None:
            self._recorder.retained(gvr, frozenset(keys), set(self.log.of(gvr)))

    def measure(self) -> None:
        """Update the metric of decision changes."""
        if self._uncounted:
            metrics.decision_changes.inc(self._uncounted)
            self._uncounted = 0

    @contextmanager
    def subscribe(self, since: tuple[str, int] | None = None) -> Iterator[Subscription]:
        """Open a reader; it begins with all current decisions, or after a bookmark.

        Raises Expired if the bookmark (instance and number) is too old, or from another process.
        """
        subscription = self.open_reader(since)
        self._subscriptions.add(subscription)
        metrics.decision_subscribers.set(len(self._subscriptions))
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            metrics.decision_subscribers.set(len(self._subscriptions))

    def open_reader(self, since: tuple[str, int] | None = None) -> Subscription:
        """Return a reader that the metric does not count. Raises Expired as `subscribe` does."""
        if since is None:
            return Subscription(self)
        instance, seq = since
        if instance != self.instance or seq > self.seq:
            msg = f"that was another replicator process, this is {self.instance}: start afresh"
            raise Expired(msg)
        return Subscription(self, seq)

    def _add(
        self,
        gvr: GroupVersionResource,
        key: ObjectKey,
        uid: str,
        encoded: EncodedVerdict | None,
        evidence: RecordedInput | None = None,
    ) -> Replaced:
        entry, old = self.log.add(gvr, key, uid, encoded)
        self._uncounted += encoded is not None
        if self._recorder is not None:  # kept by nobody else: it would be all objects
            self._recorder.record(entry, evidence)
        return entry, None if old is None else old.encoded

    def _announce(self, changes: Sequence[Replaced]) -> None:
        """Notify listeners of changes, and readers that there are some."""
        if changes:
            for listener in self.listeners:
                listener(changes)
            self._wake()

    def _encode_verdict(
        self,
        outcome: Outcome,
        before: Decision | None,
        cause: str,
        policy: str,
        data: int,
        source: Source | None,
    ) -> EncodedVerdict:
        """Return the verdict on an object, one instance for all objects with equal decisions."""
        last_good = outcome.failure is not None and before is not None
        decision = before if last_good else outcome.decision
        # By identity: the cached values are alive, so no id is reused.
        ids, failure, trace = (id(decision), id(before), id(source)), outcome.failure, outcome.trace
        identity = (*ids, failure, cause, policy, data, trace)
        if (found := self._verdicts.get(identity)) is None:
            if len(self._verdicts) >= _CACHED_VERDICTS:
                self._verdicts.clear()
            more = (last_good, trace or msgspec.UNSET)
            found = self._verdicts[identity] = EncodedVerdict(
                Verdict(decision, before, failure, cause, policy, data, source, *more)
            )
        return found

    def _wake(self) -> None:
        if self.waiting:
            for event in self.waiting:
                event.set()
            self.waiting.clear()


def _budget(document: Any, failure: str | None, *, known: bool) -> Budget | None:  # noqa: ANN401 - whatever a policy says
    if failure is not None:
        return Budget(document, failure, last_good=known)
    return None if document is None else Budget(document)


def _is_unchanged(old: Entry | None, outcome: Outcome, uid: str) -> bool:
    if old is None or old.encoded is None:
        return outcome.decision is None and outcome.failure is None
    known = old.encoded.verdict
    if outcome.failure is not None:
        return known.failure == outcome.failure and uid in ("", old.uid)
    if known.failure is not None or old.uid != uid:
        return False
    return known.decision is outcome.decision or known.decision == outcome.decision
