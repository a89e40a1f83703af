"""What the replicator's structures cost: bytes for each object, microseconds for each decision.

No servers: the parts that hold something for each object are filled with ReplicaSets of 2 KB in 200
classes, and decisions come from a fake OPA. What is measured is CPU time, and memory as the system
sees it; once more, with half of the objects, what Python was asked for, by the file that asked.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.scale import CLASSES
from benchmarks.seeding import NAMESPACE, ORIGIN, WISH, name_of
from kube_sync.decisions.classifier import classifier
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.history import History
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import BookmarkRecord, decode_grouped
from kube_sync.decisions.subscription import Subscription
from kube_sync.decisions.tracker import Tracker
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.projection import NAMED
from kube_sync.replicator.projector import Projector
from kube_sync.runtime.memory import give_back

OBJECTS: Final = 100_000
_REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
_CLUSTERS = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles")
_READ = (("kind",), ("metadata", "annotations", ORIGIN), ("metadata", "annotations", WISH))
_READS = Reads(
    Document(tuple(FieldRead(path, whole=True, asked=()) for path in _READ), used=True),
    {"clusters": Document(used=True, listed=True), "replicasets": Document()},
    (),
    {},
)
_FORM = Form((*NAMED, *_READ[1:]), namespaced=True)
_PAGE = 500
_FLIPS = 4
_PADDING = "x" * 1_400


def measure_structures(objects: int) -> dict[str, float]:
    """Measure with so many objects."""
    found = asyncio.run(_measure(objects))
    tracemalloc.start()
    try:
        return found | asyncio.run(_allocated(objects // 2))
    finally:
        tracemalloc.stop()


async def _measure(objects: int) -> dict[str, float]:
    gc.collect()
    before = _resident()
    world = _World(objects)
    loaded = await world.load()
    decided = await world.decide()
    memory = _resident() - before
    flips = [await world.flip() for _ in range(_FLIPS)]
    flipped = _resident() - before
    world.forget()
    reloaded = await world.load()
    await world.decide()
    again = _resident() - before
    await world.end()
    return {
        "structures, memory by object (bytes)": memory / objects,
        "structures, memory by object after flips (bytes)": flipped / objects,
        "structures, memory by object after another load (bytes)": again / objects,
        "structures, an object loaded (us)": loaded / objects * 1e6,
        "structures, an object loaded again (us)": reloaded / objects * 1e6,
        "structures, an object decided for the first time (us)": decided / objects * 1e6,
        "structures, a changed decision published and encoded (us)": min(flips) * 1e6,
    }


async def _allocated(objects: int) -> dict[str, float]:
    """Return the bytes that each file has asked for and still has, by object."""
    before = tracemalloc.take_snapshot()
    world = _World(objects)
    await world.load()
    await world.decide()
    found = tracemalloc.take_snapshot().compare_to(before, "filename")
    await world.end()
    rows = [(Path(one.traceback[0].filename), one.size_diff / objects) for one in found]
    return {
        f"structures, by object: {file.parent.name}/{file.name} (bytes)": size
        for file, size in rows
        if size > 1
    }


class _Opa:
    """Decides by class; every other class changes with each turn."""

    def __init__(self) -> None:
        self.turn = 0

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        """Answer `kube_sync.batch`."""
        del path
        items = msgspec.json.decode(body)["input"]["items"]
        decided = {str(index): self._decision(name) for index, (_, name) in enumerate(items)}
        await asyncio.sleep(0)
        return msgspec.json.encode(decided), 0.0001

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Answer likewise."""
        return (await self.timed_query(path, body))[0]

    def _decision(self, name: str) -> dict[str, object]:
        number = int(name[-6:])
        places = 10 - (self.turn * number) % 2
        clusters = {f"cluster-{index:04}": {"weight": 1} for index in range(places)}
        annotations = {"federation.kubernetes.io/replica-set-preferences": {"clusters": clusters}}
        wish = {"bench.example.com/granted": f"{number % CLASSES:06}"}
        return {"uid": _uid(number), "decision": {"annotations": annotations | wish}}


