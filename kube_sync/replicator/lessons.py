"""The classes of what OPA held before it was known what a decision reads.

Bodies are not kept, so a class that was not noted when an object passed takes another LIST: one of
its own beside the Reflector's, which writes nothing and leaves the watch alone. Keeps true: a
Mirror's `learning` ends with the LIST, whether it came to an end or not, for decisions wait for it;
a LIST that fails is made again. A few objects are not worth it: each is a class of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

import structlog

from kube_sync.analysis.reads import Reads
from kube_sync.decisions.classes import Classify, shares
from kube_sync.errors import SyncError
from kube_sync.replicator.classes import classifier
from kube_sync.replicator.mirror import Mirror
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FEW = 200  # objects that are asked for one by one sooner than listed
_LIST_SECONDS = 60.0


class Lister(Protocol):
    """What lists a collection once more."""

    async def learn(self, mirror: Mirror) -> None:
        """Hand its Mirror all objects. Raises SyncError."""
        ...


class Pupil(Protocol):
    """A collection and what lists it."""

    @property
    def mirror(self) -> Mirror:
        """What OPA holds."""
        ...

    @property
    def feed(self) -> Lister:
        """Where it comes from."""
        ...


Pupils = Callable[[], Iterable[Pupil]]


class Lessons:
    """Has Mirrors know the classes of their objects, in one epoch."""

    def __init__(self, *, few: int = FEW, backoff: Backoff | None = None) -> None:
        self._few = few
        self._backoff = backoff or Backoff(longest=5.0)
        self._paths: object = None
        self._classify: Classify | None = None
        self._news = asyncio.Event()

    def change(self, reads: Reads | None) -> None:
        """Classify by what these say is read of the input, None: not at all."""
        paths = reads.input.paths if reads is not None and shares(reads) else None
        if paths != self._paths:
            self._paths = paths
            self._classify = None if paths is None else classifier(paths)

    def give(self, mirror: Mirror, *, target: bool) -> None:
        """Classify the objects of a Mirror if decisions are about them, as soon as it is loaded."""
        mirror.classify(self._classify if target else None)
        if mirror.unknown >= self._few:
            mirror.learning = True
            self._news.set()

    async def run(self, pupils: Pupils, learnt: Callable[[], None]) -> NoReturn:
        """List what has to be learnt, one collection after the other, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            failed = False
            for pupil in [*pupils()]:
                if pupil.mirror.unknown >= self._few:
                    failed |= not await self._learn(pupil)
                pupil.mirror.learning = False
                learnt()
            if failed:
                await self._backoff.wait()
                self._news.set()
            else:
                self._backoff.progressed()

    async def _learn(self, pupil: Pupil) -> bool:
        """List once; returns whether that was possible."""
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                await pupil.feed.learn(pupil.mirror)
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
