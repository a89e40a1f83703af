"""The ledger: what it costs decisions to be recorded, and what it costs to ask what stood.

Decisions are made by a real OPA, over data whose changes let two thousand objects be decided
otherwise, once a second (a sweep), or a hundred, twenty times a second: two thousand records a
second. Both end when a reader of the hub, beside whoever decides, has been told all of them, which
with a ledger is after they were recorded: a sweep tells what that costs decisions, a hundred how
much later each is told. Rounds with a ledger, with one that records no inputs, and without one take
turns. `--at` is asked of files of which one has a hundred times the rows.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from benchmarks.world import medians
from kube_sync.decisions.batch_module import BATCH_MODULE, batch_module
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.input_reader import InputReader
from kube_sync.decisions.records import DecisionRecord, Target
from kube_sync.inspect.plan.snapshot import EPOCH, document
from kube_sync.inspect.why.past import PastRequest, read_past
from kube_sync.kube.naming import reference
from kube_sync.ledger.entries import Entry, text_of
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.recording import Recall, Recorder
from kube_sync.ledger.store import Store
from kube_sync.ledger.verifying import verify
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.result import Document, Reads
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import ScratchOpa
from tools.servers.binaries import ensure_binary

RATE = 2_000  # records a second
_SWEEP, _FEW_AT_ONCE = 2_000, 100
_TURNS = 5  # of each side: a sweep, and a few at once, so often
_OFTEN = 6
_FEW, _MANY = 10_000, 1_000_000
_ASKED = 300
_POLICY = """package io.k8s.federation.admission

annotations["place"] := data.kubernetes.clusters.fleet.east.region
"""
_COLLECTION = "replicasets.v1.apps"
_PATH = "io/k8s/federation/admission"


def measure_ledger(runs: int, few: int = _FEW, many: int = _MANY) -> dict[str, float]:
    """Measure so many times, seconds and ratios."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getloadavg()[0]
        found = medians([asyncio.run(_deciding(Path(folder), n)) for n in range(runs)])
        load = {"load average before": before, "load average after": os.getloadavg()[0]}
        return found | load | _asking(Path(folder), few, many)


async def _deciding(folder: Path, number: int) -> dict[str, float]:
    opa = ScratchOpa(str(ensure_binary("opa")))
    names = [f"web-{n:04}" for n in range(_SWEEP)]
    bodies = {
        "replicasets": {ObjectKey("shop", n): _body(n) for n in names},
        "clusters": {ObjectKey("fleet", "east"): b'{"metadata":{"name":"east"},"region":"r0"}'},
    }
    modules = {"policy": _POLICY, BATCH_MODULE: batch_module("kubernetes", _PATH)}
    async with opa.serving(modules, document("kubernetes", bodies)) as client:
        plain = _Side(client, DecisionHub("plain"), names, _at_once)
        files = [folder / f"{number}-{name}.db" for name in ("inputs", "alone")]
        journals = [Journal(file, max_age=1e9, max_size=1 << 40, recall=Recall()) for file in files]
        hubs = [DecisionHub("recorded", recorder=Recorder(one, "r")) for one in journals]
        recorded = _Side(client, hubs[0], names, journals[0].recorded, _witness())
        alone = _Side(client, hubs[1], names, journals[1].recorded)
        sides = (plain, recorded, alone)
        running = asyncio.gather(*(journal.run() for journal in journals))
        try:
            for turn in range(1 + _TURNS):
                for side in sides:
                    await side.turn()
                    if turn == 0:  # OPA is warm then
                        side.took.clear()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    for file, side in zip(files, sides[1:], strict=True):
        _check(file, side.told, inputs=side is recorded)
    found: dict[str, float] = {}
    for size, what in ((_SWEEP, "sweep"), (_FEW_AT_ONCE, "hundred")):
        base, full, without = (median(side.took[size]) for side in sides)
        found |= {
            f"{what} s": base,
            f"{what} that is recorded s": full,
            f"{what}, recorded / not": full / base,
            f"{what}, recorded without inputs / not": without / base,
        }
    busy = [median(side.cpu) for side in sides]
    return found | {
        "hundred, told later by s": found["hundred that is recorded s"] - found["hundred s"],
        "sweep, CPU of the thread that decides s": busy[0],
        "sweep, CPU, recorded / not": busy[1] / busy[0],
        "sweep, CPU, recorded without inputs / not": busy[2] / busy[0],
    }


def _check(file: Path, told: int, *, inputs: bool) -> None:
    """Make sure that all of it was recorded, and what it was decided on."""
    with reading(file) as ledger:
        found = verify(ledger.db)
        last = ledger.history(limit=1)[0].entry
    if found.faults or found.gaps or found.rows <= told or bool(last.input) is not inputs:
        raise AssertionError(found, last)


def _witness() -> InputReader:
    found = InputReader(
        "kubernetes",
        _PATH,
        targets=lambda: {"replicasets": GroupVersionResource("apps", "v1", "replicasets")},
        fields_of=lambda _name, _reads: None,
        count_of=lambda _name: 1,
        secrets=lambda: (),
    )
    read = {"clusters": Document((), used=True), "replicasets": Document()}
    found.policies_changed(Reads(Document((), used=True), read, (), {}))
    return found


