"""A Tracker over a real Mirror and an OPA in memory whose steps a test takes one by one.

Writes and queries have two ends each, as on a wire: what OPA did, and what is known of it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kube_sync.decisions.classes import Members, may_share
from kube_sync.decisions.classifier import classifier
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.tracker import Tracker
from kube_sync.errors import SyncError
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Ask, Document, FieldRead, Reads
from kube_sync.replicator.mirror import Batch, Mirror
from tests.fakes.listing import at_once
from tests.fakes.untimed import Untimed
from tests.unit.async_tools import Waits, running

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
_SETTLED = 25  # turns of the loop in which a tracker with nothing to wait for comes to rest

Body = dict[str, Any]


def reads(
    *paths: Path,
    clusters: bool = True,
    targets: bool = False,
    impure: Iterable[str] = (),
    gave_up: str | None = None,
) -> Reads:
    """Return what a decision is said to read."""
    ask = Ask("m", "r", 1, "read")
    fields = tuple(FieldRead(path, whole=False, asked=(ask,)) for path in paths)
    return Reads(
        Document(fields, used=bool(paths)),
        {"replicasets": Document(used=targets), "clusters": Document(used=clusters)},
        (),
        dict.fromkeys(impure, (ask,)),
        gave_up,
    )


@dataclass(frozen=True)
class Policy:
    """A decision, and what it reads."""

    decide: Callable[[Body, Any, dict[str, Body]], str | None]  # of an object, the clusters, all
    reads: Reads


class Clusters:
    """A collection that decisions look at."""

    name = "clusters"
    gvr: GroupVersionResource | None = None
    known = loaded = True
    learning = False
    pending = object_count = 0

    def __init__(self) -> None:
        self.members = Members()

    def keys(self) -> Iterable[ObjectKey]:
        return ()

    @property
    def unreadable(self) -> dict[ObjectKey, tuple[str, str]]:
        return {}

    def take_readability_changes(self) -> set[ObjectKey]:
        return set()

    def is_pending(self, _key: ObjectKey) -> bool:
        return False


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


class Fleet(Untimed):
    """ReplicaSets that are decided on, and the value of one cluster."""

    def __init__(self, policy: Policy, **objects: Body) -> None:
        self.policy = policy
        self.api: dict[str, Item] = {}
        self.data: dict[str, Body] = {}  # what OPA holds
        self.cluster: Any = 0
        self.asked: list[list[str]] = []
        self.failures: list[SyncError] = []
        self.held_back = False  # queries wait for `evaluate` and `answer`
        self.evaluating: deque[asyncio.Event] = deque()
        self.answering: deque[asyncio.Event] = deque()
        self.clock = 0.0
        self._versions = itertools.count(1)
        self.mirror = Mirror("replicasets", ("kubernetes",), lambda: None)
        self.hub = DecisionHub("me")
        self.clusters = Clusters()
        self.tracker = Tracker(
            Evaluator(self, "e", clock=lambda: self.clock),
            self.hub,
            {"replicasets": REPLICASETS},
            [self.mirror, self.clusters],
            backoff=Waits().backoff(0.1, 5.0),
            clock=lambda: self.clock,
        )
        at_once(self.mirror.page([]))
        self.mirror.finish(known=True)
        at_once(self._load())
        self._tell()
        for name, body in objects.items():
            self.put(name, **body)
        self.write()

    async def _load(self) -> None:
        _, first = await self.mirror.first_load()
        self.mirror.first_written(first)

    # What happens

    def put(self, name: str, *, uid: str | None = None, **body: Any) -> None:
        """Create or change an object."""
        old = self.api.get(name)
        uid = uid or (old.uid if old is not None else f"uid-{name}-{next(self._versions)}")
        version = ResourceVersion(str(next(self._versions)))
        metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version}
        text = json.dumps({"metadata": metadata, **body}).encode()
        self.api[name] = item = Item(key(name), uid, version, text)
        self.mirror.apply(Event("MODIFIED", version, item))

    def delete(self, name: str) -> None:
        item = self.api.pop(name)
        self.mirror.apply(Event("DELETED", item.version, item))

    def begin(self) -> Batch:
        """Have OPA take what waits."""
        batch = self.mirror.batch()
        for found, change in batch.items():
            if change.body is None:
                self.data.pop(found.name, None)
            else:
                self.data[found.name] = json.loads(change.body)
        return batch

    def end(self, batch: Batch) -> None:
        """Have OPA's answer to a write arrive."""
        self.mirror.written(batch)
        self.tracker.written("replicasets", batch.keys())

    def write(self) -> None:
        self.end(self.begin())

    def change_cluster(self, value: Any) -> None:
        self.cluster = value
        self.tracker.written("clusters", [key("c")])

    def pend_cluster(self) -> Callable[[], None]:
        """Have OPA take a change of the cluster; return what its acknowledgement does."""
        self.clusters.pending += 1
        self.tracker.wake()

        def acknowledge() -> None:
            self.clusters.pending -= 1
            self.tracker.written("clusters", [key("c")])

        return acknowledge

    def begin_policy(self, policy: Policy) -> None:
        self.tracker.policies_changing()
        self.policy = policy

    def end_policy(self) -> None:
        """Have it be known which policy is in force."""
        self._tell()

    def change_policy(self, policy: Policy) -> None:
        self.begin_policy(policy)
        self.end_policy()

    def learn(self) -> None:
        self.mirror.read_classes(list(self.api.values()))

    def _tell(self) -> None:
        found = self.policy.reads
        paths = found.input.paths
        if not may_share(found):
            self.mirror.classify(None)
        elif (paths, True) != getattr(self, "_classified", None):
            self.mirror.classify(classifier(paths))
        self._classified = (paths, may_share(found))
        self.tracker.policies_changed("p", 1, found)

    # As OPA

    async def query(self, _path: str, body: bytes) -> bytes | None:
        names = [name for _, name in json.loads(body)["input"]["items"]]
        self.asked.append(names)
        await self._step(self.evaluating)
        if self.failures:
            raise self.failures.pop(0)
        answer = {
            str(index): {"uid": self.data[name]["metadata"]["uid"], **self._decision(name)}
            for index, name in enumerate(names)
            if name in self.data
        }
        await self._step(self.answering)
        return json.dumps(answer).encode()

    def _decision(self, name: str) -> Body:
        text = self.policy.decide(self.data[name], self.cluster, self.data)
        return {} if text is None else {"decision": {"annotations": {"place": text}}}

    async def _step(self, gate: deque[asyncio.Event]) -> None:
        if self.held_back:
            gate.append(asyncio.Event())
            await gate[-1].wait()

    def go_on(self, gate: deque[asyncio.Event]) -> None:
        if gate:
            gate.popleft().set()

    # What came of it

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run with everything decided, and what was asked for so far forgotten."""
        applied = asyncio.Event()
        applied.set()
        async with running(self.tracker.run(applied)):
            await self.settle()
            self.asked.clear()
            yield

    async def settle(self) -> None:
        for _ in range(_SETTLED):
            await asyncio.sleep(0)

    async def rest(self) -> None:
        """Let everything that is under way come to its end."""
        self.held_back = False
        for _ in range(4):
            while self.evaluating or self.answering:
                self.go_on(self.evaluating)
                self.go_on(self.answering)
            await self.settle()
        self.clock += 1000.0  # whatever was put off is due
        self.tracker.wake()
        for _ in range(4):
            await self.settle()

    @property
    def told(self) -> dict[str, tuple[str, str]]:
        """What readers know: uid and decision of each object."""
        return {
            target.name: (record.uid, record.decision.annotations["place"])
            for target, record in self.hub.records.items()
            if record.decision is not None
        }

    @property
    def right(self) -> dict[str, tuple[str, str]]:
        """What is decided of each object that OPA holds, one by one."""
        found = {
            name: (body["metadata"]["uid"], self.policy.decide(body, self.cluster, self.data))
            for name, body in self.data.items()
        }
        return {name: (uid, text) for name, (uid, text) in found.items() if text is not None}

    @property
    def evaluated(self) -> list[str]:
        """The objects that were evaluated."""
        return [name for names in self.asked for name in names]
