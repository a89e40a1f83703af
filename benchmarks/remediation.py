"""Remediation: how soon one object follows, what nothing costs, and how fast a mass is (`pace`).

Brakes are off: what is measured is how fast it could be, not how fast it may be.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

from benchmarks import world
from benchmarks.bare import Bare
from benchmarks.decisions import PROFILES, create_clusters, load_policy, metric
from benchmarks.pace import applied, last_applied, mass, measure_pace, remediator, until_applied
from tools.demo.fleet import EU, PREFERENCES
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

_CLUSTERS = 20
_SINGLE = 50
_MARK = "example.com/mark"
_PATIENCE = 240.0  # seconds


async def measure_remediation(
    stack: RunningStack, bare: Bare, objects: int, runs: int
) -> dict[str, float]:
    """Measure on ReplicaSets that are there; every other one follows the cluster that flips."""
    await load_policy(bare)
    await create_clusters(bare, 0, _CLUSTERS)
    await world.fresh_opa(stack)
    async with world.replicator(stack) as replicator:
        async with remediator(stack) as moving:
            await until_applied(moving, 1)
            await last_applied(moving)  # what was there is placed first
            await mass(moving, bare, 0)  # a wish for the EU makes a difference
            single = [await _single(bare, turn) for turn in range(_SINGLE)]
            seen = [await _replication(bare, turn) for turn in range(_SINGLE)]
            nothing = await _nothing(replicator, moving, bare)
            await mass(moving, bare, 1)
        paced = await measure_pace(stack, objects, runs)
    one, replicated = world.median(single), world.median(seen)
    return {
        "remediation, objects moved": objects // 2,
        **paced,
        "remediation, one object followed, median (ms)": one * 1e3,
        "remediation, one object in OPA, median (ms)": replicated * 1e3,
        "remediation, one object, ratio": one / replicated,
        **nothing,
    }


async def _single(bare: Bare, turn: int) -> float:
    """Return the seconds from a changed wish until the object has its new placement."""
    name = world.names(1)[0]
    path = f"/apis/apps/v1/namespaces/{world.NAMESPACE}/replicasets/{name}"
    async with aclosing(bare.watch()) as watch:
        events = aiter(watch)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)  # until the watch is open
        body = {"metadata": {"annotations": {EU: str(bool(turn % 2)).lower()}}}
        before = json.loads(await bare.kube("GET", path))["metadata"]["annotations"]
        await bare.kube("PATCH", path, body, "merge-patch+json")
        started = time.perf_counter()
        async with asyncio.timeout(_PATIENCE):
            while True:
                found = (await following)["object"]["metadata"]
                if found["name"] == name and _moved(found, before):
                    return time.perf_counter() - started
                following = asyncio.ensure_future(anext(events))


def _moved(metadata: dict[str, Any], before: dict[str, str]) -> bool:
    return bool(metadata["annotations"].get(PREFERENCES) != before.get(PREFERENCES))


async def _replication(bare: Bare, turn: int) -> float:
    """Return the seconds from the API server's answer until OPA shows a change."""
    name, mark = world.names(1)[0], f"seen-{turn}-{time.time_ns()}"
    await world.annotate(bare, name, mark)
    answered = time.perf_counter()
    where = f"kubernetes/replicasets/{world.NAMESPACE}/{name}/metadata/annotations"
    while await bare.get(f"{where}/{_MARK.replace('/', '%2F')}") != mark:
        pass
    return time.perf_counter() - answered


async def _nothing(
    replicator: RunningServer, moving: RunningServer, bare: Bare
) -> dict[str, float]:
    """Change a cluster so that no decision changes."""
    evaluated = await metric(replicator, "kube_sync_decision_evaluations_total")
    written = await applied(moving)
    classes = await metric(replicator, "kube_sync_decision_classes")
    body = {"metadata": {"labels": {_MARK: str(time.time_ns())}}}
    await bare.kube("PATCH", f"{PROFILES}/cluster-0001", body, "merge-patch+json")
    await asyncio.sleep(3)  # whatever it leads to is done by then
    return {
        "remediation, classes": classes,
        "remediation, evaluations when nothing changes": await metric(
            replicator, "kube_sync_decision_evaluations_total"
        )
        - evaluated,
        "remediation, PATCHes when nothing changes": await applied(moving) - written,
    }
