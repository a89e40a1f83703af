"""What a server is before it runs (ServerSpec) and while it runs (RunningServer), in either form.

Keeps true: a server has one folder, the only place it writes to, mounted in a container under the
same path, so that one argument list serves both forms; and a server that was killed starts again
on its old port with what its folder holds.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from tools.servers.errors import StartFailed
from tools.servers.http import get
from tools.servers.pauses import pauses

# Below the range that outgoing connections take their ports from (32768 on Linux), so that none
# of them sits on a server's port in the moment between its end and its next start.
_PORTS = range(20_000, 32_000)
_BLOCK = 200  # so many of them belong to one process at a time
_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How one server is run: program, arguments, its folder, and how to see that it is ready."""

    name: str
    program: str  # a pinned program's name, or the absolute path of another (processes only)
    arguments: tuple[str, ...]
    folder: Path
    url: str
    ready_paths: tuple[str, ...]  # each must answer 200
    ca_file: Path | None = None
    token: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: str = "1g"
    patience: float = 60.0  # seconds until ready


class RunningServer(Protocol):
    """A server that was started; every method may be called in any order, more than once."""

    @property
    def spec(self) -> ServerSpec:
        """How it is run."""

    @property
    def url(self) -> str:
        """Where it answers."""

    def start(self) -> None:
        """Start it (again) with what its folder holds and wait until it is ready."""

    def stop(self) -> None:
        """Ask it to end, wait until it has."""

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash would."""

    def alive(self) -> bool:
        """Tell whether it runs."""

    def logs(self) -> str:
        """Return the last lines it wrote."""

    def rss_bytes(self) -> int:
        """Return the memory it holds now, 0 when it does not run."""


class Launcher(Protocol):
    """A way to run servers."""

    @property
    def form(self) -> str:
        """What it makes: processes or containers."""

    def launch(self, spec: ServerSpec) -> RunningServer:
        """Start a server and wait until it is ready."""


def free_port() -> int:
    """Return a port of the loopback that nothing listens on now, and none that was given lately."""
    for port in _in_turn():
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError  # the turns have no end


@cache
def _in_turn() -> Iterator[int]:
    return itertools.cycle(_own_block())


def _own_block() -> range:
    """Return ports that no other process of this user gives out while this one lives.

    Where several run side by side, none gives away what another is about to use. The lock is of
    the open file, which nobody closes: it ends with the process, however that ends.
    """
    folder = Path(tempfile.gettempdir(), f"kube-sync-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    blocks = range(_PORTS.start, _PORTS.stop, _BLOCK)
    for first in random.sample(blocks, len(blocks)):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return range(first, first + _BLOCK)
        os.close(lock)
    msg = f"each of the {len(blocks)} blocks of ports in {folder} is taken by a process that runs"
    raise StartFailed(msg)


def launch_on_free_port(
    launcher: Launcher, make_spec: Callable[[], ServerSpec], attempts: int = 5
) -> RunningServer:
    """Launch what `make_spec` describes, asking it again where another was faster at a port."""
    for _ in range(attempts - 1):
        with suppress(PortTaken):
            return launcher.launch(make_spec())
    return launcher.launch(make_spec())


class PortTaken(StartFailed):
    """Another program took the port between its choice and its use."""


def wait_until_ready(server: RunningServer) -> None:
    """Return when every ready path answers 200; raise StartFailed with the server's last words."""
    spec = server.spec
    deadline = time.monotonic() + spec.patience
    for path in spec.ready_paths:
        for pause in pauses():
            if _answers(spec, path):
                break
            if not server.alive():
                raise _failure(server, "ended before it was ready")
            if time.monotonic() > deadline:
                raise _failure(server, f"was not ready within {spec.patience:.0f} s ({path})")
            time.sleep(pause)
    if not server.alive():  # then it was another server that answered there
        raise _failure(server, "ended while it became ready")


def _answers(spec: ServerSpec, path: str) -> bool:
    try:
        return get(spec.url + path, ca_file=spec.ca_file, token=spec.token).status == 200  # noqa: PLR2004
    except OSError:
        return False


def _failure(server: RunningServer, what: str) -> StartFailed:
    said = server.logs()
    kind = PortTaken if "address already in use" in said.lower() else StartFailed
    return kind(f"{server.spec.name} {what}; it said last:\n{said}")


def tail(path: Path, lines: int = _LOG_LINES) -> str:
    """Return the last lines of a log file, empty when there is none."""
    with suppress(FileNotFoundError):
        text = path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])
    return ""
