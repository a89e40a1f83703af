"""Classify replicated objects by what a decision reads of them, and backfill missing classes.

The replicator keeps no bodies of objects that OPA held before the policies' reads were known. So
missing classes take another LIST, beside the Reflector's: it writes nothing and leaves the watch
alone. A Mirror's `learning` ends with the LIST, failed or not, since decisions wait for it; a LIST
that fails is repeated. A few objects are not worth a LIST: each becomes a class of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

import structlog

from kube_sync.decisions.classes import Classify, may_share
from kube_sync.decisions.classifier import classifier
from kube_sync.errors import SyncError
from kube_sync.opa.analysis.result import Reads
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.replica import Replica
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FEW = 200  # fewer objects than this are evaluated one by one rather than listed
_LIST_SECONDS = 60.0

Widen = Callable[[Reads], Reads]
Pupils = Callable[[], Iterable[Replica]]


class ClassBackfill:
    """Keeps the classes of the Mirrors' objects complete, in one epoch."""

    def __init__(self, *, few: int = FEW, backoff: Backoff | None = None) -> None:
        self._few = few
        self._backoff = backoff or Backoff(longest=5.0)
        self._reads: Reads | None = None
        self._widened: dict[str, Widen] = {}  # for evaluations beside the policies in force
        self._paths: object = None
        self._classify: Classify | None = None
        self._wake = asyncio.Event()

    def change(self, reads: Reads | None) -> None:
        """Classify by the input fields in `reads`, None: not at all."""
        self._reads = reads
        self._change()

    def widen(self, name: str, widen: Widen | None) -> None:
        """Classify also by the fields that `widen` adds for evaluation `name`; None removes it."""
        self._widened.pop(name, None)
        if widen is not None:
            self._widened[name] = widen
        self._change()

    def _change(self) -> None:
        reads = self._reads
        if reads is not None:
            for widen in self._widened.values():
                reads = widen(reads)
        paths = reads.input.paths if reads is not None and may_share(reads) else None
        if paths != self._paths:
            self._paths = paths
            self._classify = None if paths is None else classifier(paths)

    def classify(self, mirror: Mirror, *, target: bool) -> None:
        """Classify the objects of a Mirror if it is a target of decisions."""
        mirror.classify(self._classify if target else None)
        if mirror.unknown >= self._few:
            mirror.learning = True
            self._wake.set()

    async def run(self, pupils: Pupils, on_done: Callable[[], None]) -> NoReturn:
        """List the collections that lack classes, one after the other, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = False
            for pupil in [*pupils()]:
                if pupil.mirror.unknown >= self._few:
                    failed |= not await self._list_classes(pupil)
                pupil.mirror.learning = False
                on_done()
            if failed:
                await self._backoff.wait()
                self._wake.set()
            else:
                self._backoff.progressed()

    async def _list_classes(self, pupil: Replica) -> bool:
        """List a collection once; return whether that succeeded."""
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                await pupil.feed.list_classes(pupil.mirror)
        except (SyncError, TimeoutError) as error:
            log.warning("classes_not_learnt", resource=pupil.mirror.name, error=str(error))
            return False
        members = pupil.mirror.members
        log.info(
            "classes_learnt",
            resource=pupil.mirror.name,
            objects=members.known,
            classes=members.classes,
        )
        return True
