"""The current decision of every resource, and who wants to hear of changes.

Keeps true: a reader first gets everything, then changes; what it has not read yet is coalesced to
the latest record of each resource, so memory is bounded by the number of resources, whatever
readers do, and no reader slows another or the writer. A decision that cannot be made any more
stands until another one is made. The hub outlives the epochs of OPA's data: decisions of the last
one stand until the next one says otherwise. How much may move is told before every decision that
came later, and that more may, after every decision that came before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kube_sync.decisions.changelog import ENDED, ChangeLog, EncodedVerdict, Entry, Verdict
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

_ALIKE = 1_000  # verdicts that are remembered, to be shared by the next objects decided alike


class Recorder(Protocol):
    """Who writes down what is said, before readers are told."""

    def said(self, line: Entry, evidence: RecordedInput | None) -> None:
        """Write down what is said of an object, and what that was decided on."""
        ...

    def retained(
        self,
        gvr: GroupVersionResource,
        keys: Collection[ObjectKey],
        decided: Collection[ObjectKey],
    ) -> None:
        """Write down which objects of a collection are there, and decided on."""
        ...


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
        """Remember `ended` objects that nothing is decided of any more, for readers behind.

        `stricter` returns what limits as much as either of two documents of limits, None is one
        that limits nothing; by default the later one counts.
        """
        self.instance = instance
        self.log = ChangeLog(ended)
        self.data = 0  # writes to OPA that decisions may look at
        self.budget: Budget | None = None
        self._limits: tuple[Any] | None = None  # the last good document; None: there was none yet
        # That, and what was before it while decisions of its time are still to come.
        self._in_force: tuple[Any] | None = None
        self._stricter = stricter
        self._recorder = recorder
        self.waiting: set[asyncio.Event] = set()  # of readers that have read everything
        self.freshness: DecisionFreshness = Freshness(clock, on_change=self._wake)
        self._holds: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._subscriptions: set[Subscription] = set()
        self._alike: dict[tuple[object, ...], EncodedVerdict] = {}
        self._uncounted = 0

    @property
    def seq(self) -> int:
        """The number of the latest change."""
        return self.log.seq

    @property
    def count(self) -> int:
        """How many resources have a decision, or a failure."""
        return len(self.log.current)

    @property
    def records(self) -> dict[Target, DecisionRecord]:
        """Every resource's current record, made anew at each call."""
        found = {target: entry.record for target, entry in self.log.current.items()}
        return {t: record for t, record in found.items() if not isinstance(record, DeletedRecord)}

    @property
    def held(self) -> tuple[str, ...]:
        """Why nothing may be acted on now; empty when it may."""
        return tuple(reason for _, reason in sorted(self._holds.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong although the decisions stand."""
        return tuple(text for _, text in sorted(self._notes.items()))

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

    def note(self, name: str, text: str | None) -> None:
        """Tell every reader what is wrong, None: nothing any more; the decisions stand."""
        if self._notes.get(name) == text:
            return
        if text is None:
            del self._notes[name]
        else:
            self._notes[name] = text
        self._wake()

    def limit(self, document: Any) -> None:  # noqa: ANN401 - whatever a policy says
        """Tell every reader what `data.kube_sync_budget` is, None: undefined.

        What it was before limits as well, until `settle`.
        """
        before = self._in_force
        self._limits = (document,)
        self._in_force = (document if before is None else self._stricter(before[0], document),)
        self._say(None)

    def not_limited(self, failure: str) -> None:
        """Tell every reader why what `data.kube_sync_budget` is now cannot be used."""
        self._say(failure)

    @property
    def settled(self) -> bool:
        """Whether nothing limits any more but the last good document."""
        return self._in_force == self._limits

    def settle(self) -> None:
        """Take note that every decision of the time of the last good document is told."""
        self._in_force = self._limits
        self._say(self.budget.failure if self.budget else None)

    def both(self, told: Budget | None, now: Budget | None) -> Budget | None:
        """Return the limits for a reader that was `told` some and has more decisions to read."""
        if now is not None and now.failure is not None and not now.last_good:
            return now  # there was no good document yet
        document = self._stricter(told and told.document, now and now.document)
        found = _budget(document, now.failure if now else None, known=True)
        return next((same for same in (told, now) if same == found), found)

    def _say(self, failure: str | None) -> None:
        document, known = (self._in_force or (None,))[0], self._in_force is not None
        budget = _budget(document, failure, known=known)
        if budget != self.budget:
            self.budget = budget
            self._wake()
        self.note(
            "budget", failure and f"limits of policies are not in force as they are: {failure}"
        )

    def update(
        self,
        target: Target,
        outcome: Outcome,
        cause: str,
        policy: str,
        *,
        uid: str | None = None,
        data: int = 0,
        source: Source | None = None,
    ) -> None:
        """Take in what was decided of a resource; an equal decision is no news.

        Undefined is told where there was a decision before, and is not kept. After a failure the
        last good decision on the same object stands. `uid` is the object's, where the outcome was
        asked for with another one.
        """
        old = self.log.current.get(target)
        uid = outcome.uid if uid is None else uid
        if _no_news(old, outcome, uid):
            if old is not None and old.uid == uid:
                old.uid = uid  # of two equal strings after a load the one that others hold
            return
        if old is None or old.told is None or (uid and uid != old.uid):
            before = None
        else:
            # A failure may not know of which object it is: then what stands is the old one's.
            before, uid = old.told.verdict.decision, uid or old.uid
        told = self._told(outcome, before, cause, policy, data, source)
        self._add(target, uid, told, outcome.evidence)
        self._uncounted += 1
        self._wake()

    def delete(self, target: Target) -> None:
        """Forget a resource that is gone."""
        ended = self.log.ended(target)
        # Readers were told that it is undefined: they need not remember that any longer.
        if target in self.log.current or (ended is not None and ended.told is not None):
            self._add(target, "", None)
            self._wake()

    def retain(self, gvr: GroupVersionResource, keys: Collection[ObjectKey]) -> None:
        """Forget every resource of a collection that is not among `keys`."""
        gone = [t for t in self.log.current if t.gvr == gvr and t.key not in keys]
        for target in gone:
            self.delete(target)
        if self._recorder is not None:
            decided = {t.key for t in self.log.current if t.gvr == gvr}
            self._recorder.retained(gvr, keys, decided)

    def measure(self) -> None:
        """Count what changed since the last time."""
        if self._uncounted:
            metrics.decision_changes.inc(self._uncounted)
            self._uncounted = 0

    @contextmanager
    def subscribe(self, since: tuple[str, int] | None = None) -> Iterator[Subscription]:
        """Open a reader; it begins with all current decisions, or after a bookmark.

        Raises Expired when the bookmark (instance and number) is too old, or another process's.
        """
        subscription = self.reader(since)
        self._subscriptions.add(subscription)
        metrics.decision_subscribers.set(len(self._subscriptions))
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            metrics.decision_subscribers.set(len(self._subscriptions))

    def reader(self, since: tuple[str, int] | None = None) -> Subscription:
        """Return a reader that nobody counts. Raises Expired as `subscribe` does."""
        if since is None:
            return Subscription(self)
        instance, seq = since
        if instance != self.instance or seq > self.seq:
            msg = f"that was another replicator process, this is {self.instance}: start afresh"
            raise Expired(msg)
        return Subscription(self, seq)

    def _add(
        self,
        target: Target,
        uid: str,
        told: EncodedVerdict | None,
        evidence: RecordedInput | None = None,
    ) -> None:
        line = self.log.add(target, uid, told)
        if self._recorder is not None:  # kept by nobody else: it would be all objects
            self._recorder.said(line, evidence)

    def _told(
        self,
        outcome: Outcome,
        before: Decision | None,
        cause: str,
        policy: str,
        data: int,
        source: Source | None,
    ) -> EncodedVerdict:
        """Return what is said of an object, the same object for all that are decided alike."""
        last_good = outcome.failure is not None and before is not None
        decision = before if last_good else outcome.decision
        # By identity: what is remembered is alive, so nothing else has its id.
        alike = (id(decision), id(before), outcome.failure, cause, policy, data, id(source))
        if (found := self._alike.get(alike)) is None:
            if len(self._alike) >= _ALIKE:
                self._alike.clear()
            failure = outcome.failure
            found = self._alike[alike] = EncodedVerdict(
                Verdict(decision, before, failure, cause, policy, data, source, last_good)
            )
        return found

    def _wake(self) -> None:
        if self.waiting:
            for news in self.waiting:
                news.set()
            self.waiting.clear()


def _budget(document: Any, failure: str | None, *, known: bool) -> Budget | None:  # noqa: ANN401 - whatever a policy says
    if failure is not None:
        return Budget(document, failure, last_good=known)
    return None if document is None else Budget(document)


def _no_news(old: Entry | None, outcome: Outcome, uid: str) -> bool:
    if old is None or old.told is None:
        return outcome.decision is None and outcome.failure is None
    known = old.told.verdict
    if outcome.failure is not None:
        return known.failure == outcome.failure and uid in ("", old.uid)
    if known.failure is not None or old.uid != uid:
        return False
    return known.decision is outcome.decision or known.decision == outcome.decision
