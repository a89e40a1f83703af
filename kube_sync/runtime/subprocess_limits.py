"""Resource limits of a child process, set by prlimit(2) once it runs, and its termination.

RLIMIT_DATA and not RLIMIT_AS: Go reserves over 1 GiB of addresses before it allocates anything. The
kernel refuses memory beyond it at once, so a process that allocates 1 GB a second cannot overshoot.
A launcher that sets limits before it executes the program costs 50 ms of CPU for each process.
Between the start and prlimit(2) a process may have allocated more; it gets no more after that.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KILLED_FIRST: Final = "1000"  # proc_pid_oom_score_adj(5)
_MIB: Final = 2**20
_CHUNK: Final = 2**16  # bytes


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The limits of one process."""

    memory: int  # bytes of private writable memory
    cpu_seconds: int
    files: int = 256  # open at once

    def apply(self, pid: int) -> None:
        """Limit a running child, on Linux only. Raises OSError, including ProcessLookupError."""
        if sys.platform != "linux":
            return
        _lower(pid, resource.RLIMIT_DATA, self.memory)
        _lower(pid, resource.RLIMIT_CPU, self.cpu_seconds)
        _lower(pid, resource.RLIMIT_NOFILE, self.files)
        _lower(pid, resource.RLIMIT_CORE, 0)
        with suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")

    def environment(self) -> dict[str, str]:
        """Return the environment that makes Go collect garbage before the memory limit."""
        return {"GOMEMLIMIT": f"{self.memory * 9 // 10}B"}

    @property
    def memory_text(self) -> str:
        """The memory limit, for messages."""
        return f"more than {self.memory / _MIB:.0f} MiB of memory"

    @property
    def cpu_text(self) -> str:
        """The limit of CPU time, for messages."""
        return f"more than {self.cpu_seconds} s of CPU time"


def _lower(pid: int, kind: int, wanted: int) -> None:
    """Lower one limit; it never exceeds the limit of this process."""
    _, most = resource.getrlimit(kind)
    wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.prlimit(pid, kind, (wanted, wanted))


async def reaped(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a killed process, also if nobody reads its output any more.

    asyncio reports the end once all pipes are closed, and it stops reading a pipe with more
    than twice its limit (64 KiB) unread: then `Process.wait` alone never returns.
    """
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_CHUNK):
            pass
    await process.wait()
    await asyncio.sleep(0)  # lets the transport close before the loop may end


def cpu_of_children() -> float:
    """Return the CPU time, in seconds, of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
