"""The ledger of real processes that are killed while they decide and write.

The API server is the witness: its audit log counts the writes, a watch shows what each wrote.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Coordination, Kubernetes, Opa, Policies, Settings
from kube_sync.inspect.replay.command import Request, run
from kube_sync.kube.client import kube_client
from kube_sync.kube.collection import Event, Item, KubeCollection
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Reporter
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.reflector import Reflector
from kube_sync.ledger.command import check
from kube_sync.ledger.entries import Row
from kube_sync.ledger.reading import Reading, reading
from kube_sync.ledger.store import Store
from kube_sync.ledger.verifying import verify
from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.policies.staging.canary import Halt
from kube_sync.processes.ledger import noted_elsewhere
from kube_sync.processes.policyevents import PolicyEvents
from tests.eventually import eventually
from tests.fakes.clients import REPLICASETS
from tests.fakes.ledgers import filled, verified
from tools.demo.components import UNBRAKED, start_service
from tools.demo.fleet import cluster, replica_set
from tools.servers.binaries import ensure_binary
from tools.servers.running import RunningServer, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

_OBJECTS = 25
_KILLS = ("replicate", "remediate", "replicate", "remediate", "replicate")
_POLICY = """package io.k8s.federation.admission

annotations["place"] := region if {{
	input.kind == "ReplicaSet"
	region := data.kubernetes.clusters["{namespace}"].east.metadata.labels.region
}}
"""


@dataclass
class Witness:
    """Every value that any object was seen to have."""

    seen: set[tuple[str, str]] = field(default_factory=set)

    async def page(self, items: Sequence[Item]) -> None:
        for item in items:
            self._take(item)

    def finish(self, *, known: bool) -> None:
        assert known

    def abandon(self) -> None:
        """Keep what was seen."""

    def apply(self, event: Event) -> None:
        if event.item is not None:
            self._take(event.item)

    def _take(self, item: Item) -> None:
        annotations = msgspec.json.decode(item.body)["metadata"].get("annotations") or {}
        if "place" in annotations:
            self.seen.add((item.key.name, annotations["place"]))


class World:
    """A fleet that moves, and the two processes that a test kills."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str, folder: Path) -> None:
        self.stack, self.namespace, self.folder = stack, namespace, folder
        self.ledger = folder / "ledger.db"
        self.witness = Witness()
        assert stack.audit_log is not None
        self._before = stack.audit_log.stat().st_size
        common = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
            "policies": {"namespaces": [namespace]},
            "coordination": {"namespace": namespace},
            "replicate": {"namespaces": [namespace]},
        }
        self.configurations: dict[str, dict[str, object]] = {
            "replicate": {
                **common,
                "opa": opa.settings(),
                "decisions": opa.replicator.server(),
                "ledger": {"path": str(self.ledger)},
            },
            "remediate": {
                **common,
                "decisions": opa.replicator.client(),
                "remediate": {**UNBRAKED, "listen": f"127.0.0.1:{free_port()}"},
            },
        }
        self.services: dict[str, RunningServer] = {}

    def start(self) -> None:
        for name in self.configurations:
            self.begin(name)

    def begin(self, name: str) -> RunningServer:
        self.services[name] = start_service(name, self.folder / name, self.configurations[name])
        return self.services[name]

    def stop(self) -> None:
        for service in self.services.values():
            service.stop()

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            manifest["metadata"]["namespace"] = self.namespace
            self.stack.api.apply(manifest, force=True, strict=False)

    def move(self, region: str) -> None:
        self.stack.api.label("clusterprofiles", "east", self.namespace, region=region)

    def kill(self, name: str) -> None:
        """Kill a process in the middle of what it does, and start it again."""
        self.services[name].kill()
        if name == "remediate":  # or the next one would wait for it to run out
            self.stack.api.delete("leases", "kube-sync-remediator", self.namespace)
        self.services[name].start()

    def written(self) -> Counter[str]:
        """How many writes of each object the API server took."""
        return Counter(
            line["objectRef"]["name"]
            for line in self.stack.audited(self.namespace, since=self._before)
            if line["verb"] == "patch"
            and line["objectRef"]["resource"] == "replicasets"
            and line["objectRef"]["namespace"] == self.namespace
            and line["responseStatus"]["code"] == 200
        )

    def places(self, region: str) -> int:
        """Count the objects that were seen in a region."""
        return sum(place == region for _, place in self.witness.seen)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        async with kube_client(Kubernetes(str(self.stack.kubeconfigs["admin"]))) as kube:
            source = KubeCollection(kube, REPLICASETS, namespace=self.namespace)
            watching = asyncio.create_task(
                Reflector("witness", source, self.witness, lambda _: None).run()
            )
            yield
            watching.cancel()


