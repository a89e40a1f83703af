"""Three edits, each planned, then made: what a plan costs beside what it foretells, and whether so.

A policy that means something else, a cluster that offers less and one that leaves are planned by
the command, as a process with a person's rights, and made with replicator and remediator running,
without brakes. The time of an edit goes from its write until the last workload that the plan named
is seen on a watch where it was to go. A plan that named another workload or another target than
what happened ends the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare
from benchmarks.decisions import PROFILES, load_policy
from benchmarks.pace import remediator
from tools.demo.components import UNBRAKED
from tools.demo.fleet import FLEET, LEVEL, POLICY, PREFERENCES, cluster, namespace, policy_map
from tools.servers.binaries import ensure_binary
from tools.servers.stack import RunningStack

WORKLOADS, CLUSTERS = 5000, 50
_MOVES: Final = 2  # exit status of a plan by which something changes and nothing breaks
_REGIONS = ("europe-west1", "europe-west2", "us-east1", "asia-east1")
_FLIPPED, _REMOVED = "cluster-0000", "cluster-0002"  # one in the EU, one in the US
_REST_SECONDS = 3.0  # in which whatever else an edit leads to shows
_PATIENCE = 240.0
_PROGRAM = Path(sys.executable).with_name("kube-sync")

Placed = Mapping[str, tuple[str, ...]]  # the clusters of each workload


@dataclass(frozen=True, slots=True)
class Edit:
    """What a plan is asked with, and how the same is done and undone."""

    name: str
    options: tuple[str, ...]
    make: Callable[[], Awaitable[object]]
    undo: Callable[[], Awaitable[object]]


async def measure_edits(
    stack: RunningStack,
    bare: Bare,
    rounds: int,
    clusters: int = CLUSTERS,
) -> dict[str, float]:
    """Measure on ReplicaSets that are there; medians over the rounds."""
    await load_policy(bare)
    await bare.kube("POST", "/api/v1/namespaces", namespace(FLEET))
    for number in range(clusters):
        await bare.kube("POST", PROFILES, _cluster(number))
    await world.fresh_opa(stack)
    with tempfile.TemporaryDirectory() as folder:
        planning = _Planning(stack, Path(folder))
        async with world.replicator(stack), remediator(stack):
            await _until(bare, lambda placed: all(placed.values()))  # what was there comes first
            edits = _edits(bare, Path(folder))
            return world.medians([await _round(planning, bare, edits) for _ in range(rounds)])


async def _round(planning: _Planning, bare: Bare, edits: tuple[Edit, ...]) -> dict[str, float]:
    begun, found = await _Seen.of(bare), dict[str, float]()
    for edit in edits:
        found |= await _one(edit, planning, bare)
    for edit in edits:
        await edit.undo()
    await _until(bare, lambda placed: placed == begun.placed)
    await asyncio.sleep(_REST_SECONDS)
    return found


async def _until(bare: Bare, are: Callable[[Placed], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not are((await _Seen.of(bare)).placed):  # noqa: ASYNC110 - others' doing
            await asyncio.sleep(1)


async def _one(edit: Edit, planning: _Planning, bare: Bare) -> dict[str, float]:
    before = await _Seen.of(bare)
    started = time.perf_counter()
    announced = await planning.plan(edit)
    took = time.perf_counter() - started
    started = time.perf_counter()
    await edit.make()
    with suppress(TimeoutError):  # what has not happened is told below
        await _until_happened(announced, before.version, bare)
    lasted = time.perf_counter() - started
    await asyncio.sleep(_REST_SECONDS)
    _compare(edit, announced, before, await _Seen.of(bare))
    return {
        f"edit, {edit.name}: workloads": len(announced),
        f"edit, {edit.name}: planned (s)": took,
        f"edit, {edit.name}: made (s)": lasted,
        f"edit, {edit.name}: ratio": took / lasted,
    }


async def _until_happened(announced: Placed, since: str, bare: Bare) -> None:
    """Wait until each workload was seen where the plan sends it. Raises TimeoutError."""
    left = dict(announced)
    async with asyncio.timeout(_PATIENCE), aclosing(bare.watch(since)) as events:
        while left:
            metadata = (await anext(events))["object"]["metadata"]
            if left.get(metadata["name"]) == _clusters(metadata):
                del left[metadata["name"]]


def _compare(edit: Edit, announced: Placed, before: _Seen, after: _Seen) -> None:
    """Make sure that what was announced happened, and nothing else."""
    happened = {n: on for n, on in after.placed.items() if before.placed[n] != on}
    written = {n for n, version in after.versions.items() if before.versions[n] != version}
    if happened == announced and written == announced.keys():
        return
    odd = sorted(
        name
        for name in announced.keys() | happened.keys() | written
        if announced.get(name) != happened.get(name) or (name in written) != (name in announced)
    )
    name = odd[0]
    said, saw = announced.get(name), happened.get(name)
    msg = f"{edit.name}: {len(odd)} not as announced, {name} was to go to {said}, went to {saw}"
    raise AssertionError(msg)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the API server holds of all workloads."""

    placed: Placed
    versions: Mapping[str, str]
    version: str  # of them all

    @classmethod
    async def of(cls, bare: Bare) -> _Seen:
        listed = json.loads(await bare.kube("GET", REPLICA_SETS))
        metadata = [item["metadata"] for item in listed["items"]]
        return cls(
            {one["name"]: _clusters(one) for one in metadata},
            {one["name"]: one["resourceVersion"] for one in metadata},
            listed["metadata"]["resourceVersion"],
        )


