"""An errand: a command that is run beside this process, behind all others, and leaves nothing.

Keeps true: it ends in its time and within its memory, with this process, and with whoever waits
for it; then none of its processes and files is left. It takes little of a CPU that somebody else
wants, and where memory runs out the kernel ends it first. One process runs one errand at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from kube_sync.errors import Retriable, first_of
from kube_sync.runtime.rlimits import reaped

_LOOK_SECONDS: Final = 0.2
_LOOKS: Final = 100
_LAUNCHER: Final = "kube_sync.runtime.humble"


@dataclass(frozen=True, slots=True)
class Limits:
    """What an errand may take: seconds, and bytes of all its processes and of each file."""

    seconds: float
    memory: int
    file: int


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended by itself, and what it printed and said."""

    status: int
    output: bytes
    said: str


async def run_errand(
    command: Sequence[str], limits: Limits, environment: Mapping[str, str]
) -> Done:
    """Run a command to its end. Raises Retriable: it did not start, was ended, or took too much."""
    name = f"kube-sync-errand-{os.getpid()}-"
    try:
        _clear(name)
        private = tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True)
    except OSError as error:
        msg = f"no files can be written to {tempfile.gettempdir()}: {error.strerror}"
        raise Retriable(msg) from error
    with private as folder:
        process = await _started(command, limits, {**environment, "TMPDIR": folder})
        try:
            return await _ended(process, limits)
        finally:
            # Also when cancelled. What it started is in its group, and may outlive it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await reaped(process)
            await _collect(process.pid)


async def _collect(group: int) -> None:
    """Wait for what it left to this process, where that is the first one of its container."""
    with suppress(ChildProcessError):
        for _ in range(_LOOKS):
            if os.waitpid(-group, os.WNOHANG) == (0, 0):  # noqa: ASYNC222 - it does not block
                await asyncio.sleep(_LOOK_SECONDS / 10)


def _clear(name: str) -> None:
    """Remove what an errand left whose process was killed together with the one that we succeed."""
    for left in Path(tempfile.gettempdir()).glob(f"{name}*"):
        shutil.rmtree(left, ignore_errors=True)


async def _started(
    command: Sequence[str], limits: Limits, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    # No preexec_fn: with one Python copies all page tables of this process (fork, not vfork).
    launcher = [sys.executable, "-m", _LAUNCHER, str(os.getpid()), str(limits.file)]
    try:
        return await asyncio.create_subprocess_exec(
            *launcher,
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        msg = f"{command[0]} does not start: {error.strerror}"
        raise Retriable(msg) from error


async def _ended(process: asyncio.subprocess.Process, limits: Limits) -> Done:
    try:
        async with asyncio.timeout(limits.seconds), asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(process.pid, limits.memory))
            output, said = await process.communicate()
            watching.cancel()
    except TimeoutError as error:
        msg = f"it took more than {limits.seconds:g} s"
        raise Retriable(msg) from error
    except ExceptionGroup as errors:
        raise first_of(errors) from errors
    if (status := process.returncode or 0) < 0:
        name = signal.Signals(-status).name
        msg = f"it was ended by {name}" + (", memory may have run out" if name == "SIGKILL" else "")
        raise Retriable(msg)
    return Done(status, output, said.decode("utf-8", "replace"))


async def _watch(pid: int, limit: int) -> NoReturn:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if resident(pid) > limit:
            msg = f"it took more than {limit / 2**20:.0f} MiB of memory"
            raise Retriable(msg)


def resident(pid: int) -> int:
    """Return the resident memory of a process and all below it in bytes, 0 where nobody knows."""
    found = 0
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        found += pages * os.sysconf("SC_PAGESIZE")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        found += sum(resident(int(child)) for child in children.split())
    return found