@pytest.mark.slow
async def test_each_write_is_in_the_ledger_whoever_is_killed_in_the_middle_of_it(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    world, chance = World(stack, opa, namespace, tmp_path), random.Random(11)  # noqa: S311 - a test
    policy = _POLICY.format(namespace=namespace)
    world.apply(
        cluster("east", "region-0", "2"),
        *(replica_set(f"web-{n}") for n in range(_OBJECTS)),
        _policy(policy),
    )
    world.move("region-0")
    await asyncio.to_thread(world.start)
    try:
        async with world.watched():
            await eventually(lambda: world.places("region-0"), _OBJECTS)
            for number, name in enumerate(_KILLS, start=1):
                await asyncio.to_thread(world.move, f"region-{number}")
                await asyncio.sleep(chance.uniform(0, 0.4))
                await asyncio.to_thread(world.kill, name)
                await eventually(lambda n=number: world.places(f"region-{n}"), _OBJECTS)  # type: ignore[misc]
                with reading(world.ledger) as ledger:
                    assert verify(ledger.db).faults == []
            expected = _OBJECTS * (len(_KILLS) + 1)
            await eventually(lambda: len(_intents(world.ledger)) >= expected, expected=True)
            # One that decides the same is in force all the same, and later decisions name it.
            await asyncio.to_thread(world.apply, _policy(policy + "\n# as before\n"))
            await eventually(lambda: _policies(world.ledger), 2)
    finally:
        await asyncio.to_thread(world.stop)
    _check(world, policy)
    await _check_replay(world)


def _policy(source: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "placement"},
        "data": {"place.rego": source},
    }


def _policies(file: Path) -> int:
    """Count the sets of policies that were in force."""
    with reading(file) as ledger:
        rows = _of(ledger.history(limit=100_000), "policy")
        return len({row.entry.policy for row in rows if row.entry.note != "0 modules"})


def _check(world: World, policy: str) -> None:
    written = world.written()
    with reading(world.ledger) as ledger:
        found = verify(ledger.db)
        assert (found.faults, found.gaps) == ([], 0)
        rows = ledger.history(limit=100_000)
        intents = [(row.entry.name, _place(ledger, row)) for row in _of(rows, "intent")]
        decided = [(row.entry.name, _decided(ledger, row)) for row in _of(rows, "decision")]
        (policies,) = {row.entry.policy for row in _of(rows, "decision")}
        modules = ledger.modules(policies)
    assert modules == {f"{world.namespace}/placement/place.rego": policy}
    assert world.witness.seen <= set(intents), "what was written and is not in the ledger"
    counts = Counter(name for name, _ in intents)
    assert all(counts[name] >= times for name, times in written.items())
    assert sum(written.values()) >= _OBJECTS * (len(_KILLS) + 1)
    applied = [row for row in _of(rows, "outcome") if row.entry.status == "applied"]
    assert len(applied) <= sum(written.values())
    assert set(intents) <= set(decided), "what is written was decided, and recorded before"
    for index, row in enumerate(rows):
        if row.entry.kind == "intent":
            place = (row.entry.name, intents.pop(0)[1])
            assert place in decided[: len(_of(rows[:index], "decision"))]


async def _check_replay(world: World) -> None:
    """Each decision follows once more from what it is said to have been made on."""
    settings = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
    answer = await run(Request(str(world.ledger), form="json"), settings, print)
    with reading(world.ledger) as ledger:
        decided = ledger.decisions(0.0, 10_000)
        assert len({row.entry.data for row in decided}) > len(_KILLS), "one for each region"
    expected = {"v": 1, "same": len(decided), "different": [], "not_replayed": []}
    assert (json.loads(answer.text), answer.status) == (expected, 0)


def _of(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row.entry.kind == kind]


def _intents(file: Path) -> set[tuple[str, str]]:
    with reading(file) as ledger:
        rows = _of(ledger.history(limit=100_000), "intent")
        return {(row.entry.name, _place(ledger, row)) for row in rows}


def _place(ledger: Reading, row: Row) -> str:
    return str(json.loads(ledger.text(row.entry.new) or b"{}").get("place"))


