"""Run servers as processes of their own: no engine, no root; they may outlive who started them.

Keeps true: what was started is on record in its folder (`process.json`: pid and start time), so
another process can end exactly that, and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from tools.servers.binaries import ensure_binary
from tools.servers.pids import ProcessId, rss_bytes
from tools.servers.running import ServerSpec, tail, wait_until_ready

_RECORD = "process.json"
_GRACE = 10.0
RUNNING: Final[set[ProcessServer]] = set()  # of this process, for who tells why something failed


@dataclass(frozen=True, slots=True)
class ProcessLauncher:
    """Starts servers as processes in sessions of their own."""

    form: str = "processes"

    def launch(self, spec: ServerSpec) -> ProcessServer:
        """Start a server and wait until it is ready; one that fails leaves no process behind."""
        server = ProcessServer(spec)
        server.start()
        return server


class ProcessServer:
    """One server that runs as a process."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.url = spec.url
        self._log = spec.folder / f"{spec.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it (again) with what its folder holds and wait until it is ready."""
        self.stop()
        with self._log.open("ab") as log:
            self._process = _spawn(self.spec, log)
        try:
            RUNNING.add(self)
            _record(self.spec.folder, self._process.pid)
            wait_until_ready(self)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash would."""
        self._end(signal.SIGKILL)

    def alive(self) -> bool:
        """Tell whether it runs."""
        return self._process is not None and self._process.poll() is None

    def logs(self) -> str:
        """Return the last lines it wrote."""
        return tail(self._log)

    def rss_bytes(self) -> int:
        """Return the memory it holds now, 0 when it does not run."""
        return rss_bytes(self._process.pid) if self._process and self.alive() else 0

    def _end(self, order: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(order)
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        RUNNING.discard(self)
        (self.spec.folder / _RECORD).unlink(missing_ok=True)


def _spawn(spec: ServerSpec, log: IO[bytes]) -> subprocess.Popen[bytes]:
    program = spec.program if Path(spec.program).is_absolute() else ensure_binary(spec.program)
    # Little of the environment is passed on: OPA shows its own to whoever may query it.
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return subprocess.Popen(
        [program, *spec.arguments],
        cwd=spec.folder,
        env={**inherited, "HOME": str(spec.folder), **spec.environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _record(folder: Path, pid: int) -> None:
    process, owner = ProcessId.of(pid), ProcessId.of(os.getpid())
    if process is not None and owner is not None:
        text = json.dumps({"process": asdict(process), "owner": asdict(owner)})
        (folder / _RECORD).write_text(text, encoding="utf-8")


def recorded(folder: Path) -> Iterator[tuple[ProcessId, ProcessId]]:
    """Yield what was started in folders below this one: each process and who started it."""
    for path in sorted(folder.rglob(_RECORD)):
        with suppress(OSError, ValueError, KeyError):
            record = json.loads(path.read_text(encoding="utf-8"))
            yield ProcessId(**record["process"]), ProcessId(**record["owner"])


def end_recorded(folder: Path, *, orphans_only: bool = False) -> int:
    """End what was started below this folder and still runs; return how many that were.

    The last one first: an API server whose etcd is gone takes its time to end.
    """
    ended = 0
    for process, owner in sorted(recorded(folder), key=lambda r: r[0].started, reverse=True):
        if process.alive() and not (orphans_only and owner.alive()):
            process.end(_GRACE)
            ended += 1
    return ended
