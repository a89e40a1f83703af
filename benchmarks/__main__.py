"""First sync, events, a relist and start-up beside a bare client's in the same run, or other parts.

Each figure is a median of `--runs`. At the end three edits are planned, made and compared, once,
and each ratio that has an aim is printed beside it. `make bench` measures all that has one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from benchmarks import admission, decisions, edits, pods, startup, world
from benchmarks.bare import Bare, bare_client, first_sync
from benchmarks.classes import measure_classes
from benchmarks.firstplacement import RATE, measure_first_placement
from benchmarks.guard import measure_guard
from benchmarks.headline import headlines
from benchmarks.kubemgmt import measure_kube_mgmt
from benchmarks.kueue import JOBS, measure_kueue
from benchmarks.ledger import measure_ledger
from benchmarks.metadata import measure_metadata
from benchmarks.narrowed import measure_narrowed
from benchmarks.planning import measure_planning
from benchmarks.policies import MODULES, measure_policies
from benchmarks.policysync import measure_policy_sync
from benchmarks.remediation import measure_remediation
from benchmarks.scale import OBJECTS, measure_scale, sizes_up_to
from benchmarks.scheduling import measure_scheduling
from benchmarks.structures import OBJECTS as STRUCTURES
from benchmarks.structures import measure_structures
from benchmarks.topology import measure_topology
from benchmarks.world import medians
from tests.faults.relist import operations_of_a_relist
from tests.faults.world import faulty_world, until
from tools.servers.console import step
from tools.servers.stack import RunningStack

_OBJECTS = 2000
_BURST = 5000
_CHANGED = 10  # of all that are listed again
RESULTS = Path(__file__).resolve().parents[1] / "build/benchmarks.json"


async def measure(objects: int, runs: int, events: int) -> dict[str, float]:
    """Measure everything once on one set of servers."""
    with step(f"start-up, {runs} times"):
        found = await asyncio.to_thread(_start_up, runs)
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"creating {objects} ReplicaSets"):
                await world.create_replica_sets(bare, objects)
            with step(f"first sync, {runs} times, between runs of the floor"):
                found |= await _first_syncs(stack, bare, runs)
            with step(f"{events} events, {runs} times, and by a bare watch-and-PUT loop"):
                found |= medians([await _events(stack, bare, events) for _ in range(runs)])
            with step(f"a burst of changes, {runs} times"):
                found |= medians([await _burst(stack, bare, objects, _BURST) for _ in range(runs)])
            with step(f"a relist of {objects} with {_CHANGED} changed, {runs} times"):
                found |= medians([await _relist(stack, bare, objects) for _ in range(runs)])
            with step(f"{MODULES} policy modules, by PUT and as one set"):
                found |= await measure_policies(stack, bare, runs)
    with step("the guard, with a fleet and without"):
        found |= measure_guard(runs)
    return found | await measure_only_edits(rounds=1)


async def measure_only_edits(rounds: int) -> dict[str, float]:
    """Measure edits that are planned and then made, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"creating {edits.WORKLOADS} ReplicaSets"):
                await world.create_replica_sets(bare, edits.WORKLOADS)
            with step(f"three edits, planned and then made, {rounds} times"):
                return await edits.measure_edits(stack, bare, rounds)


async def measure_only_policies(runs: int) -> dict[str, float]:
    """Measure how policies are loaded and changed, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"{MODULES} policy modules, by PUT and as one set"):
                return await measure_policies(stack, bare, runs)


async def measure_only_remediation(objects: int, runs: int) -> dict[str, float]:
    """Measure how a fleet is moved, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"creating {objects} ReplicaSets"):
                await world.create_replica_sets(bare, objects)
            with step(f"moving half of them, {2 * runs} times, and by hand"):
                return await measure_remediation(stack, bare, objects, runs)


