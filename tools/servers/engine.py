"""Have a Docker engine that answers: as it is, or installed and started on Debian as root.

Keeps true: an engine that answers is never touched, and the one started here (detached, its
output in a file) is the only one that `stop_engine` ends. Anywhere else one line says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from tools.servers.cache import cache_dir, locked
from tools.servers.console import say, step
from tools.servers.debian import apt_install, is_debian_root
from tools.servers.dockerd_api import engine_answers
from tools.servers.errors import EngineUnavailable, ToolError
from tools.servers.pids import ProcessId

_PACKAGES = ("docker.io", "docker-compose", "iptables", "ca-certificates")
_PID_FILE = Path("/var/run/docker.pid")
_STARTING, _PATIENCE = 5.0, 60.0  # seconds until it has a pid file, until it answers
_HOW_TO = (
    "install Docker Engine and start it, or run this as root on Debian or Ubuntu, "
    "where it is installed and started for you"
)


@contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """Lend a client of the engine; it is closed after the block."""
    client = docker.from_env(timeout=600)
    try:
        yield client
    finally:
        client.close()


def ensure_engine() -> None:
    """Return once an engine answers; raise EngineUnavailable with the way out where none can."""
    if engine_answers():
        return
    with locked("engine"):
        if engine_answers():  # another process may have started it while this one waited
            return
        _require_able()
        if shutil.which("dockerd") is None:
            _install()
        if not engine_answers():  # the package starts it by itself where there is a service manager
            _start()


def stop_engine() -> None:
    """End the engine that `ensure_engine` started, and no other."""
    record = _record()
    if not record.exists():
        say("no engine was started here")
        return
    pid, started = record.read_text(encoding="ascii").split()
    with step("stopping the engine (seconds)"):
        ProcessId(int(pid), int(started)).end(grace=30)
    record.unlink()


def stop_idle_engine() -> None:
    """End the engine that `ensure_engine` started, unless any container still runs in it."""
    if not _record().exists() or not engine_answers():
        return
    with engine() as client:
        busy = client.containers.list()
    if not busy:
        stop_engine()


def _require_able() -> None:
    if os.environ.get("DOCKER_HOST"):
        msg = f"no engine answers at DOCKER_HOST={os.environ['DOCKER_HOST']}: start it, or unset it"
        raise EngineUnavailable(msg)
    if not is_debian_root():
        msg = f"no Docker engine answers: {_HOW_TO}"
        raise EngineUnavailable(msg)


def _install() -> None:
    try:
        apt_install(_PACKAGES, "about a minute")
    except ToolError as error:
        msg = f"no Docker engine answers and none could be installed ({error}): {_HOW_TO}"
        raise EngineUnavailable(msg) from error


def _start() -> None:
    """Start the engine in a session of its own; it holds none of the caller's files open."""
    _forget_stale_pid()
    log = cache_dir("engine") / "dockerd.log"
    with step(f"starting the Docker engine, log in {log} (seconds)"):
        with log.open("wb") as output:
            subprocess.run(
                ["setsid", "--fork", "dockerd"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
                cwd="/",
            )
        _wait(log)
    _remember()


def _wait(log: Path) -> None:
    begin = time.monotonic()
    while not engine_answers():
        waited = time.monotonic() - begin
        gave_up = waited > _STARTING and not _PID_FILE.exists()  # it removes the file as it ends
        if gave_up or waited > _PATIENCE:
            last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            msg = f"the Docker engine did not come up in {waited:.0f} s, it said last: {last}"
            raise EngineUnavailable(msg)
        time.sleep(0.2)


def _forget_stale_pid() -> None:
    """Remove a pid file left by a machine that went down: its pid may be any program's now."""
    if not _PID_FILE.exists():
        return
    command = Path("/proc", _PID_FILE.read_text(encoding="ascii").strip(), "comm")
    if not command.exists() or command.read_text(encoding="utf-8").strip() != "dockerd":
        _PID_FILE.unlink()


def _remember() -> None:
    process = ProcessId.of(int(_PID_FILE.read_text(encoding="ascii")))
    if process is not None:
        _record().write_text(f"{process.pid} {process.started}\n", encoding="ascii")


def _record() -> Path:
    return cache_dir("engine") / "started"
