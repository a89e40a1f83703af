"""Ask again for every decision that a change may have touched.

A changed target is asked for at once, unless its class is known; a change to a collection that the
decision looks at, or to the policies, asks for all targets, each class once. Where a policy
compares targets with each other, a changed target asks for all others too, a little later and never
for more than a tenth of the time; where decisions change by themselves, all are asked for again and
again. While policies change nobody knows which objects share a decision: who asks for all of them
waits for that, not for ever. It holds keys, never objects, and it decides nothing itself. Of an
object that cannot be read there is no decision but a failure that says so, and where others may be
decided by such an object, what decisions stand on is not current.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads
from kube_sync.decisions.canary import Canary, InForce
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.limiting import Limiting
from kube_sync.decisions.records import Source
from kube_sync.decisions.sharing import (
    OWN,
    TURN,
    Answer,
    Cause,
    Group,
    Objects,
    Question,
    Queue,
    Sharing,
    Sweep,
    queued,
)
from kube_sync.decisions.staleness import report_unreadable
from kube_sync.errors import SyncError
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_AGAIN_SECONDS = 30.0  # between two sweeps for decisions that change by themselves
_SETTLE_SECONDS = 2.0
# Until it is known what new policies read, on a busy machine too; ones that OPA never takes
# keep the decisions on a changed cluster waiting for so long.
_READ_SECONDS = 60.0
_SHARE = 10  # a sweep for no data's sake waits this many times as long as the last took


class Collection_(Objects, Protocol):  # noqa: N801 - collections.abc has the plain name
    """What OPA holds of one collection."""

    gvr: GroupVersionResource | None  # None: it is not of the API server
    known: bool
    learning: bool  # the classes of its objects will soon be known

    @property
    def loaded(self) -> bool:
        """Whether OPA holds what was listed first."""
        ...

    @property
    def pending(self) -> int:
        """How many changes OPA does not hold yet."""
        ...

    @property
    def unreadable(self) -> Mapping[ObjectKey, tuple[str, str]]:
        """The uid of each object that cannot be read, and why; OPA may hold a past state of it."""
        ...

    def turned(self) -> Collection[ObjectKey]:
        """Which objects became readable or unreadable since this was asked last."""
        ...

    def keys(self) -> Iterable[ObjectKey]:
        """Every object that OPA holds."""
        ...


class Tracker:
    """Keeps a DecisionHub current through one epoch of OPA's data."""

    def __init__(
        self,
        evaluator: InForce,
        hub: DecisionHub,
        targets: Mapping[str, GroupVersionResource],
        collections: Iterable[Collection_],
        *,
        static: bool = False,
        limiting: Limiting | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`targets` are the collections that decisions are about, by name in OPA.

        `static` says that OPA has policies that nobody tells of here; without `limiting` nobody
        asks for the limits that policies set.
        """
        self._evaluator = evaluator
        self._hub = hub
        self._targets = dict(targets)
        self._collections = {found.name: found for found in collections}
        self._arriving: set[str] = set()  # added while others are in, and not decided on yet
        self._backoff = backoff or Backoff(longest=5.0)
        self._clock = clock
        self._news = asyncio.Event()
        self._sharing = Sharing(hub)
        self._changed: Queue = {}
        self._sweep: Sweep = {}
        self._sweep_cause: Cause | None = None
        self._due: dict[str, tuple[float, Cause]] = {}  # sweeps to come, by the kind of cause
        self._sweep_took = 0.0
        self._loading: bool | None = None  # None: the first sweep has not begun
        self._static = static
        self._limiting = limiting
        self._modules = 0
        # Before that, what changing policies read may be known soon; None: it is known.
        self._unread_until: float | None = None

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Take note that OPA holds these objects' newest state."""
        # Even with nothing to decide: a kind that came back may be released now.
        self._news.set()
        looked_at = self._sharing.looks_at(name)
        if looked_at or name in self._targets:
            self._hub.data += 1
        if self._limiting is not None:
            self._limiting.written(name)
        if self._nothing_to_decide():
            return
        if name in self._arriving:
            self._want("data", name, keys)  # its hold ends when all was asked for again
        if looked_at:
            self._sharing.outdate()
        if name in self._targets:
            self._changed.update(queued(name, keys, OWN))
            if looked_at:
                self._plan(Cause("object", _source(name, keys)), _SETTLE_SECONDS)
        elif looked_at and name not in self._arriving:
            self._want("data", name, keys)

    def expect(self, found: Collection_, target: GroupVersionResource | None) -> None:
        """Hold until this collection, new or in place of its namesake, is in and decided on."""
        # Before the target: no reader may act on what is forgotten of the old one.
        self._hub.hold(f"load {found.name}", f"{found.name}: is being loaded")
        self._arriving.add(found.name)
        self._collections[found.name] = found
        self.retarget(found.name, target)

    def retarget(self, name: str, target: GroupVersionResource | None) -> None:
        """Take note that decisions are about this collection, or are not any more."""
        old = self._targets.pop(name, None)
        if target is not None:
            self._targets[name] = target
        self._tell_unreadable(name)
        if old == target:
            return
        self._changed = {key: cause for key, cause in self._changed.items() if key[0] != name}
        self._sweep = {ident: group for ident, group in self._sweep.items() if ident[0] != name}
        if target is None:
            self._sharing.forget(name)
        if old is not None and old not in self._targets.values():
            self._hub.retain(old, ())
        self._want("data", name)
        self._news.set()

    def forget(self, name: str) -> None:
        """Take note that a collection is on its way out of OPA."""
        self._collections.pop(name, None)
        self.retarget(name, None)
        if self._limiting is not None:
            self._limiting.leaving(name)
        self._arriving.discard(name)
        for hold in ("load", "missing"):
            self._hub.release(f"{hold} {name}")

    def wake(self) -> None:
        """Look again at which collections are known."""
        # At once, not in turn: OPA may hold the emptied collection before an answer is here.
        self._hold_for_missing()
        self._note_unreadable()
        self._news.set()

    def policies_changing(self) -> None:
        """Take note that OPA may hold another set of policies from now on."""
        # Objects of one class by what the old ones read may be decided differently by the new.
        self._sharing.policies_changing()
        self._evaluator.policies_changing()
        if self._unread_until is None:  # others that come meanwhile put nothing off
            self._unread_until = self._clock() + _READ_SECONDS
        if self._limiting is not None:
            self._limiting.policies_changing()

    def policies_changed(self, digest: str, modules: int, reads: Reads) -> None:
        """Take note that OPA holds another set of policies, of so many modules."""
        self._modules = modules
        self._unread_until = None
        self._sharing.policies_changed(digest, reads)
        self._evaluator.policies_changed(reads)
        if self._limiting is not None:
            self._limiting.policies_changed(reads.beside, none=not (modules or self._static))
        self._want("policy")
        self._news.set()

    def policies_renamed(self, digest: str, modules: int) -> None:
        """Take note that OPA holds, or may hold, another set that decides all alike."""
        self._modules = modules
        self._sharing.policies_renamed(digest)

    def canary_changing(self) -> None:
        """Take note that OPA may hold another canary from now on."""
        self._sharing.canary_changing()

    def canary_changed(self, canary: Canary | None) -> None:
        """Take note that OPA decides by this canary for its side, None by none."""
        is_touched = self._sharing.canary_changed(canary)
        if self._loading is None:
            return  # all is asked about first
        for name in self._targets:
            keys = [*filter(is_touched, _all(self._collections[name]))]
            self._changed.update(queued(name, keys, Cause("policy")))
        self._news.set()

    async def run(self, policies: asyncio.Event) -> NoReturn:
        """Once the first policies are in, keep the hub current."""
        self._hub.hold("load", "OPA is being loaded")
        self._loading = None
        await policies.wait()
        self._want("load")
        while True:
            self._news.clear()
            await self._work()
            self._sharing.expect(())  # what is left is not there any more
            self._end_load()
            await self._wait()

    def _end_load(self) -> None:
        """Let readers act once everything was decided on in this epoch, whatever changes since.

        Where policies or objects change without end there is always something to ask again.
        """
        if self._loading and not self._sharing.expecting:
            self._loading = False
            self._forget_what_is_gone()
            self._hub.release("load")
            log.info("decisions_current", targets=self._hub.count)

    async def _work(self) -> None:
        """Decide until nothing is left, changed targets before swept ones."""
        started: float | None = None
        while True:
            self._hold_for_missing()
            if self._sweep_cause is not None and not (self._unread or self._learning()):
                self._begin_sweep(self._sweep_cause)
                # Not from when it was wanted: waiting for classes keeps OPA from nothing.
                started = self._clock() if started is None else started
            if self._changed or (self._sweep and not self._unread):
                await self._insist(self._turn)
                self._end_load()
            elif self._sweep or self._sweep_cause is not None:
                await self._next_news()
            else:
                await self._insist(self._keep_limits)
                self._settle_limits()
                self._release_what_came()
                break
        if started is not None:
            self._sweep_took = self._clock() - started
            if self._sharing.fleeting:
                self._plan(Cause("data"), _AGAIN_SECONDS)
        self._measure()

    def _want(self, kind: str, name: str = "", keys: Collection[ObjectKey] = ()) -> None:
        """Ask for everything again, because of these objects of a collection where it names any."""
        self._sweep_cause = Cause(kind, _source(name, keys)).merged(self._sweep_cause)

    def _begin_sweep(self, cause: Cause) -> None:
        self._sweep_cause = None
        self._due.clear()
        if not self._nothing_to_decide():
            sweep: Sweep = {}
            for name in self._targets:
                found = self._collections[name]
                sweep |= self._sharing.grouped(found, _all(found), cause)
            # What waits already stays ahead: who was asked about last is asked about last again.
            ahead = {ident: sweep[ident] for ident in self._sweep if ident in sweep}
            self._sweep = ahead | sweep
        if self._loading is None:
            self._loading = True
            self._sharing.expect(
                (name, key) for (name, _), group in self._sweep.items() for key in group.keys
            )

    def _plan(self, cause: Cause, seconds: float) -> None:
        """Sweep later; what is planned already is not put off."""
        due, first = self._due.get(cause.kind, (None, None))
        if due is None:
            due = self._clock() + max(seconds, _SHARE * self._sweep_took)
        self._due[cause.kind] = due, cause.merged(first)

    def _learning(self) -> bool:
        """Tell whether one LIST will save most of the evaluations of a sweep."""
        return any(self._collections[name].learning for name in self._targets)

    @property
    def _unread(self) -> bool:
        """Whether a sweep would ask for each object alone, and soon need not.

        To ask for all of them keeps OPA from taking the very policies that are waited for.
        """
        return self._unread_until is not None and self._clock() < self._unread_until

    async def _next_news(self) -> None:
        until, now = self._unread_until, self._clock()
        timeout = until - now if until is not None and now < until else None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
        self._news.clear()

    def _measure(self) -> None:
        deciding = not self._nothing_to_decide()
        for name in self._targets:
            self._sharing.measure(self._collections[name], deciding=deciding)

    def _nothing_to_decide(self) -> bool:
        """Tell whether every decision is undefined, and known to be: then nobody is asked."""
        return not self._static and not self._modules and not self._hub.count

    async def _keep_limits(self) -> None:
        if self._limiting is not None:
            await self._limiting.keep()

    def _settle_limits(self) -> None:
        # What came while OPA was asked for limits may be why these are higher now.
        queued = self._changed or self._sweep or self._sweep_cause
        if self._limiting is not None and not queued:
            self._limiting.settle(self._collections.values())

    async def _turn(self) -> None:
        await self._keep_limits()  # some decisions are known, and told at once
        if self._changed:  # what changed itself never waits
            await self._ask_about_changed()
        elif self._sweep and not self._unread:  # else withdrawn, or the policies change by now
            await self._ask_about_all()

    async def _ask_about_changed(self) -> None:
        name = next(iter(self._changed))[0]
        gvr, found = self._targets[name], self._collections[name]
        # Taken off first: what changes while OPA answers is asked for again.
        questions = self._sharing.questions(self._changed, found, gvr, self._evaluator.room)
        for question in questions:
            for key in question.keys:
                self._sweep.pop((name, key), None)
        if not questions:
            await asyncio.sleep(0)  # all was known: others want their turn too
            return
        try:
            outcomes = await self._answers(name, questions)
        except SyncError:
            if self._targets.get(name) == gvr:
                self._ask_again({(name, k): c for one in questions for k, c in one.keys.items()})
            raise
        if self._targets.get(name) == gvr:  # else withdrawn while OPA answered
            for question in questions:
                outcome = outcomes.get(question.one)
                changed = self._changed
                self._ask_again(self._sharing.answered(question, outcome, found, gvr, changed))

    async def _ask_about_all(self) -> None:
        name = next(iter(self._sweep))[0]
        gvr, found = self._targets[name], self._collections[name]
        questions, known = self._sharing.swept(self._sweep, found, self._evaluator.room)
        if questions:
            try:
                outcomes = await self._answers(name, questions)
            except SyncError:
                if self._targets.get(name) == gvr:
                    self._sweep_again(name, *questions, *(answer.question for answer in known))
                raise
            for question in questions:
                if self._targets.get(name) != gvr:  # withdrawn while OPA answered
                    return
                outcome, changed = outcomes.get(question.one), self._changed
                same = self._sharing.answered_one(question, outcome, found, gvr, changed)
                if outcome is not None and same:
                    known.append(Answer(question, outcome))
                else:
                    self._sweep_again(name, question.others)
        for answer in known:
            await self._share(answer, name, gvr, found)

    async def _answers(
        self, name: str, questions: Iterable[Question]
    ) -> Mapping[ObjectKey, Outcome]:
        found = self._collections[name]
        asked = [one.one for one in questions if one.one not in found.unreadable]
        outcomes = dict(await self._evaluator.evaluate(name, asked))
        if self._limiting is not None:
            await self._limiting.keep_after(self._collections.values())
        for question in questions:  # after the answer: what is not readable now counts
            if (unread := found.unreadable.get(question.one)) is not None:
                outcomes[question.one] = Outcome(unread[0], failure=unread[1])
        return outcomes

    async def _share(
        self, answer: Answer, name: str, gvr: GroupVersionResource, found: Collection_
    ) -> None:
        """Tell a whole class, by and by: others want their turn too."""
        keys = [*answer.question.keys]
        for start in range(0, len(keys), TURN):
            if self._targets.get(name) != gvr:  # withdrawn meanwhile
                return
            for key, cause in self._sharing.share(
                answer, keys[start : start + TURN], found, gvr
            ).items():
                self._sweep[key] = Group([key[1]], cause)
            await asyncio.sleep(0)

    def _sweep_again(self, name: str, *questions: Question) -> None:
        """Ask about these again, before all others."""
        again: Sweep = {}
        for question in questions:
            for key, cause in question.keys.items():
                ident = name, key if question.kind is None else question.kind
                again.setdefault(ident, Group([], cause)).keys.append(key)
        self._sweep = again | self._sweep

    def _ask_again(self, keys: Queue) -> None:
        self._changed = keys | self._changed

    def _forget_what_is_gone(self) -> None:
        for name, gvr in self._targets.items():
            self._hub.retain(gvr, _all(self._collections[name]))

    def _hold_for_missing(self) -> None:
        """Hold for every kind that the API server lacks: it looks empty, and moves nothing."""
        for found in self._collections.values():
            if not found.known:
                reason = f"{found.name}: the API server does not know this resource"
                self._hub.hold(f"missing {found.name}", reason)

    def _note_unreadable(self) -> None:
        """Ask again about what became readable or not; say what others may be decided by."""
        for name, found in self._collections.items():
            turned = found.turned()
            if name in self._targets and not self._nothing_to_decide():
                self._changed.update(queued(name, turned, OWN))
            if turned:
                self._tell_unreadable(name)

    def _tell_unreadable(self, name: str) -> None:
        found = None if name in self._targets else self._collections.get(name)
        if found is None:
            report_unreadable(self._hub.freshness, name, None, {})
        else:
            report_unreadable(self._hub.freshness, name, found.gvr, found.unreadable)

    def _release_what_came(self) -> None:
        """Release a kind that is known again, once the decisions are made on its objects."""
        for found in self._collections.values():
            if found.known and not found.pending:
                self._hub.release(f"missing {found.name}")
        for name in sorted(self._arriving):
            found = self._collections[name]
            if found.loaded and not found.pending:
                self._arrived(found)

    def _arrived(self, found: Collection_) -> None:
        self._arriving.discard(found.name)
        if (gvr := self._targets.get(found.name)) is not None:
            self._hub.retain(gvr, _all(found))
        self._hub.release(f"load {found.name}")

    async def _wait(self) -> None:
        due, cause = min(self._due.values(), key=lambda planned: planned[0], default=(0.0, None))
        sweep = None if cause is None else max(0.0, due - self._clock())
        limits = self._limiting.seconds if self._limiting is not None else None
        timeout = min((t for t in (sweep, limits) if t is not None), default=None)
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            if timeout != sweep:
                return  # the limits alone are asked for again
            if cause is not None and cause.kind == "data":  # which nobody tells of
                self._sharing.outdate()
            self._sweep_cause = cause

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


def _all(found: Collection_) -> Collection[ObjectKey]:
    """Return all that there is something to say of."""
    return dict.fromkeys(chain(found.keys(), found.unreadable)).keys()


def _source(name: str, keys: Collection[ObjectKey]) -> Source | None:
    return Source(name, str(next(iter(keys))), len(keys)) if keys else None
