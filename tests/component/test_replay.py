"""Decisions that a real OPA makes are recorded, and made again from the ledger by another one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kube_sync.decisions.batch_module import BATCH_MODULE, batch_module
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.input_reader import InputReader
from kube_sync.decisions.records import Target
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.reading import reading
from kube_sync.ledger.recording import Recorder
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.analysis.result import Collection, Reads
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.bundle import digest
from kube_sync.policies.reading import Reading
from tests.unit.async_tools import running
from tests.unit.commandline import status
from tools.servers.binaries import ensure_binary

PATH = "io/k8s/federation/admission"
REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
PLACES = {
    name: Collection(("kubernetes", name), namespaced=True) for name in ("clusters", "replicasets")
}
POLICY = """package io.k8s.federation.admission

annotations["place"] := concat(",", sort([name |
	some name
	cluster := data.kubernetes.clusters.fleet[name]
	cluster.metadata.labels.region == input.metadata.labels.region
])) if input.metadata.labels.region != "none"

errors contains "it may not run" if input.metadata.labels.tier == "forbidden"

annotations["bad"] := null if input.metadata.labels.tier == "odd"
"""

MORE = """package io.k8s.federation.admission

labels["kept"] := "yes" if input.metadata.labels.tier == "kept"
"""
WHERE = "kube-federation-scheduling-policy"
MODULES = {f"{WHERE}/place/policy.rego": POLICY, f"{WHERE}/more/more.rego": MORE}


@dataclass
class World:
    """What a replicator does with an OPA, without an API server."""

    opa: OpaClient
    ledger: Path
    reads: Reads
    number: int = 0
    held: dict[str, dict[str, Any]] = field(default_factory=lambda: {"clusters": {}})

    def __post_init__(self) -> None:
        self.journal = Journal(self.ledger, max_age=1e9, max_size=1 << 40, patience=30)
        recorder = Recorder(self.journal, "me")
        self.hub = DecisionHub("me", recorder=recorder)
        self.input_reader = InputReader(
            "kubernetes",
            PATH,
            targets=lambda: {"replicasets": REPLICASETS},
            fields_of=lambda _name, _reads: None,
            count_of=lambda name: len(self.held[name]),
            secrets=tuple,
        )
        self.evaluator = Evaluator(self.opa, "e", input_reader=self.input_reader)
        self.evaluator.policies_changed(self.reads)
        self.policy = digest(MODULES)
        recorder.policies(self.policy, MODULES)

    async def write(self, collection: str, namespace: str, objects: Mapping[str, Any]) -> None:
        self.number += 1
        self.held[collection] = dict(objects)
        self.input_reader.batch({collection: {*map(_key, objects)}}, self.number)
        path = ("kubernetes", collection, namespace)
        await self.opa.put_data(path, msgspec.json.encode(objects))
        fence = msgspec.json.encode({str(self.number): True})
        await self.opa.put_data(("kube_sync", "fence", "e"), fence)

    async def decide(self, *names: str, alike: str | None = None) -> None:
        found = await self.evaluator.evaluate("replicasets", [_key(name) for name in names])
        for key, outcome in found.items():
            self.hub.publish(
                _target(key.name).gvr, _target(key.name).key, outcome, "data", self.policy
            )
            if alike is not None:  # as objects of one class are told
                self.hub.publish(
                    _target(alike).gvr,
                    _target(alike).key,
                    outcome,
                    "data",
                    self.policy,
                    uid=f"uid-{alike}",
                )


def _key(name: str) -> ObjectKey:
    return ObjectKey("shop", name)


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "shop")


def _object(name: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    return {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": 2}}


def _cluster(name: str, region: str) -> dict[str, Any]:
    return _object(name, "fleet", region=region)


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_SYNC_CONFIG", "")
    monkeypatch.setenv("KUBE_SYNC_OPA_BINARY", str(ensure_binary("opa")))


@asynccontextmanager
async def _world(ledger: Path) -> AsyncGenerator[World]:
    scratch = ScratchOpa(str(ensure_binary("opa")))
    modules = {**MODULES, BATCH_MODULE: batch_module("kubernetes", PATH)}

    async def places() -> Mapping[str, Collection]:
        return PLACES

    need = await Reading(scratch, PATH, places).need(MODULES)
    epoch = msgspec.json.encode({"kube_sync": {"epoch": {"e": "loaded"}}})
    async with scratch.serving(modules, epoch) as opa:
        world = World(opa, ledger, need.reads)
        async with running(world.journal.run()):
            yield world
            assert await world.journal.recorded()


@dataclass
class Said:
    status: object
    out: str
    err: str


async def _replay(capsys: pytest.CaptureFixture[str], ledger: Path, *more: str) -> Said:
    # In a thread: it has a loop of its own.
    found = await asyncio.to_thread(status, "replay", "--file", str(ledger), *more)
    return Said(found, *capsys.readouterr())


async def _decided(ledger: Path) -> None:
    """Record a few decisions of which each kind is one, over data that moves."""
    chance = random.Random(15)  # noqa: S311 - a test
    async with _world(ledger) as world:
        for number in range(12):
            fleet = {
                f"c{n}": _cluster(f"c{n}", chance.choice(["eu", "us"]))
                for n in range(chance.randint(0, 4))
            }
            await world.write("clusters", "fleet", fleet)
            tiers = ["gold", "forbidden", "odd"]
            objects = {
                f"web-{n}": _object(
                    f"web-{n}", region=chance.choice(["eu", "us"]), tier=chance.choice(tiers)
                )
                for n in range(6)
            }
            if number:
                await world.write("replicasets", "shop", objects)
                await world.decide(*objects)
        world.hub.delete(_target("web-0"))


async def test_recorded_inputs_give_the_recorded_decisions_under_the_same_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.db"
    await _decided(ledger)
    with reading(ledger) as found:
        rows = found.decisions(0.0, 1_000)
    assert {row.entry.status for row in rows} == {"decided", "refused", "failed"}
    assert len({row.entry.data for row in rows}) > 5
    assert all(row.entry.input for row in rows)
    said = await _replay(capsys, ledger, "-o", "json")
    answer = json.loads(said.out)
    assert answer == {"v": 1, "same": len(rows), "different": [], "not_replayed": []}
    assert said.status == 0


async def test_other_policies_differ_where_they_decide_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, policy = tmp_path / "ledger.db", tmp_path / "policy.rego"
    async with _world(ledger) as world:
        await world.write("clusters", "fleet", {"c1": _cluster("c1", "eu")})
        objects = {"a": _object("a", region="eu"), "b": _object("b", region="us")}
        await world.write("replicasets", "shop", objects)
        await world.decide("a", "b")
    policy.write_text(POLICY.replace('!= "none"', '!= "us"'))
    said = await _replay(capsys, ledger, "--policy", str(policy))
    assert said.status == 2
    changed, summary = said.out.splitlines()
    assert "replicasets.v1.apps shop/b  place= -> nothing  (row 4)" in changed
    assert summary == "2 decisions made again: 1 the same, 1 differ"
    said = await _replay(capsys, ledger, "--policy", str(policy), "-o", "name")
    assert (said.status, said.out) == (2, "replicasets.v1.apps/shop/b\n")
    whole = yaml.safe_load(
        (await _replay(capsys, ledger, "--policy", str(policy), "-o", "yaml")).out
    )
    assert [one["name"] for one in whole["different"]] == ["b"]
    policy.write_text("package io.k8s.federation.admission\n\nannotations := nowhere")
    said = await _replay(capsys, ledger, "--policy", str(policy))
    assert (said.status, said.out) == (3, "")
    assert f"{policy}:3: rego_unsafe_var_error: var nowhere is unsafe" in said.err


def _policy(kind: str, name: str, source: str) -> str:
    metadata = {"name": name, "namespace": WHERE}
    if kind == "ConfigMap":
        whole = {"apiVersion": "v1", "data": {"policy.rego": source}}
    else:
        modules = [{"name": "policy.rego", "rego": source}]
        whole = {"apiVersion": "policy.kube-sync.io/v1alpha1", "spec": {"modules": modules}}
    return json.dumps({**whole, "kind": kind, "metadata": metadata})


async def test_objects_as_a_person_has_them_take_the_places_of_the_policies_of_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, folder = tmp_path / "ledger.db", tmp_path / "policies"
    async with _world(ledger) as world:
        await world.write("clusters", "fleet", {"c1": _cluster("c1", "eu")})
        objects = {"a": _object("a", region="eu"), "b": _object("b", region="us", tier="kept")}
        await world.write("replicasets", "shop", objects)
        await world.decide("a", "b")
    folder.mkdir()
    (folder / "place.yaml").write_text(
        _policy("ConfigMap", "place", POLICY.replace('!= "none"', '!= "us"'))
    )
    said = await _replay(capsys, ledger, "--policy", str(folder))
    assert said.status == 2
    assert "shop/b  place= kept=yes -> kept=yes  (row 4)" in said.out, "the other one stayed"
    said = await _replay(capsys, ledger, "--policy", str(folder), "--instead")
    assert "shop/b  place= kept=yes -> nothing  (row 4)" in said.out
    (folder / "place.yaml").write_text(
        _policy("PlacementPolicy", "more", MORE.replace('"kept"]', '"also"]'))
    )
    said = await _replay(capsys, ledger, "--policy", str(folder))
    assert "shop/b  place= kept=yes -> place= also=yes kept=yes  (row 4)" in said.out, "beside it"


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ("input.spec.replicas == 2", "1 decision not made again (row 4): it was decided as shop/a"),
        ("data.limits.east", "(rows 3, 4): data.limits.east is not recorded"),
        ("data.kubernetes.pods.shop", "data.kubernetes.pods.shop is not recorded"),
        ("time.now_ns() > 0", "time.now_ns: what it answers changes without any data"),
    ],
)
async def test_policies_that_read_what_is_not_recorded_do_not_decide_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], read: str, why: str
) -> None:
    """Of objects that shared a decision the one that was asked about is recorded whole."""
    ledger, policy = tmp_path / "ledger.db", tmp_path / "policy.rego"
    async with _world(ledger) as world:
        await world.write("clusters", "fleet", {"c1": _cluster("c1", "eu")})
        await world.write("replicasets", "shop", {"a": _object("a", region="eu")})
        await world.decide("a", alike="b")
    assert (await _replay(capsys, ledger)).status == 0
    policy.write_text(f'{POLICY}\nlabels["more"] := "x" if {read}\n')
    said = await _replay(capsys, ledger, "--policy", str(policy))
    assert why in said.out
    assert said.status == (2 if "input" in read else 3)


async def test_a_ledger_without_inputs_says_which_decisions_cannot_be_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.db"
    async with _world(ledger) as world:
        await world.write("replicasets", "shop", {"a": _object("a", region="eu")})
        world.evaluator.policies_changing()
        await world.decide("a")
    said = await _replay(capsys, ledger)
    assert said.status == 3
    assert "1 decision not made again (row 3): what it was made on is not recorded" in said.out


async def test_a_ledger_of_nothing_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger.db"
    async with _world(ledger):
        pass
    said = await _replay(capsys, ledger, "--since", "1h")
    assert (said.status, said.out) == (3, "")
    assert "nothing that a policy decided is recorded" in said.err
