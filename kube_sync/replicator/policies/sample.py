"""A sample of the real objects, as OPA holds them: policies are tried on it before OPA has them.

Keeps true: it takes at most a few megabytes, a few objects of each collection, or all of a small
one; it is read from OPA at most every five minutes; what it holds goes nowhere but to the process
that tries policies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from kube_sync.errors import SyncError
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath

_EPOCH: Final = "trial"
_OBJECTS: Final = 20  # of a collection
_SMALL: Final = 100  # objects of a collection that is read whole
_BYTES: Final = 4 * 2**20
_SECONDS: Final = 300.0


class Held(Protocol):
    """What OPA holds of one collection."""

    name: str

    @property
    def held(self) -> int:
        """How many objects."""
        ...

    def keys(self) -> Iterable[ObjectKey]:
        """Return every object that OPA holds."""
        ...


@dataclass(slots=True)
class Sample:
    """A document for a process that tries policies, and what it is asked."""

    data: dict[str, Any] = field(
        default_factory=lambda: {"kube_sync": {"epoch": {_EPOCH: "loaded"}}}
    )
    asks: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def add(self, path: DataPath, document: bytes | None) -> bool:
        """Add a document; returns whether it was there and there was room for it."""
        if document is None or self.size + len(document) > _BYTES:
            return False
        self.size += len(document)
        *above, name = path
        within = self.data
        for part in above:
            within = within.setdefault(part, {})
        within[name] = msgspec.Raw(document)
        return True


class Sampler:
    """Takes a sample of one epoch of OPA's data."""

    def __init__(
        self,
        opa: OpaClient,
        root: str,
        collections: Callable[[], Sequence[Held]],
        targets: Callable[[], Iterable[str]],
        places: Callable[[], Sequence[DataPath]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`places` are where data lies beside the collections."""
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
            elif found.held <= _SMALL:
                whole: DataPath = (self._root, found.name)
                sample.add(whole, await self._opa.get_data(whole))
            else:
                for key in keys:
                    await self._object(sample, found, key)
        for path in self._places():
            sample.add(path, await self._opa.get_data(path))
        return sample

    async def _object(self, sample: Sample, found: Held, key: ObjectKey) -> bool:
        inside = (key.namespace, key.name) if key.namespace else (key.name,)
        path = (self._root, found.name, *inside)
        return sample.add(path, await self._opa.get_data(path))


def _spread(found: Held) -> list[ObjectKey]:
    """Return some keys from all over a collection."""
    step = max(1, found.held // _OBJECTS)
    return list(islice(found.keys(), 0, step * _OBJECTS, step))