class _Planning:
    """The command, with an administrator's rights and the remediator's limits."""

    def __init__(self, stack: RunningStack, folder: Path) -> None:
        self._config = folder / "config.yaml"
        whole = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
            "opa": {"binary": str(ensure_binary("opa"))},
            "remediate": dict(UNBRAKED),
        }
        self._config.write_text(yaml.safe_dump(whole), encoding="utf-8")

    async def plan(self, edit: Edit) -> Placed:
        """Return where the plan says that workloads go."""
        arguments = ("plan", "--config", str(self._config), "-o", "json", *edit.options)
        process = await asyncio.create_subprocess_exec(
            _PROGRAM,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, said = await process.communicate()
        if process.returncode != _MOVES:
            msg = f"{edit.name}: the plan ended with {process.returncode}: {said.decode()}"
            raise AssertionError(msg)
        whole = json.loads(output)
        odd = [one for one in whole["workloads"] if one["effect"] not in ("moves", "adds")]
        if odd or whole["summary"]["pending"]:
            msg = f"{edit.name}: the plan says what was not meant: {whole['summary']}"
            raise AssertionError(msg)
        return {one["name"]: tuple(one["to"]) for one in whole["workloads"]}


def _edits(bare: Bare, folder: Path) -> tuple[Edit, ...]:
    """Return the three: half of the workloads, a third, and half of them again."""
    source = POLICY.read_text(encoding="utf-8")
    # From then on only one region counts as the EU.
    edited = source.replace('startswith(region, "europe-")', 'region == "europe-west1"')
    candidate = folder / "eu_pci.yaml"
    candidate.write_text(yaml.safe_dump(policy_map(edited)), encoding="utf-8")
    flipped, removed = f"{PROFILES}/{_FLIPPED}", f"{PROFILES}/{_REMOVED}"

    def labelled(level: str) -> Awaitable[bytes]:
        body = {"metadata": {"labels": {LEVEL: level}}}
        return bare.kube("PATCH", flipped, body, "merge-patch+json")

    return (
        Edit(
            "a policy says another thing",
            ("-f", str(candidate)),
            lambda: load_policy(bare, edited),
            lambda: load_policy(bare),
        ),
        Edit(
            "a cluster's label flips",
            ("--set-cluster", f"{_FLIPPED}.labels.{LEVEL}=1"),
            lambda: labelled("1"),
            lambda: labelled("3"),
        ),
        Edit(
            "a cluster leaves",
            ("--remove-cluster", f"{FLEET}/{_REMOVED}"),
            lambda: bare.kube("DELETE", removed),
            lambda: bare.kube("POST", PROFILES, _cluster(int(_REMOVED[-4:]))),
        ),
    )


def _cluster(number: int) -> dict[str, Any]:
    """Return one of a fleet on three continents; each third one offers less than the others."""
    level = "1" if number % 3 == 1 else "3"
    return cluster(f"cluster-{number:04}", _REGIONS[number % len(_REGIONS)], level)


def _clusters(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    text = (metadata.get("annotations") or {}).get(PREFERENCES, "{}")
    return tuple(sorted(json.loads(text).get("clusters", {})))
