from __future__ import annotations

import asyncio
import sys

from kube_sync.runtime.subprocess_limits import reaped

_SAYS = "import os, time; print('much', flush=True); os.close(2); time.sleep(600)"


async def test_a_killed_process_whose_output_nobody_reads_has_an_end() -> None:
    """What waits for a reader is more than asyncio takes, so that it looks at the pipe no more."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SAYS),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1,
    )
    assert process.stderr is not None
    assert await process.stderr.read() == b""  # by now the output has been written
    process.kill()
    async with asyncio.timeout(20):
        await reaped(process)
    assert process.returncode is not None
