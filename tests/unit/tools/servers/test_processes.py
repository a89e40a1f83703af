"""A stand-in server, Python's own, shows what holds for every server that runs as a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tools.servers.errors import StartFailed
from tools.servers.http import get
from tools.servers.pids import ProcessId
from tools.servers.processes import ProcessLauncher, ProcessServer, end_recorded, recorded
from tools.servers.running import PortTaken, ServerSpec, free_port, launch_on_free_port
from tools.servers.stack import stop_recorded


def spec(folder: Path, port: int, *, patience: float = 20.0) -> ServerSpec:
    return ServerSpec(
        name="files",
        program=sys.executable,
        arguments=("-m", "http.server", str(port), "--bind", "127.0.0.1"),
        folder=folder,
        url=f"http://127.0.0.1:{port}",
        ready_paths=("/",),
        patience=patience,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProcessServer]:
    running = ProcessLauncher().launch(spec(tmp_path, free_port()))
    yield running
    running.stop()


def test_launched_server_is_ready(server: ProcessServer) -> None:
    assert get(server.url).status == 200
    assert server.rss_bytes() > 0


def test_killed_server_starts_again_on_its_port(server: ProcessServer) -> None:
    server.kill()
    assert not server.alive()
    assert server.rss_bytes() == 0
    server.start()
    assert get(server.url).status == 200


def test_stopping_twice_is_stopping_once(server: ProcessServer) -> None:
    server.stop()
    server.stop()
    assert not server.alive()


def test_server_that_ends_at_once_fails_with_its_last_words(tmp_path: Path) -> None:
    wrong = ServerSpec("files", sys.executable, ("-c", "raise SystemExit('no good')"), tmp_path,
                       "http://127.0.0.1:1", ("/",))  # fmt: skip
    with pytest.raises(StartFailed, match=r"ended before it was ready.*\n.*no good"):
        ProcessLauncher().launch(wrong)


def test_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    silent = ServerSpec("files", sys.executable, ("-c", "import time; time.sleep(60)"), tmp_path,
                        "http://127.0.0.1:1", ("/",), patience=0.3)  # fmt: skip
    with pytest.raises(StartFailed, match="not ready within"):
        ProcessLauncher().launch(silent)
    assert list(recorded(tmp_path)) == []


def test_taken_port_is_given_up_for_another(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = iter([taken.getsockname()[1], free_port()])
        server = launch_on_free_port(ProcessLauncher(), lambda: spec(tmp_path, next(ports)))
    assert get(server.url).status == 200
    server.stop()


def test_taken_port_fails_in_the_end(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken):
            launch_on_free_port(ProcessLauncher(), lambda: spec(tmp_path, port), attempts=2)


async def test_recorded_processes_are_ended_and_their_folder_goes(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    (folder / "files").mkdir(parents=True)
    server = ProcessLauncher().launch(spec(folder / "files", free_port()))
    assert stop_recorded(folder) == 1
    # It has ended, but its threads may not all have been cleared away.
    await eventually(server.alive, expected=False, seconds=10)
    assert not folder.exists()
    assert stop_recorded(folder) == 0


def test_process_with_a_recycled_pid_is_let_be(tmp_path: Path) -> None:
    """A record from before a restart of the machine names a pid that is another's now."""
    me = ProcessId.of(os.getpid())
    assert me is not None
    other = {"pid": me.pid, "started": me.started - 1}
    (tmp_path / "process.json").write_text(json.dumps({"process": other, "owner": other}))
    assert end_recorded(tmp_path) == 0
    assert me.alive()


def test_sweeping_orphans_spares_what_a_living_session_started(server: ProcessServer) -> None:
    assert end_recorded(server.spec.folder, orphans_only=True) == 0
    assert server.alive()


def test_pid_of_nobody_is_no_process() -> None:
    assert ProcessId.of(2**22 + 1) is None


def test_processes_side_by_side_take_no_port_of_each_other() -> None:
    ours = {free_port() for _ in range(1000)}
    script = (
        "from tools.servers.running import free_port; print(*{free_port() for _ in range(1000)})"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    theirs = {int(port) for port in printed.split()}
    assert len(ours) > 100
    assert len(theirs) > 100
    assert not ours & theirs
