"""Which process is meant: a pid together with the moment it started, so none is ended by mistake.

A pid alone may belong to another program after a restart of the machine; with its start time (from
/proc) it names one process for ever. A zombie counts as ended: nobody but its parent can remove it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Fields 3, 4 and 22 of proc(5) stat, counted after the command's name.
_STATE, _PARENT, _START_TIME = 0, 1, 19


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, recognisable later."""

    pid: int
    started: int  # clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Name the process that has this pid now; None when there is none."""
        fields = _stat(pid)
        return None if fields is None else cls(pid, int(fields[_START_TIME]))

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return ProcessId.of(self.pid) == self

    def end(self, grace: float) -> None:
        """Ask it to end, insist after `grace` seconds; another process of that pid is let be."""
        for order, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            if not self.alive():
                return
            with suppress(ProcessLookupError):
                os.kill(self.pid, order)
            self._wait(patience)

    def _wait(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Return the processes that run now whose parent this one is."""
    running = ((int(path.name), _stat(int(path.name))) for path in Path("/proc").glob("[0-9]*"))
    return [child for child, fields in running if fields and fields[_PARENT] == str(pid)]


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process, 0 when it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold spaces
    return None if fields[_STATE] in {"Z", "X"} else fields
