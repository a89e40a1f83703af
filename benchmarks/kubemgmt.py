"""kube-mgmt and the replicator on the same servers: memory, first sync, and OPA's restart.

kube-mgmt is no part of this project: whoever compares gives its program. Both replicate the same
ReplicaSets whole into an OPA of the same version, over TLS and with a token; peaks are of the
processes themselves (VmHWM).
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import world
from benchmarks.bare import Bare
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, ServerSpec, free_port
from tools.servers.stack import RunningStack

_PATIENCE = 120.0  # seconds for an OPA that was restarted to hold everything again
_STEP = 0.05


async def measure_kube_mgmt(
    stack: RunningStack, bare: Bare, program: Path, objects: int
) -> dict[str, float]:
    """Let each fill a fresh OPA, be asked for a change, and see OPA restart.

    A restart after which OPA does not hold everything within 120 s is told as NaN.
    """
    found: dict[str, float] = {}
    for name in ("kube-mgmt", "kube-sync"):
        await world.fresh_opa(stack)
        begun = time.perf_counter()
        async with _running(stack, program, name) as server:
            await _holds(bare, objects)
            found[f"{name}, from its start until OPA holds all (s)"] = time.perf_counter() - begun
            for index in range(objects // 10):
                await world.annotate(bare, world.names(objects)[index], str(begun))
            found[f"{name}, memory (MB)"] = server.rss_bytes() / 1e6
            found[f"{name}, peak of memory (MB)"] = _peak(server) / 1e6
            await world.fresh_opa(stack)
            found[f"{name}, OPA whole again after its restart (s)"] = await _whole_again(
                bare, objects
            )
    return found


@asynccontextmanager
async def _running(stack: RunningStack, program: Path, name: str) -> AsyncGenerator[RunningServer]:
    if name == "kube-sync":
        async with world.replicator(stack) as server:
            yield server
        return
    with tempfile.TemporaryDirectory() as folder:
        spec = _kube_mgmt(stack, program, Path(folder))
        server = await asyncio.to_thread(ProcessLauncher().launch, spec)
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)


def _kube_mgmt(stack: RunningStack, program: Path, folder: Path) -> ServerSpec:
    port = free_port()
    arguments = (
        f"--kubeconfig={stack.kubeconfigs['admin']}",
        f"--opa-url={stack.opa_url}/v1",
        f"--opa-auth-token-file={stack.opa_token_files['replicator']}",
        f"--opa-ca-file={stack.opa_ca_file}",
        "--replicate=apps/v1/replicasets",
        "--enable-policies=false",
        "--enable-data=false",
        f"--health-endpoint=127.0.0.1:{port}",
    )
    url = f"http://127.0.0.1:{port}"
    return ServerSpec("kube-mgmt", str(program), arguments, folder, url, ())


async def _holds(bare: Bare, objects: int) -> None:
    last = f"kubernetes/replicasets/{world.NAMESPACE}/{world.names(objects)[-1]}/metadata/name"
    while await bare.get(last) is None:  # noqa: ASYNC110 - OPA tells nobody what it holds
        await asyncio.sleep(_STEP)
    held = await bare.get(f"kubernetes/replicasets/{world.NAMESPACE}")
    if len(held) != objects:
        msg = f"OPA holds {len(held)} of {objects}"
        raise ValueError(msg)


async def _whole_again(bare: Bare, objects: int) -> float:
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(_PATIENCE):
            await _holds(bare, objects)
    except TimeoutError:
        return float("nan")
    return time.perf_counter() - begun


def _peak(server: RunningServer) -> int:
    """Return the most memory that a process ever held, in bytes."""
    record = json.loads((server.spec.folder / "process.json").read_text(encoding="utf-8"))
    status = Path(f"/proc/{record['process']['pid']}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
