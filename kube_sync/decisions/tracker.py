"""Ask again for every decision that a change may have touched.

A changed target is asked for at once; a change to any other collection, or to the policies, asks
for all targets; and since a policy may also compare targets with each other, a changed target
asks for all others too, a little later and never for more than a tenth of the time. It holds
keys, never objects, and it decides nothing itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Target
from kube_sync.errors import SyncError
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_TURN = 50  # resources between two looks at what came meanwhile
_SETTLE_SECONDS = 2.0
_SHARE = 10  # a sweep for the targets' own sake waits this many times as long as the last took


class Collection_(Protocol):  # noqa: N801 - collections.abc has the plain name
    """What OPA holds of one collection."""

    name: str
    known: bool

    @property
    def loaded(self) -> bool:
        """Whether OPA holds what was listed first."""
        ...

    @property
    def pending(self) -> int:
        """How many changes OPA does not hold yet."""
        ...

    def keys(self) -> Iterable[ObjectKey]:
        """Every object that OPA holds."""
        ...


class Tracker:
    """Keeps a DecisionHub current through one epoch of OPA's data."""

    def __init__(
        self,
        evaluator: Evaluator,
        hub: DecisionHub,
        targets: Mapping[str, GroupVersionResource],
        collections: Iterable[Collection_],
        *,
        static: bool = False,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`targets` are the collections that decisions are about, by name in OPA.

        `static` says that OPA has policies that nobody tells of here.
        """
        self._evaluator = evaluator
        self._hub = hub
        self._targets = dict(targets)
        self._collections = {found.name: found for found in collections}
        self._arriving: set[str] = set()  # added while others are in, and not decided on yet
        self._backoff = backoff or Backoff(longest=5.0)
        self._clock = clock
        self._news = asyncio.Event()
        self._changed: dict[tuple[str, ObjectKey], str] = {}
        self._sweep: dict[tuple[str, ObjectKey], str] = {}
        self._sweep_cause: str | None = None
        self._sweep_at: float | None = None
        self._sweep_took = 0.0
        self._policy = ""
        self._static = static
        self._modules = 0

    def written(self, name: str, keys: Collection[ObjectKey]) -> None:
        """Take note that OPA holds these objects' newest state."""
        # Even with nothing to decide: a kind that came back may be released now.
        self._news.set()
        if self._nothing_to_decide():
            return
        if name in self._arriving:
            self._sweep_cause = "data"  # its hold ends when all was asked for again
        if name in self._targets:
            self._changed.update({(name, key): "object" for key in keys})
            if self._sweep_at is None:
                wait = max(_SETTLE_SECONDS, _SHARE * self._sweep_took)
                self._sweep_at = self._clock() + wait
        else:
            self._sweep_cause = "data"

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
        if old == target:
            return
        for queue in (self._changed, self._sweep):
            for key in [key for key in queue if key[0] == name]:
                del queue[key]
        if old is not None and old not in self._targets.values():
            self._hub.retain(old, ())
        self._sweep_cause = "data"
        self._news.set()

    def forget(self, name: str) -> None:
        """Take note that a collection is on its way out of OPA."""
        self.retarget(name, None)
        self._collections.pop(name, None)
        self._arriving.discard(name)
        for hold in ("load", "missing"):
            self._hub.release(f"{hold} {name}")

    def wake(self) -> None:
        """Look again at which collections are known."""
        # At once, not in turn: OPA may hold the emptied collection before an answer is here.
        self._hold_for_missing()
        self._news.set()

    def policies_changed(self, digest: str, modules: int, _reads: Reads) -> None:
        """Take note that OPA holds another set of policies, of so many modules."""
        self._policy, self._modules = digest, modules
        self._sweep_cause = "policy"
        self._news.set()

    async def run(self, policies: asyncio.Event) -> NoReturn:
        """Once the first policies are in, keep the hub current."""
        self._hub.hold("load", "OPA is being loaded")
        await policies.wait()
        self._sweep_cause = "load"
        loaded = False
        while True:
            self._news.clear()
            await self._work()
            if not loaded:
                loaded = True
                self._forget_what_is_gone()
                self._hub.release("load")
                log.info("decisions_current", targets=len(self._hub.records))
            await self._wait()

    async def _work(self) -> None:
        """Decide until nothing is left, changed targets before swept ones."""
        started, swept = self._clock(), False
        while True:
            self._hold_for_missing()
            if self._sweep_cause is not None:
                self._begin_sweep(self._sweep_cause)
                swept = True
            if not self._changed and not self._sweep:
                self._release_what_came()
                break
            await self._insist(self._turn)
        if swept:
            self._sweep_took = self._clock() - started

    def _begin_sweep(self, cause: str) -> None:
        self._sweep_cause = self._sweep_at = None
        if self._nothing_to_decide():
            return
        for name in self._targets:
            keys = self._collections[name].keys()
            self._sweep.update({(name, key): cause for key in keys})

    def _nothing_to_decide(self) -> bool:
        """Tell whether every decision is undefined, and known to be: then nobody is asked."""
        return not self._static and not self._modules and not self._hub.records

    async def _turn(self) -> None:
        queue = self._changed or self._sweep
        if not queue:  # its collection was withdrawn while this waited to be tried again
            return
        name = next(iter(queue))[0]
        gvr = self._targets[name]
        part = {key: cause for (n, key), cause in islice(queue.items(), _TURN) if n == name}
        # Taken off first: what changes while OPA answers is asked for again.
        for key in part:
            self._changed.pop((name, key), None)
            self._sweep.pop((name, key), None)
        try:
            outcomes = await self._evaluator.evaluate(name, part)
        except SyncError:
            if self._targets.get(name) == gvr:
                self._changed = {(name, key): cause for key, cause in part.items()} | self._changed
            raise
        if self._targets.get(name) != gvr:  # withdrawn while OPA answered
            return
        for key, cause in part.items():
            target = Target(gvr.group, gvr.version, gvr.resource, key.name, key.namespace)
            if key in outcomes:
                self._hub.update(target, outcomes[key], cause, self._policy)
            else:
                self._hub.delete(target)

    def _forget_what_is_gone(self) -> None:
        for name, gvr in self._targets.items():
            self._hub.retain(gvr, set(self._collections[name].keys()))

    def _hold_for_missing(self) -> None:
        """Hold for every kind that the API server lacks: it looks empty, and moves nothing."""
        for found in self._collections.values():
            if not found.known:
                reason = f"{found.name}: the API server does not know this resource"
                self._hub.hold(f"missing {found.name}", reason)

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
            self._hub.retain(gvr, set(found.keys()))
        self._hub.release(f"load {found.name}")

    async def _wait(self) -> None:
        timeout = None if self._sweep_at is None else max(0.0, self._sweep_at - self._clock())
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that comes with news.
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            self._sweep_cause = "object"

    async def _insist(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except SyncError as error:
                log.warning("decisions_delayed", error=str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._backoff.progressed()
                return
