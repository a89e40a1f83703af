"""What a plan announces is what happens once the edit is made: same objects, same clusters.

On real servers, with our own replicator and remediator; what is compared is what the API server has
before and after. The OPA that serves is left alone meanwhile, and what is no plan prints nothing.
KUBE_SYNC_EDITS says how many edits are made, KUBE_SYNC_SEED which; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.errors import Broken
from kube_sync.inspect.plan.request import Request
from tests.eventually import eventually
from tests.faults.world import seeded, until
from tests.integration.planning_edits import (
    LEVEL,
    PLACEMENT,
    ZONE,
    Edits,
    Placing,
    State,
    profile,
    start,
    workload,
)
from tests.integration.planning_world import (
    OWN,
    Seen,
    Servers,
    World,
    planning_servers,
    planning_world,
    policy_map,
)
from tests.parts import examples
from tools.demo.fleet import FLEET, POLICIES, SHOP
from tools.servers.running import Launcher

# Its first five edits: both policies, a zone twice, and a cluster that leaves.
_SEED = int(os.environ.get("KUBE_SYNC_SEED", "196"))
_EDITS = int(os.environ.get("KUBE_SYNC_EDITS") or examples(20))
_WORKLOADS = 300
_MANY = 100  # edits, among which these come
_COMES = frozenset({"failed", "refused", "moves", "adds", "changes"})
_SOON = 60.0  # seconds; whatever is planned for later is held
_PROGRAM = Path(sys.executable).with_name("kube-sync")
_WRITTEN = frozenset({"moves", "adds", "changes", "nowhere"})

Expected = dict[str, tuple[bool, tuple[str, ...]]]  # whether it changes, and where it is then


@pytest.fixture(scope="module")
def servers(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with planning_servers(launcher, tmp_path_factory.mktemp("planning")) as running:
        yield running


@pytest.fixture
async def world(servers: Servers) -> AsyncGenerator[World]:
    async with planning_world(servers) as found:
        if not servers.state.clusters:
            await found.fill(_WORKLOADS)
        else:
            await found.become(start())
        yield found


class _Asking:
    """Spells an edit as a person would, each time in one of the ways that there are."""

    def __init__(self, world: World, folder: Path, seed: int) -> None:
        self._world = world
        self._folder = folder
        self._chance = seeded(seed)
        self.ways: Counter[str] = Counter()

    async def plan(self, before: State, after: State) -> Any:
        """Return the plan of the one change between two states."""
        for name, labels in before.clusters.items():
            if after.clusters.get(name) != labels:
                return await self._of_cluster(name, labels, after)
        for name in after.clusters.keys() - before.clusters.keys():
            return await self._way("a cluster joins", clusters=(self._cluster(name, after),))
        policies = {**before.policies, **after.policies}
        (name,) = {n for n in policies if before.policies.get(n) != after.policies.get(n)}
        return await self._of_policy(name, after)

    async def _of_cluster(self, name: str, labels: Mapping[str, str], after: State) -> Any:
        wanted = after.clusters.get(name)
        if wanted is None:
            spelt = self._chance.choice((name, f"{FLEET}/{name}"))
            return await self._way("a cluster leaves", removed=(spelt,))
        if self._chance.random() < 0.2:
            return await self._way("a cluster in a file", clusters=(self._cluster(name, after),))
        keys = sorted(k for k in {*labels, *wanted} if labels.get(k) != wanted.get(k))
        parts = (f"={wanted[key]}" if key in wanted else "-" for key in keys)
        fields = (f"{name}.labels.{k}{part}" for k, part in zip(keys, parts, strict=True))
        return await self._way("fields of a cluster", fields=tuple(fields))

    async def _of_policy(self, name: str, after: State) -> Any:
        source = after.policies.get(name)
        if source is None:
            return await self._removed(name, after)
        match self._chance.randrange(4):
            case 0:
                file = self._write(f"{name}.rego", source)
                return await self._way("a module", files=(file,))
            case 1:
                for other, text in after.policies.items():
                    self._write(f"all/{other}.rego", text)
                found = await self._way(
                    "all modules", files=(str(self._folder / "all"),), instead=True
                )
                for other in after.policies:
                    (self._folder / "all" / f"{other}.rego").unlink()
                return found
            case 2:
                await self._world.stage(name, source)
                found = await self._way("a staged policy", staged=True)
                await self._world.unstage(name)
                return found
            case _:
                return await self._way("a manifest", files=(self._manifest(name, after),))

    async def _removed(self, name: str, after: State) -> Any:
        if after.policies and self._chance.random() < 0.5:
            files = tuple(self._manifest(other, after) for other in after.policies)
            return await self._way("all manifests", files=files, instead=True)
        return await self._way("a policy leaves", unloaded=(name,))

    async def _way(self, what: str, **asked: Any) -> Any:
        self.ways[what] += 1
        return await self._world.plan(Request(form="json", **asked))

    def _cluster(self, name: str, state: State) -> str:
        return self._write(f"{name}.yaml", yaml.safe_dump(profile(name, state.clusters[name])))

    def _manifest(self, name: str, state: State) -> str:
        text = yaml.safe_dump(policy_map(name, state.policies[name]))
        return self._write(f"{name}.yaml", text)

    def _write(self, name: str, text: str) -> str:
        file = self._folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return str(file)


def _goes(effect: Mapping[str, Any]) -> bool:
    """Tell whether a plan says that something is written now."""
    late = effect["after_seconds"] is not None and effect["after_seconds"] > _SOON
    return effect["effect"] in _WRITTEN and effect["held"] is None and not late


def _expected(before: Mapping[str, Seen], plan: Any) -> Expected:
    found = {name: (False, seen.on) for name, seen in before.items()}
    for effect in plan["workloads"]:
        if _goes(effect):
            found[effect["name"]] = (True, tuple(effect["to"]))
    return found


async def _happened(world: World, before: Mapping[str, Seen]) -> Expected:
    after = await world.seen()
    return {name: (seen != before[name], seen.on) for name, seen in after.items()}


async def _comes_true(world: World, before: Mapping[str, Seen], plan: Any) -> None:
    """Check that exactly what was announced happens; writes may be under way for a moment."""
    expected = _expected(before, plan)

    async def otherwise() -> Expected:
        happened = await _happened(world, before)
        return {name: how for name, how in happened.items() if how != expected[name]}

    await eventually(otherwise, {})


def _refused(plan: Any) -> dict[str, str]:
    kinds = ("failed", "refused", "undecided")
    return {w["name"]: w["effect"] for w in plan["workloads"] if w["effect"] in kinds}


def _newly(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {name: why for name, why in after.items() if before.get(name) != why}


@pytest.mark.property
@pytest.mark.timeout(120 + 20 * _EDITS)
async def test_what_is_announced_is_what_happens_on_real_servers(
    world: World, tmp_path: Path
) -> None:
    edits, asking = Edits(seeded(_SEED), world.servers.state), _Asking(world, tmp_path, _SEED)
    announced: Counter[str] = Counter()
    before = await world.seen()
    for number in range(_EDITS):
        was, wanted = edits.next()
        refused_before = world.refusals()
        try:
            plan = await asking.plan(was, wanted)
            # What is not the edit's doing has happened already, but for what is held.
            assert not [w for w in plan["workloads"] if w["pending"] and _goes(w)]
            await world.become(wanted)
            await _comes_true(world, before, plan)
            assert _refused(plan) == _newly(refused_before, world.refusals())
        except BaseException as error:
            error.add_note(f"KUBE_SYNC_SEED={_SEED}, edit {number}: from {was} to {wanted}")
            raise
        before = await world.seen()
        announced.update(w["effect"] for w in plan["workloads"] if not w["pending"])
        print(number, dict(announced), dict(asking.ways))  # noqa: T201 - for whoever runs many
    assert announced["moves"]
    assert _EDITS < _MANY or announced.keys() >= _COMES


@pytest.mark.slow
async def test_a_plan_leaves_the_opa_that_serves_untouched(world: World, tmp_path: Path) -> None:
    before, state = await _settled_opa(world), world.servers.state
    without = {name: labels for name, labels in state.clusters.items() if name != "c1"}
    asking = _Asking(world, tmp_path, _SEED)
    for after in (
        replace(state, placing=Placing(level=2, otherwise="evict")),
        replace(state, clusters=without),
        replace(state, placing=None),
    ):
        assert (await asking.plan(state, after))["workloads"]
    staged = Placing(least=2).source()
    await world.stage(PLACEMENT, staged)
    assert (await world.plan(Request(form="json", staged=True)))["workloads"]
    await world.unstage(PLACEMENT)
    assert await _opa(world) == before


async def _settled_opa(world: World) -> Any:
    """Wait until OPA holds what the API server has, so that nothing changes by itself."""

    async def current() -> bool:
        found = (await world.opa("v1/data/kubernetes/replicasets"))[SHOP]
        held = {name: body["metadata"]["annotations"] for name, body in found.items()}
        has = {n: s.annotations for n, s in (await world.seen()).items()}
        return has == {name: _but_own(annotations) for name, annotations in held.items()}

    await until("OPA holds what is there", current)
    return await _opa(world)


def _but_own(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in annotations.items() if k not in OWN))


async def _opa(world: World) -> Any:
    policies = sorted(await world.opa("v1/policies"), key=lambda module: str(module["id"]))
    return policies, await world.opa("v1/data")


def _command(world: World, *arguments: str) -> tuple[int, str, str]:
    config = str(world.servers.config)
    done = subprocess.run(
        [str(_PROGRAM), "plan", "--config", config, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not line.endswith("…")]  # signs of life
    return done.returncode, done.stdout, "\n".join(said)


@pytest.mark.slow
async def test_status_of_the_command_tells_nothing_something_or_broken(world: World) -> None:
    def ran(*arguments: str) -> tuple[int, str]:
        status, printed, _ = _command(world, "-o", "json", *arguments)
        effects = {w["effect"] for w in json.loads(printed)["workloads"]}
        return status, ",".join(sorted(effects))

    arguments = (("c1.labels.other=1",), (f"c0.labels.{ZONE}=us",), (f"c2.labels.{LEVEL}=0",))
    found = [await asyncio.to_thread(ran, "--set-cluster", *each) for each in arguments]
    assert [status for status, _ in found] == [0, 2, 3]
    assert ["refused" in effects for _, effects in found] == [False, False, True]
    assert found[0][1] == ""


@pytest.mark.slow
async def test_what_is_no_plan_is_said_by_file_and_row_or_name(
    world: World, tmp_path: Path
) -> None:
    wrong = Placing().source().replace("_in_zone(name)\n", "_in_zone(nome)\n", 1)
    row = 1 + wrong[: wrong.index("nome")].count("\n")
    file, manifest = tmp_path / "placement.rego", tmp_path / "placement.yaml"
    file.write_text(wrong)
    manifest.write_text(yaml.safe_dump(policy_map(PLACEMENT, wrong)))
    unsafe = "rego_unsafe_var_error: var nome is unsafe"
    module = f"{POLICIES}/placement/placement.rego"
    for arguments, said in (
        (("-f", str(file)), f"kube-sync: {file}:{row}: {unsafe}"),
        (("-f", str(manifest)), f"kube-sync: {manifest} ({module}):{row}: {unsafe}"),
        (("--remove-policy", "lost"), "kube-sync: --remove-policy: there is no policy lost"),
        (
            ("--set-cluster", "c99.labels.a=b", "--remove-cluster", "c98"),
            (
                "kube-sync: --set-cluster c99.labels.a=b: there is no cluster c99\n"
                "kube-sync: --remove-cluster: there is no cluster c98"
            ),
        ),
    ):
        status, printed, complaint = await asyncio.to_thread(_command, world, *arguments)
        assert (status, printed, complaint) == (3, "", said)


@pytest.mark.slow
async def test_workload_that_vanishes_while_it_is_planned_is_no_plan_on_real_servers(
    world: World,
) -> None:
    path = f"/apis/apps/v1/namespaces/{SHOP}/replicasets/w000"
    gone: list[asyncio.Task[bytes]] = []

    def say(line: str) -> None:
        if "classes of replicasets" in line and not gone:
            gone.append(asyncio.ensure_future(world.bare.kube("DELETE", path)))

    with pytest.raises(Broken) as raised:
        await world.planned(Request(removed=("c0", "c3", "c6", "c9")), say)
    await gone[0]
    await world.bare.kube("POST", path.rpartition("/")[0], workload(0))
    assert str(raised.value) == f"replicasets {SHOP}/w000: it vanished while it was planned"
