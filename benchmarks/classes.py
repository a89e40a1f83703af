"""The webhook with decisions by class, beside one without, OPA alone, and a bare aiohttp handler.

By class with one process and with two: on two cores the client takes its part of them. All over
TLS with the same client, in turns; each figure is the median of its runs, and that of a ratio is
taken of the ratios. The bare handler decodes the same review and answers a patch: what Python with
aiohttp can do at most. At last each review is of a class that is not known yet.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import world
from benchmarks.admission import ONE_LINE, replica_sets, review
from benchmarks.bare import Bare
from benchmarks.decisions import create_clusters, load_policy
from benchmarks.load import Target, load
from benchmarks.wrk import per_second
from kube_sync.certificates import issue, make_authority
from tests.eventually import eventually
from tools.demo.components import start_service
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.running import free_port
from tools.servers.stack import RunningStack

_AT_ONCE = 32
_SECONDS = 3.0
_ALONE = 1000  # requests over one connection
_NEW = 2000  # reviews, each of a class of its own
_DECISION = "io/k8s/federation/admission"
_BY_NAME = (
    "package io.k8s.federation.admission\n\n"
    'annotations["example.com/name"] := input.metadata.name\n'
)
_WAYS = ("OPA", "webhook", "webhook by class", "webhook by class, two workers", "bare handler")


@dataclass(frozen=True, slots=True)
class Ways:
    """Who is asked, by name."""

    targets: dict[str, Target]


async def measure_classes(stack: RunningStack, bare: Bare, runs: int) -> dict[str, float]:
    """Measure a policy of one line, and the demo's with 20 and with 100 clusters."""
    found: dict[str, float] = {}
    async with world.replicator(stack), _ways(stack) as ways:
        await load_policy(bare, ONE_LINE)
        await _decided(bare, '"example.com/seen"')
        found |= await _throughput(ways, "one line", runs)
        await load_policy(bare)
        await _decided(bare, '"errors"')
        count = 0
        for clusters in (20, 100):
            await create_clusters(bare, count, clusters)
            count = clusters
            found |= await _throughput(ways, f"{clusters} clusters", runs)
            if clusters == 20:  # noqa: PLR2004 - what the aim is about
                found |= await _latency(ways, f"{clusters} clusters", runs)
        await load_policy(bare, _BY_NAME)
        await _decided(bare, '"example.com/name"')
        return found | await _new_classes(ways, runs)


async def _latency(ways: Ways, what: str, runs: int) -> dict[str, float]:
    """Measure the median over one connection."""
    found = []
    for _ in range(runs):
        took = [(await load(ways.targets[name], _ALONE, 1)).median for name in _WAYS]
        found.append(
            {
                f"{name}, median (ms)": seconds * 1e3
                for name, seconds in zip(_WAYS, took, strict=True)
            }
            | {"median by class over OPA, ratio": took[2] / took[0]}
        )
    return {f"classes, {what}, {name}": value for name, value in world.medians(found).items()}


async def _new_classes(ways: Ways, runs: int) -> dict[str, float]:
    """Measure reviews that no answer is known for, with decisions by class and without."""
    found = []
    for run in range(runs):
        each = []
        for name in _WAYS[:3]:
            bodies = [_new(f"{run}-{index}", name) for index in range(_NEW)]
            target = replace(ways.targets[name], bodies=bodies)
            each.append((await load(target, _NEW, _AT_ONCE)).per_second)
        found.append(
            {
                "OPA (1/s)": each[0],
                "webhook (1/s)": each[1],
                "webhook by class (1/s)": each[2],
                "by class over OPA, ratio": each[2] / each[0],
                "by class over without, ratio": each[2] / each[1],
            }
        )
    return {f"classes, new ones, {name}": value for name, value in world.medians(found).items()}


def _new(name: str, way: str) -> str:
    """Return what OPA or a webhook is asked about a ReplicaSet of this name."""
    manifest = replica_sets()[0]
    manifest["metadata"]["name"] = f"new-{name}"
    return json.dumps({"input": manifest} if way == "OPA" else review(manifest))


async def _decided(bare: Bare, expected: str) -> None:
    """Wait until OPA decides by the policy whose answer contains this."""
    body = json.dumps({"input": replica_sets()[0]}).encode()
    await eventually(lambda: bare.query(_DECISION, body), lambda seen: expected in json.dumps(seen))


async def _throughput(ways: Ways, what: str, runs: int) -> dict[str, float]:
    for target in ways.targets.values():
        await per_second(target, 1.0, _AT_ONCE)  # warm, with all classes known and confirmed
    found = []
    for _ in range(runs):
        each = {
            name: await per_second(target, _SECONDS, _AT_ONCE)
            for name, target in ways.targets.items()
        }
        own = each["webhook by class"]
        found.append(
            {f"{name} (1/s)": value for name, value in each.items()}
            | {
                "by class over OPA, ratio": own / each["OPA"],
                "by class over without, ratio": own / each["webhook"],
                "two workers over one, ratio": each["webhook by class, two workers"] / own,
                "by class over bare handler, ratio": own / each["bare handler"],
            }
        )
    return {f"classes, {what}, {name}": value for name, value in world.medians(found).items()}


@asynccontextmanager
async def _ways(stack: RunningStack) -> AsyncGenerator[Ways]:
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-classes-"))
    authority = make_authority("bench")
    write_pair(folder, "tls", issue(authority, "webhook", LOOPBACK))
    ca_file = write_file(folder / "ca.crt", authority.cert_pem)
    token = stack.opa_token_files["admission"].read_text(encoding="utf-8").strip()
    objects = replica_sets()
    reviews = [json.dumps(review(found)) for found in objects]
    floor = Target(
        f"{stack.opa_url}/v1/data/{_DECISION}",
        str(stack.opa_ca_file),
        [json.dumps({"input": found}) for found in objects],
        '"annotations"',
        {"Authorization": f"Bearer {token}"},
    )
    webhook = Target("", str(ca_file), reviews, '"JSONPatch"')
    async with AsyncExitStack() as started:
        started.callback(shutil.rmtree, folder)
        urls = [
            await _webhook(stack, folder, started, "off"),
            await _webhook(stack, folder, started, "on"),
            await _webhook(stack, folder, started, "on", workers=2),
            await _bare_handler(folder, started),
        ]
        targets = [floor, *(replace(webhook, url=url) for url in urls)]
        yield Ways(dict(zip(_WAYS, targets, strict=True)))


async def _webhook(
    stack: RunningStack, folder: Path, started: AsyncExitStack, mode: str, workers: int = 1
) -> str:
    port = free_port()
    configuration: dict[str, object] = {
        "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admission"])},
        "opa": stack.opa_settings() | {"token_file": str(stack.opa_token_files["admission"])},
        "decisions": stack.endpoint.client(),
        "admission": {
            "listen": f"127.0.0.1:{port}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
            "classes": mode,
            "workers": workers,
            "drain_seconds": 0.1,
        },
    }
    own = folder / f"{mode}-{workers}"
    server = await asyncio.to_thread(start_service, "admit", own, configuration)
    started.callback(server.stop)
    return f"https://127.0.0.1:{port}/admit/placement?timeout=10s"


async def _bare_handler(folder: Path, started: AsyncExitStack) -> str:
    port = free_port()
    command = (sys.executable, "-m", "benchmarks.barehandler", str(port), str(folder))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe)
    started.callback(process.terminate)
    if process.stdout is not None:
        await process.stdout.readline()  # it is ready
    return f"https://127.0.0.1:{port}/"