class _Side:
    """Decisions through one hub."""

    def __init__(
        self,
        client: OpaClient,
        hub: DecisionHub,
        names: list[str],
        recorded: Callable[[], Awaitable[object]],
        input_reader: InputReader | None = None,
    ) -> None:
        self.took: defaultdict[int, list[float]] = defaultdict(list)  # by how many at once
        self.cpu: list[float] = []  # of this thread, in a sweep
        self.told = 0
        self._client, self._hub, self._recorded = client, hub, recorded
        self._input_reader = input_reader
        self._batch = 0
        self._evaluator = Evaluator(client, EPOCH, input_reader=input_reader)
        self._keys = [ObjectKey("shop", name) for name in names]
        self._reader = hub.open_reader()

    async def turn(self) -> None:
        """Decide all of them at once, and then a few, at the rate."""
        for size in (_SWEEP, *[_FEW_AT_ONCE] * _OFTEN):
            begun = time.perf_counter()
            await self._change()
            await self._round(size)
            # The next one is due whenever this one has ended.
            rest = begun + size / RATE - time.perf_counter()
            await asyncio.sleep(max(0.0, rest))

    async def _change(self) -> None:
        value = f'"r{self._batch}-{self._hub.instance}"'.encode()
        self._batch += 1
        if self._input_reader is not None:
            self._input_reader.batch({"clusters": [ObjectKey("fleet", "east")]}, self._batch)
        fence = f'{{"{EPOCH}":{{"{self._batch}":true}}}}'.encode()
        await self._client.patch_data(
            [
                _add(b"/kubernetes/clusters/fleet/east/region", value),
                _add(b"/kube_sync/fence", fence),
            ]
        )

    async def _round(self, size: int) -> None:
        begun, busy = time.perf_counter(), time.thread_time()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide(size))
            group.create_task(self._hear(size))
        self.told += size
        self.took[size].append(time.perf_counter() - begun)
        if size == _SWEEP:
            self.cpu.append(time.thread_time() - busy)

    async def _decide(self, size: int) -> None:
        """Decide as the replicator does: as many as fit into a query, and tell of these."""
        done = 0
        while done < size:
            keys = self._keys[done : min(size, done + self._evaluator.batch_size)]
            for key, outcome in (await self._evaluator.evaluate("replicasets", keys)).items():
                target = Target("apps", "v1", "replicasets", key.name, key.namespace)
                self._hub.publish(target.gvr, target.key, outcome, "data", "p1")
            done += len(keys)

    async def _hear(self, size: int) -> None:
        heard = 0
        while heard < size:
            records = await self._reader.read(500, 10.0)
            heard += sum(isinstance(record, DecisionRecord) for record in records)
            await self._recorded()


def _add(path: bytes, value: bytes) -> bytes:
    return b'{"op":"add","path":"' + path + b'","value":' + value + b"}"


async def _at_once() -> bool:
    return True


def _body(name: str) -> bytes:
    spec = '"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}'
    return f'{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}"}},{spec}}}'.encode()


def _asking(folder: Path, few: int, many: int) -> dict[str, float]:
    files = {"ten thousand": few, "a million": many}
    found: dict[str, float] = {}
    for name, rows in files.items():
        file = folder / f"{rows}.db"
        begun = time.perf_counter()
        _fill(file, rows)
        found[f"rows a second, {name}"] = rows / (time.perf_counter() - begun)
        for command, ask in (("history", _history_at), ("why", _why_at)):
            found[f"{command} --at over {name} s"] = _asked(file, rows, ask)
    return found | {
        f"{command} --at, a million / ten thousand": found[f"{command} --at over a million s"]
        / found[f"{command} --at over ten thousand s"]
        for command in ("history", "why")
    }


def _fill(file: Path, rows: int) -> None:
    """Write rows about a tenth of as many objects, at most ten thousand, one a second."""
    store, objects = Store(file), min(rows // 10, 10_000)
    texts = [text_of({"annotations": {"place": f"c{n}"}}) for n in range(50)]
    for start in range(0, rows, 1_000):
        batch = []
        for number in range(start, start + 1_000):
            text = texts[(number // objects) % 50]
            entry = Entry(
                kind="decision",
                collection=_COLLECTION,
                namespace="shop",
                name=f"web-{number % objects}",
                uid="u",
                new=text.digest,
                policy="p1",
                cause="data",
                status="decided",
            )
            batch.append((entry, [text]))
        store.append(batch, float(start))
        store.tidy()
    store.close()


def _asked(file: Path, rows: int, ask: Callable[[Path, str, float], float | None]) -> float:
    """Return the median of the seconds that one answer takes, with the file opened for it."""
    chance, objects = random.Random(1), min(rows // 10, 10_000)  # noqa: S311 - no secret
    took = []
    for _ in range(_ASKED):
        name = f"web-{chance.randrange(objects)}"
        at = chance.uniform(objects + 1_000, rows)
        begun = time.perf_counter()
        since = ask(file, name, at)
        took.append(time.perf_counter() - begun)
        if since is None or not at - objects - 1_000 <= since <= at:  # as they are written
            raise AssertionError(name, at, since)
    return median(took)


def _history_at(file: Path, name: str, at: float) -> float | None:
    with reading(file) as ledger:
        row = ledger.at(ledger.find(reference(f"replicaset/{name}"), "shop"), at).row
        return None if row is None or not ledger.text(row.entry.new) else row.seconds


def _why_at(file: Path, name: str, at: float) -> float | None:
    """Ask what `why --at` does, but for OPA, whose answer does not depend on the rows."""
    with reading(file) as ledger:
        return read_past(
            ledger, PastRequest(str(file), reference(f"replicaset/{name}"), "shop", at)
        ).since
