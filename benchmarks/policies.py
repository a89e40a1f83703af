"""Policies: a set of modules loaded as we do, against `PUT /v1/policies` for each of them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks import world
from benchmarks.bare import Bare
from tools.demo.fleet import POLICIES
from tools.servers.binaries import ensure_binary
from tools.servers.stack import RunningStack

MODULES = 100
_RULES = 8
_MORE = 8  # edits: more sets than the replicator remembers
_KINDS = ("Pod", "ReplicaSet", "Deployment", "Service")


async def measure_policies(stack: RunningStack, bare: Bare, runs: int) -> dict[str, float]:
    """Load the modules by PUT, then `runs` times as one set, and change one of them."""
    await world.fresh_opa(stack)
    begun = time.perf_counter()
    for index in range(MODULES):
        await bare.put_policy(f"bench/{index}/m.rego", module(index, 0))
    put = time.perf_counter() - begun
    for index in range(MODULES):
        await _config_map(bare, index, 0)
    loads, edits, floors, grown = [], [], [], []
    for run in range(1, runs + 1):
        await world.fresh_opa(stack)
        async with world.replicator(stack) as server:
            loaded = world.logged_at(server, "opa_loaded")
            loads.append(world.logged_at(server, "policies_activated") - loaded)
            begun = time.perf_counter()
            await _edit(bare, 0, run)
            edits.append(time.perf_counter() - begun)
            floors.append(await _compile(run))
            before = server.rss_bytes()
            for index in range(1, _MORE + 1):
                await _edit(bare, index, run)
            grown.append((server.rss_bytes() - before) / 1e6)
    for index in range(MODULES):
        await bare.kube("DELETE", f"{_PATH}/bench-{index}")
    load, edit, floor = world.median(loads), world.median(edits), world.median(floors)
    return {
        f"{MODULES} modules by PUT (s)": put,
        f"{MODULES} modules as one set (s)": load,
        f"{MODULES} modules, ratio": load / put,
        f"one of {MODULES} modules changed, until in force, floor (s)": floor,
        f"one of {MODULES} modules changed, until in force (s)": edit,
        f"one of {MODULES} modules changed, until in force, ratio": edit / floor,
        f"{_MORE} more of {MODULES} modules changed, memory more (MB)": world.median(grown),
    }


async def _compile(edition: int) -> float:
    """Return the seconds in which OPA compiles these modules once, which nothing does without."""
    with tempfile.TemporaryDirectory() as folder:
        for index in range(MODULES):
            Path(folder, f"{index}.rego").write_text(module(index, edition), encoding="utf-8")  # noqa: ASYNC240 - nobody waits
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(ensure_binary("opa"), "check", folder)
        if await process.wait() != 0:
            raise AssertionError
        return time.perf_counter() - begun


_PATH = f"/api/v1/namespaces/{POLICIES}/configmaps"


async def _edit(bare: Bare, index: int, edition: int) -> None:
    await _config_map(bare, index, edition)
    while await bare.get(f"bench/p{index}/edition") != edition:
        pass


async def _config_map(bare: Bare, index: int, edition: int) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"bench-{index}"},
        "data": {"m.rego": module(index, edition)},
    }
    path = f"{_PATH}/bench-{index}?fieldManager=bench&force=true"
    await bare.kube("PATCH", path, manifest, "apply-patch+yaml")


def module(index: int, edition: int) -> str:
    """Return a module of about 1.4 KB and eight rules."""
    rules = "\n".join(_rule(index, number) for number in range(_RULES))
    return f"package bench.p{index}\n\nedition := {edition}\n\n{rules}"


def _rule(index: int, number: int) -> str:
    kind = _KINDS[number % len(_KINDS)]
    return f"""\
deny contains message if {{
	input.kind == "{kind}"
	some key, value in input.metadata.labels
	startswith(key, "team-{index}-{number}/")
	not value in {{"a", "b", "c"}}
	message := sprintf("{kind} %v: label %v", [input.metadata.name, key])
}}
"""
