"""Controller of a sink that follows: it carries out what the leading sink has carried out.

Level-based, with a queue of its own: a reconcile compares the decision, the target as the leading
sink has it (`placement.let_through`), and what the sink has there, and writes the difference. It
writes nothing while decisions are held, before everything that is compared has been listed, or
without the Lease. Of a target that is gone it removes what is there, also where the sink leads.
Runs until cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NoReturn

import structlog

from kube_sync.errors import SyncError, Terminal
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.remediation.decision_cache import DecisionCache, Key
from kube_sync.remediation.plan import OWN, Current, Nothing, Step, Unusable
from kube_sync.remediation.sinks.placement import let_through
from kube_sync.remediation.sinks.sink import Sink, names
from kube_sync.remediation.targets import Targets
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RETRY_SECONDS = 0.1  # after a conflict, most often: the watch brings the newer state
# A person approves placements, not this: what the leading sink has by now was approved.
_WRITES = ("enforce", "manual")


class Follower:
    """Reconciles what one sink has with what the leading sinks have."""

    def __init__(
        self,
        sink: Sink,
        lead: Mapping[GroupVersionResource, Sink],
        targets: Callable[[GroupVersionResource], Targets],
        decisions: DecisionCache,
        mode: Callable[[str], str],
        fenced: FencedWriter,
    ) -> None:
        """`lead` has the leading sink of each collection whose decisions `sink` carries out.

        `mode` maps a namespace. The caller wakes the follower when `fenced` may write again, and
        reports the targets that change.
        """
        self._sink = sink
        self._lead = lead
        self._targets = targets
        self._mode = mode
        self._fenced = fenced
        self._decisions = decisions
        self._queue = WorkQueue[Key](sink.name, lambda: Backoff(_RETRY_SECONDS))
        self.held: dict[Key, Unusable] = {}  # why what is there is not updated
        sink.subscribe(self._changed)
        for one in {id(s): s for s in lead.values() if s is not sink}.values():
            one.subscribe(self._changed)
        decisions.subscribe(self.add, self._released)

    def wake(self) -> None:
        """Enqueue everything: a hold has ended, or this process may write now."""
        self.add(self._decisions.known())
        self._released()

    def add(self, keys: Iterable[Key]) -> None:
        """Enqueue targets that have changed."""
        for key in keys:
            if key[0] in self._lead:
                self._queue.add(key)

    def _released(self) -> None:
        """Enqueue what is there; keys with decisions are enqueued separately."""
        self.add(self._sink.keys())

    def _changed(self, keys: Iterable[Key] | None) -> None:
        if keys is None:
            self.wake()
        else:
            self.add(keys)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled; several of these may run concurrently."""
        # Yield after each: it takes long, and without a write a hundred would block the loop.
        await work(self._queue, self._process, turn=1)

    async def _process(self, key: Key) -> Result:
        """Reconcile one key; the end of whatever stops it here enqueues the key again."""
        if not self._is_known(key) or not self._fenced.may_write:
            return Result()
        try:
            return await self._reconcile(key)
        except Fenced:
            # Requeue: the Lease may just have been renewed, and then nothing wakes this key.
            self._count("fenced")
            log.warning("placement_decision_fenced", **names(self._sink, key))
            raise
        except Terminal as error:
            self._count("refused")
            log.warning("placement_decision_refused", **names(self._sink, key), error=str(error))
        except SyncError as error:
            self._count("retried")
            log.warning("placement_decision_delayed", **names(self._sink, key), error=str(error))
            raise
        return Result()

    def _is_known(self, key: Key) -> bool:
        known = self._targets(key[0]).served and not self._sink.unknown
        return known and not self._lead[key[0]].unknown and self._decisions.may_act(key)

    async def _reconcile(self, key: Key) -> Result:
        mode, target = self._mode(key[1].namespace), self._targets(key[0]).get(key[1])
        step: Step = Nothing() if mode == "off" else self._plan(key, target)
        self._set_hold(key, step if isinstance(step, Unusable) else None)
        if isinstance(step, Nothing | Unusable):
            return Result(step.again)
        if mode in _WRITES:
            await self._fenced.send("write", partial(self._sink.write, key, step))
        else:
            self._count(mode)
            log.info("placement_decision_not_written", **names(self._sink, key), mode=mode)
        return Result()

    def _plan(self, key: Key, target: Current | None) -> Step:
        lead = self._lead[key[0]]
        if target is None:
            return self._sink.plan(key, None, None)
        if lead is self._sink:
            return Nothing()  # the reconciler writes it
        found = _without_records(self._sink.read(key, target))
        wanted = let_through(self._decisions.get(key), lead.read(key, target), found)
        return self._sink.plan(key, wanted, found)

    def _set_hold(self, key: Key, held: Unusable | None) -> None:
        before = self.held.get(key)
        if before == held:
            return
        if before is not None:
            del self.held[key]
            metrics.placement_decisions_held.labels(self._sink.name, before.kind).dec()
        if held is not None:
            self.held[key] = held
            metrics.placement_decisions_held.labels(self._sink.name, held.kind).inc()
            log.info("placement_decision_held", **names(self._sink, key), reason=held.reason)

    def _count(self, outcome: str) -> None:
        metrics.placement_decision_writes.labels(self._sink.name, outcome).inc()


def _without_records(found: Current) -> Current:
    """Return what a sink has without the records of moves, which are the leading sink's to keep."""
    if not OWN & found.annotations.keys():
        return found
    others = {key: text for key, text in found.annotations.items() if key not in OWN}
    return replace(found, annotations=others)