def _decided(ledger: Reading, row: Row) -> str:
    found = json.loads(ledger.text(row.entry.new) or b"{}")
    return str(found.get("annotations", {}).get("place"))


@pytest.mark.slow
async def test_a_ledger_whose_chain_was_made_anew_is_found_by_the_head_on_the_lease(
    stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path
) -> None:
    world = World(stack, opa, namespace, tmp_path)
    world.apply(
        cluster("east", "region-0", "2"),
        replica_set("web"),
        _policy(_POLICY.format(namespace=namespace)),
    )
    world.move("region-0")
    settings = msgspec.convert(world.configurations["replicate"], Settings)
    replicate = world.begin("replicate")
    try:
        await eventually(lambda: _HEAD in _notes(stack, namespace), expected=True)
        noted = _notes(stack, namespace)[_HEAD]
        assert await _verified(settings, world.ledger) == (True, [])
        await asyncio.to_thread(replicate.stop)
        await asyncio.to_thread(_make_anew, world.ledger)
        with reading(world.ledger) as ledger:
            assert verify(ledger.db).faults == [], "from inside it cannot be seen"
        fault = f"row {noted.partition(':')[0]}: its hash is not the one that was noted"
        where = f"Lease {namespace}/kube-sync-replicator"
        assert await _verified(settings, world.ledger) == (False, [f"{fault} ({where}, {_HEAD})"])
        await asyncio.to_thread(replicate.start)
        await eventually(lambda: _notes(stack, namespace).get(_LOST), noted)
        good, faults = await _verified(settings, world.ledger)
        assert (good, faults[0]) == (False, f"{fault} ({where}, {_LOST})")
        with reading(world.ledger) as ledger:
            (gap,) = _of(ledger.history(), "gap")
            assert noted in gap.entry.note
    finally:
        await asyncio.to_thread(replicate.stop)


async def test_the_event_about_a_halted_canary_has_the_head_and_verify_compares_with_it(
    stack: RunningStack, namespace: str, tmp_path: Path
) -> None:
    path, kubeconfig = tmp_path / "ledger.db", str(stack.kubeconfigs["admin"])
    filled(path, 5).close()
    head = verified(path).head
    settings = Settings(
        kubernetes=Kubernetes(kubeconfig),
        coordination=Coordination(namespace),
        policies=Policies((namespace,)),
    )
    policy = PolicyMap(ObjectKey(namespace, "next"), "1", {}, None)
    async with kube_client(settings.kubernetes) as kube:
        recorder = EventRecorder(kube, Reporter("replicator", "here"), metrics.replicator_events)
        task = asyncio.create_task(recorder.run())
        halt = Halt(["2 would be refused, at most 0 may"], {"refused": 2})
        PolicyEvents(recorder, lambda: f"{_HEAD}={head}").halted(policy, halt)
        await eventually(lambda: _events(stack, namespace), 1)
        task.cancel()
    good, faults = await _verified(settings, path)
    assert good
    assert len(faults) == 1, "there is no Lease"
    _make_anew(path)
    good, faults = await _verified(settings, path)
    assert not good
    assert faults[0].startswith("row 5: its hash is not the one that was noted (Event ")


_HEAD, _LOST = "kube-sync.io/ledger-head", "kube-sync.io/lost-ledger-head"


def _notes(stack: RunningStack, namespace: str) -> dict[str, str]:
    leases = stack.api.get("leases", namespace=namespace)["items"]
    notes = [one["metadata"] for one in leases if one["metadata"]["name"] == "kube-sync-replicator"]
    return dict(notes[0].get("annotations") or {}) if notes else {}


def _events(stack: RunningStack, namespace: str) -> int:
    return len(stack.api.get("events", namespace=namespace)["items"])


async def _verified(settings: Settings, path: Path) -> tuple[bool, list[str]]:
    """Verify as the command does; return whether it is whole and what was complained about."""
    complaints: list[str] = []
    noted = await noted_elsewhere(settings, (), offline=False)
    good = check(str(path), noted, lambda _: None, complaints.append)
    return good, complaints


def _make_anew(path: Path) -> None:
    """Write as many rows as there are, and say something else in them."""
    with reading(path) as ledger:
        rows = ledger.history()
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    store = Store(path)
    for row in rows:
        forged = {"cause": "forged", "uid": f"forged {row.seq}"}
        no_texts = dict.fromkeys(("new", "old", "input", "data"), "")
        entry = msgspec.structs.replace(row.entry, **forged, **no_texts)
        store.append([(entry, [])], row.seconds)
    store.close()