async def measure_beside_kube_mgmt(program: Path, objects: int) -> dict[str, float]:
    """Measure the replicator beside kube-mgmt, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"creating {objects} ReplicaSets"):
                await world.create_replica_sets(bare, objects)
            with step("kube-mgmt, and the replicator"):
                return await measure_kube_mgmt(stack, bare, program, objects)


async def measure_only_decisions(objects: int, runs: int) -> dict[str, float]:
    """Measure what policies cost and save, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"creating {objects} ReplicaSets"):
                await world.create_replica_sets(bare, objects)
            sizes = ", ".join(map(str, decisions.SIZES))
            with step(f"decisions with {sizes} clusters, {runs} times"):
                found = await decisions.measure_decisions(stack, bare, objects, runs)
            with step(f"loads of whole objects and of what is read, {runs} times"):
                return found | await measure_narrowed(stack, bare, runs)


async def measure_only_admission(runs: int, requests: int) -> dict[str, float]:
    """Measure what the webhook adds, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"reviews, and the same queries straight to OPA, {runs} times"):
                return await admission.measure_admission(stack, bare, runs, requests)


async def measure_only_classes(runs: int) -> dict[str, float]:
    """Measure the webhook with decisions by class, on one set of servers."""
    with world.stack() as stack:
        async with bare_client(stack) as bare:
            with step(f"reviews by class, beside OPA and a bare handler, {runs} times"):
                return await measure_classes(stack, bare, runs)


def _start_up(runs: int) -> dict[str, float]:
    return {
        "start-up, until the first request (s)": statistics.median(
            startup.start_up() for _ in range(runs)
        ),
        "start-up, all of kubernetes_asyncio, which is not imported (s)": statistics.median(
            startup.library_import() for _ in range(runs)
        ),
    }


async def _relist(stack: RunningStack, bare: Bare, objects: int) -> dict[str, float]:
    await world.fresh_opa(stack)
    changed = [(world.NAMESPACE, name) for name in world.names(min(objects, _CHANGED))]
    with tempfile.TemporaryDirectory() as folder:
        # Seeded anew: the same marks a second time would change nothing.
        async with faulty_world(stack, bare, Path(folder), seed=time.time_ns()) as running:
            await until("the replicator is ready", running.ready)
            operations = await operations_of_a_relist(running, changed)
    return {
        "relist, objects": objects,
        "relist, changed": len(changed),
        "relist, operations to OPA": operations,
    }


async def _first_syncs(stack: RunningStack, bare: Bare, runs: int) -> dict[str, float]:
    floors, ours, memory = [], [], 0
    for _ in range(runs):
        await world.fresh_opa(stack)
        floors.append(await first_sync(bare))
        await world.fresh_opa(stack)
        async with world.replicator(stack) as server:
            begun = world.logged_at(server, "started")
            ours.append(world.logged_at(server, "opa_loaded") - begun)
            memory = max(memory, server.rss_bytes())
    floor, own = statistics.median(floors), statistics.median(ours)
    return {
        "first sync, floor (s)": floor,
        "first sync (s)": own,
        "first sync, ratio": own / floor,
        "replicator's memory (MB)": memory / 1e6,
    }


async def _events(stack: RunningStack, bare: Bare, events: int) -> dict[str, float]:
    await world.fresh_opa(stack)
    await first_sync(bare)
    loop = asyncio.create_task(_watch_and_put(bare))
    await asyncio.sleep(1)  # until the watch is open; the bare loop does not say when
    floors = await _latencies(bare, events)
    loop.cancel()
    await asyncio.wait([loop])
    await world.fresh_opa(stack)
    async with world.replicator(stack):
        ours = await _latencies(bare, events)
    found: dict[str, float] = {}
    for name, quantile in (("median", 0.5), ("99th percentile", 0.99)):
        floor, own = _quantile(floors, quantile), _quantile(ours, quantile)
        found[f"one event, {name}, floor (ms)"] = floor * 1e3
        found[f"one event, {name} (ms)"] = own * 1e3
        found[f"one event, {name}, ratio"] = own / floor
    return found


async def _burst(stack: RunningStack, bare: Bare, objects: int, changes: int) -> dict[str, float]:
    """Change many objects as fast as the API server takes it."""
    await world.fresh_opa(stack)
    gate, names = asyncio.Semaphore(world.AT_ONCE), world.names(min(objects, changes))
    mark = f"burst-{time.time_ns()}"

    async def change(name: str) -> None:
        async with gate:
            await world.annotate(bare, name, mark)

    async with world.replicator(stack) as server:
        before = world.cpu_seconds(server)
        await asyncio.gather(*(change(name) for name in names))
        answered = time.perf_counter()
        # Any of the last ones may be the last: those in flight together.
        for name in names[-world.AT_ONCE :]:
            while await bare.get(_mark(name)) != mark:
                pass
        late = time.perf_counter() - answered
        await asyncio.sleep(1)  # what is left to do after the last write counts as well
        used = world.cpu_seconds(server) - before
    return {
        "burst, changes": len(names),
        "burst, visible after the last answer (s)": late,
        "burst, CPU per event (ms)": used / len(names) * 1e3,
    }


def _mark(name: str) -> str:
    where = f"kubernetes/replicasets/{world.NAMESPACE}/{name}"
    return f"{where}/metadata/annotations/example.com%2Fmark"


async def _watch_and_put(bare: Bare) -> None:
    async with aclosing(bare.watch()) as watch:
        async for event in watch:
            name = event["object"]["metadata"]["name"]
            event["object"]["metadata"].pop("managedFields", None)
            path = f"kubernetes/replicasets/{world.NAMESPACE}/{name}"
            await bare.put(path, json.dumps(event["object"]).encode())


async def _latencies(bare: Bare, events: int) -> list[float]:
    """Return the seconds from the API server's answer until OPA shows the change."""
    found: list[float] = []
    name = "app-00000"
    path = (
        f"kubernetes/replicasets/{world.NAMESPACE}/{name}/metadata/annotations/example.com%2Fmark"
    )
    for index in range(events):
        mark = f"{time.time_ns()}-{index}"
        await world.annotate(bare, name, mark)
        answered = time.perf_counter()
        while await bare.get(path) != mark:
            pass
        found.append(time.perf_counter() - answered)
    return found


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    """Run the benchmarks, print a table and write it as JSON."""
    chosen = _parser().parse_args()
    usual = OBJECTS if chosen.scale else STRUCTURES if chosen.structures else _OBJECTS
    chosen.objects = chosen.objects or usual
    found = _measured(chosen)
    for name, value in found.items():
        print(f"{name:55} {value:10.3f}")
    RESULTS.parent.mkdir(exist_ok=True)
    content = {"objects": chosen.objects, "results": found}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"written to {RESULTS}")
    for line in headlines(found):
        print(line)


