"""A TCP proxy that delays everything, as a process of its own: a network between two machines.

`python -m benchmarks.delay PORT SECONDS` delays each direction by half of the seconds, and prints
the port that it listens on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.faults.proxy import FaultProxy


@asynccontextmanager
async def delayed(port: int, seconds: float) -> AsyncGenerator[int]:
    """Yield a port that leads to `port`, each request and its answer together so much later."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(port), str(seconds), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        yield int(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


async def _serve(port: int, seconds: float) -> None:
    async with FaultProxy(port) as proxy:
        proxy.delay = seconds / 2
        print(proxy.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
