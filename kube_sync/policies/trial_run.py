"""Trial: let new policies decide on a sample of objects, in a limited process, before OPA has them.

Invariant: the trial is also the compilation, so it costs no extra process. A set that takes too
much is refused with the limit that it exceeded; for other failures, and without a sample, the
compiler's result alone counts. A sample takes at most a few megabytes: a few objects of each
collection, or all of a small one. It is read from OPA at most every five minutes, and goes only to
the process that tries policies.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from kube_sync.errors import Retriable, SyncError, Terminal, TooExpensive
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath, object_path
from kube_sync.opa.scratch import Cause, Modules, ScratchOpa, too_expensive

_EPOCH: Final = "trial"
_OBJECTS: Final = 20  # of a collection
_SMALL: Final = 100  # a collection of at most so many objects is read whole
_BYTES: Final = 4 * 2**20
_SECONDS: Final = 300.0


@dataclass(slots=True)
class Sample:
    """The data document for a trial, and its queries."""

    data: dict[str, Any] = field(
        default_factory=lambda: {"kube_sync": {"epoch": {_EPOCH: "loaded"}}}
    )
    asks: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def add(self, path: DataPath, document: bytes | None) -> bool:
        """Add a document; return whether it existed and fitted."""
        if document is None or self.size + len(document) > _BYTES:
            return False
        self.size += len(document)
        *above, name = path
        within = self.data
        for part in above:
            within = within.setdefault(part, {})
        within[name] = msgspec.Raw(document)
        return True


class StoredCollection(Protocol):
    """OPA's content of one collection."""

    name: str

    @property
    def object_count(self) -> int:
        """The number of objects."""

    def keys(self) -> Iterable[ObjectKey]:
        """Return the keys of all objects in OPA."""


class Sampler:
    """Takes a sample of one epoch of OPA's data."""

    def __init__(
        self,
        opa: OpaClient,
        root: str,
        collections: Callable[[], Sequence[StoredCollection]],
        targets: Callable[[], Iterable[str]],
        places: Callable[[], Sequence[DataPath]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`places` are the paths of data beside the collections."""
        self._opa = opa
        self._root = root
        self._collections = collections
        self._targets = targets
        self._places = places
        self._clock = clock
        self._taken: tuple[Sample, float] | None = None

    async def sample(self) -> Sample | None:
        """Return a sample that is at most five minutes old; None: there is no object to try."""
        now = self._clock()
        if self._taken is None or now - self._taken[1] > _SECONDS:
            try:
                sample = await self._take()
            except SyncError:
                return None
            if not sample.asks:
                return None
            self._taken = sample, now
        return self._taken[0]

    async def _take(self) -> Sample:
        sample, targets = Sample(), set(self._targets())
        for found in self._collections():
            keys = _spread(found)
            if found.name in targets:
                keys = [key for key in keys if await self._object(sample, found, key)]
                items = [[key.namespace, key.name] for key in keys]
                if items:
                    sample.asks.append({"epoch": _EPOCH, "collection": found.name, "items": items})
            elif found.object_count <= _SMALL:
                whole: DataPath = (self._root, found.name)
                sample.add(whole, await self._opa.get_data(whole))
            else:
                for key in keys:
                    await self._object(sample, found, key)
        for path in self._places():
            sample.add(path, await self._opa.get_data(path))
        return sample

    async def _object(self, sample: Sample, found: StoredCollection, key: ObjectKey) -> bool:
        path = object_path(self._root, found.name, key)
        return sample.add(path, await self._opa.get_data(path))


def _spread(found: StoredCollection) -> list[ObjectKey]:
    """Return some keys from all over a collection."""
    step = max(1, found.object_count // _OBJECTS)
    return list(islice(found.keys(), 0, step * _OBJECTS, step))


_SINGLY: Final = 3  # objects that are tried one by one if a set fails on one of them
# Counted, to keep the answer small.
_QUERY: Final = """[
count([found | some ask in input; found := data.kube_sync.batch.decisions with input as ask]),
count([found | found := data.kube_sync.batch.budget with input as input[0]]),
]"""

TakeSample = Callable[[], Awaitable[Sample | None]]


class Trial:
    """Compiles sets of modules, and evaluates them on a sample."""

    def __init__(self, evaluator: ScratchOpa) -> None:
        self._evaluator = evaluator
        self._take: TakeSample | None = None

    @property
    def possible(self) -> bool:
        """Whether a sample can be taken."""
        return self._take is not None

    def begin(self, take: TakeSample | None) -> None:
        """Try on these samples from now on; None: there is no data yet."""
        self._take = take

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Return the errors of modules together, exceeded limits included. Raises Retriable.

        All modules may call the builtins in `given`.
        """
        sample = None if self._take is None else await self._take()
        if sample is None:
            _count("skipped")
            return await self._evaluator.check(modules, given)
        try:
            await self._decide(modules, given, sample, sample.asks)
        except TooExpensive as error:
            # The compiler finds out whether compiling alone takes so much.
            _count("exceeded")
            return await self._evaluator.check(modules, given) or [too_expensive("evaluate", error)]
        except (Retriable, Terminal):
            return await self._evaluator.check(modules, given) or await self._singly(
                modules, given, sample
            )
        _count("passed")
        return []

    async def builtin_errors(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Return the errors of builtins in decisions on the sample. Raises SyncError."""
        sample = None if self._take is None else await self._take()
        if sample is None:
            return []
        return await self._evaluator.builtin_errors(
            modules, sample.data, sample.asks, _QUERY, given
        )

    async def _singly(
        self, modules: Modules, given: Collection[str], sample: Sample
    ) -> list[Cause]:
        """Try some objects alone: one that fails prevents decisions on the others."""
        for ask in sample.asks:
            for item in ask["items"][:_SINGLY]:
                try:
                    await self._decide(modules, given, sample, [ask | {"items": [item]}])
                except TooExpensive as error:
                    _count("exceeded")
                    return [too_expensive("evaluate", error)]
                except Retriable:
                    continue  # reported for each object, once it is in force
        _count("failed")
        return []

    async def _decide(
        self,
        modules: Modules,
        given: Collection[str],
        sample: Sample,
        asks: list[dict[str, Any]],
    ) -> None:
        await self._evaluator.evaluated(modules, sample.data, asks, _QUERY, given)


def _count(outcome: str) -> None:
    metrics.policy_trials.labels(outcome).inc()