def _measured(chosen: argparse.Namespace) -> dict[str, float]:
    """Return the figures of the chosen parts, measured one after the other; or the replicator's."""
    runs, objects = chosen.runs, chosen.objects
    headline = chosen.headlines
    parts: tuple[tuple[object, Callable[[], dict[str, float]]], ...] = (
        (
            chosen.admission,
            lambda: asyncio.run(measure_only_admission(runs, chosen.requests)),
        ),
        (chosen.scale, lambda: measure_scale(chosen.sizes or sizes_up_to(objects), runs)),
        (chosen.structures, lambda: measure_structures(objects)),
        (
            headline or chosen.first_placement,
            lambda: measure_first_placement(runs, chosen.seconds, chosen.rate),
        ),
        (headline or chosen.classes, lambda: asyncio.run(measure_only_classes(runs))),
        (chosen.policies, lambda: asyncio.run(measure_only_policies(runs))),
        (chosen.pods, lambda: asyncio.run(pods.measure_pods(runs))),
        (chosen.scheduling, lambda: measure_scheduling(runs)),
        (chosen.metadata, lambda: measure_metadata(runs)),
        (chosen.topology, lambda: measure_topology(runs)),
        (chosen.guard, lambda: measure_guard(runs)),
        (headline or chosen.plan, lambda: measure_planning(runs)),
        (chosen.ledger, lambda: measure_ledger(runs)),
        (chosen.edits, lambda: asyncio.run(measure_only_edits(runs))),
        (chosen.kueue, lambda: measure_kueue(chosen.jobs)),
        (chosen.policy_sync, lambda: asyncio.run(measure_policy_sync(runs, chosen.seconds))),
        (
            chosen.kube_mgmt,
            lambda: asyncio.run(measure_beside_kube_mgmt(chosen.kube_mgmt, objects)),
        ),
        (
            headline or chosen.remediation,
            lambda: asyncio.run(measure_only_remediation(objects, runs)),
        ),
        (headline or chosen.decisions, lambda: asyncio.run(measure_only_decisions(objects, runs))),
    )
    wanted = [measured for asked, measured in parts if asked]
    if headline or not wanted:
        wanted.insert(0, lambda: asyncio.run(measure(objects, runs, chosen.events)))
    found: dict[str, float] = {}
    for measured in wanted:
        found |= measured()
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks", description=__doc__)
    parser.add_argument(
        "--headlines", action="store_true", help="measure all that has an aim, but for --scale"
    )
    parser.add_argument("--objects", type=int, help=f"default: {_OBJECTS}, with --scale {OBJECTS}")
    parser.add_argument(
        "--scale", action="store_true", help="measure up to half a million objects alone"
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: [*map(int, text.split(","))],
        metavar="N,N",
        help="with --scale: measure at these sizes (default: five up to --objects)",
    )
    parser.add_argument(
        "--structures",
        action="store_true",
        help=f"measure what the replicator holds for each object alone (--objects: {STRUCTURES})",
    )
    parser.add_argument(
        "--first-placement", action="store_true", help="measure first placements alone"
    )
    parser.add_argument(
        "--rate", type=float, default=RATE, help="of creations, a second: %(default)s"
    )
    parser.add_argument("--runs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--events", type=int, default=300, help="default: %(default)s")
    parser.add_argument(
        "--decisions", action="store_true", help="measure decisions and `fields: auto` alone"
    )
    parser.add_argument("--remediation", action="store_true", help="measure remediation alone")
    parser.add_argument("--admission", action="store_true", help="measure the webhook alone")
    parser.add_argument(
        "--classes", action="store_true", help="measure decisions by class in the webhook alone"
    )
    parser.add_argument("--policies", action="store_true", help="measure policy modules alone")
    parser.add_argument("--metadata", action="store_true", help="measure MetadataPolicy alone")
    parser.add_argument(
        "--pods", action="store_true", help="measure pods created under SchedulingPolicy alone"
    )
    parser.add_argument(
        "--scheduling", action="store_true", help="measure decisions on pods' scheduling alone"
    )
    parser.add_argument("--topology", action="store_true", help="measure topologies alone")
    parser.add_argument("--guard", action="store_true", help="measure the guard alone")
    parser.add_argument("--plan", action="store_true", help="measure plans alone")
    parser.add_argument("--ledger", action="store_true", help="measure the ledger alone")
    parser.add_argument(
        "--edits", action="store_true", help="measure edits that are planned and then made alone"
    )
    parser.add_argument(
        "--kueue", action="store_true", help="measure dispatchers of MultiKueue alone"
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="with --kueue: %(default)s")
    parser.add_argument("--policy-sync", action="store_true", help="measure policy sync alone")
    parser.add_argument(
        "--kube-mgmt", type=Path, metavar="PROGRAM", help="measure beside this kube-mgmt alone"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="in which nothing happens: %(default)s"
    )
    parser.add_argument(
        "--requests", type=int, default=100_000, help="for the webhook's memory: %(default)s"
    )
    return parser


if __name__ == "__main__":
    main()