class _World:
    """The parts of a replicator that hold something for each object, and a reader."""

    def __init__(self, objects: int) -> None:
        self._objects = objects
        self._opa = _Opa()
        self._hub = DecisionHub("me")
        self._hub.listeners.append(History().add)
        self._read = 0  # everything up to this number
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._follow(self._hub.open_reader()))
        self._decider: asyncio.Task[object] | None = None

    async def load(self) -> float:
        """Load all objects; return the CPU time in seconds."""
        known = partial(self._hub.log.known, _REPLICASETS)
        projector = Projector("replicasets", None)
        self._mirror = mirror = Mirror(
            "replicasets",
            ("kubernetes",),
            _nothing,
            gvr=_REPLICASETS,
            projector=projector,
            known=known,
        )
        mirror.narrow(_FORM)
        mirror.classify(classifier(_READ))
        sending = asyncio.create_task(_send(mirror))
        seconds = 0.0
        for page in _pages(self._objects):
            begun = time.process_time()
            await mirror.page(page)
            seconds += time.process_time() - begun
        mirror.finish(known=True)
        await sending
        gc.collect()
        gc.freeze()
        give_back()
        return seconds

    async def decide(self) -> float:
        """Decide on all of them; return the CPU time in seconds."""
        begun = time.process_time()
        clusters = Mirror("clusters", ("kubernetes",), _nothing, gvr=_CLUSTERS)
        clusters.finish(known=True)
        await _send(clusters)
        targets = {"replicasets": _REPLICASETS}
        evaluator = Evaluator(self._opa, "e")
        self._tracker = Tracker(evaluator, self._hub, targets, [clusters, self._mirror])
        policies = asyncio.Event()
        self._decider = asyncio.create_task(self._tracker.run(policies))
        await asyncio.sleep(0)
        self._tracker.policies_changing()
        self._tracker.policies_changed("p", 1, _READS)
        policies.set()
        await self._until(lambda: not self._hub.held)
        give_back()
        return time.process_time() - begun

    async def flip(self) -> float:
        """Let a cluster change; return the CPU time for each decision that changes."""
        self._opa.turn += 1
        before, begun = self._hub.seq, time.process_time()
        self._tracker.written("clusters", [ObjectKey("fleet", "cluster-0000")])
        await self._until(lambda: self._hub.seq >= before + self._objects // 2)
        return (time.process_time() - begun) / (self._objects // 2)

    def forget(self) -> None:
        """Let go of the load, as when OPA is lost."""
        if self._decider is not None:
            self._decider.cancel()
        del self._mirror, self._tracker
        self._decider = None
        self._hub.hold_alone("load", "OPA is being loaded")
        gc.unfreeze()
        gc.collect()
        give_back()

    async def end(self) -> None:
        """End all tasks."""
        for task in (self._reader, self._decider):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        gc.unfreeze()

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait until that is so, and the reader has read everything."""
        while not (reached() and self._read == self._hub.seq):
            self._news.clear()
            await self._news.wait()

    async def _follow(self, subscription: Subscription) -> None:
        while True:
            lines = await subscription.read_lines(_PAGE, 3_600.0, grouped=True)
            for line in lines.splitlines()[-2:]:
                if isinstance(record := next(iter(decode_grouped(line))), BookmarkRecord):
                    self._read = record.seq
            self._news.set()
            await asyncio.sleep(0)  # as a connection that takes what is written


async def _send(mirror: Mirror) -> None:
    _, first = await mirror.first_load()
    async for _ in first.chunks():
        pass
    mirror.first_written(first)


def _pages(objects: int) -> Iterator[list[Item]]:
    for start in range(0, objects, _PAGE):
        yield [*map(_item, range(start, min(objects, start + _PAGE)))]


def _item(number: int) -> Item:
    name, uid, version = name_of(number), _uid(number), str(1_000_000 + number)
    annotations = {ORIGIN: f"region-{number % 2}", WISH: f"{number % CLASSES:06}"}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "annotations": annotations}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": _PADDING}
    key = ObjectKey(sys.intern(NAMESPACE), name)
    return Item(key, uid, ResourceVersion(version), msgspec.json.encode(body))


def _uid(number: int) -> str:
    return str(uuid.UUID(int=random.Random(number).getrandbits(128), version=4))  # noqa: S311 - no secret


def _nothing() -> None:
    """Nobody writes: the load is taken as it comes."""


def _resident() -> int:
    """Return the resident memory of this process, in bytes."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096
